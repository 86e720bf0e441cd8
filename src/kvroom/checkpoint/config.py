"""config.json as a mapping that says what it lacks: every complaint names the file and the key."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from kvroom.errors import InputError

MAX_CONFIG_BYTES = 8 << 20
MAX_COUNT = 1 << 24
"""No dimension, head or layer count of a model comes near this."""

TEXT_PARTS = ("text_config", "llm_config", "language_config", "thinker_config")


class Config:
    """One level of a configuration, with the file it came from."""

    def __init__(self, values: Mapping[str, Any], file: str, level: str = "") -> None:
        self.values = values
        self.file = file
        self.level = level

    @classmethod
    def read(cls, path: Path) -> "Config":
        """The configuration in a file; InputError if there is none."""
        try:
            if path.stat().st_size > MAX_CONFIG_BYTES:
                raise InputError(f"{path} is larger than {MAX_CONFIG_BYTES >> 20} MiB")
            values = msgspec.json.decode(path.read_bytes())
        except OSError as error:
            raise InputError(f"{path}: {(error.strerror or str(error)).lower()}") from None
        except (msgspec.DecodeError, RecursionError) as error:
            raise InputError(f"{path} is not JSON: {error}") from None
        if not isinstance(values, dict):
            raise InputError(f"{path} does not hold an object")
        return cls(values, str(path))

    @property
    def text(self) -> "Config":
        """The part that describes the language model; itself where there is no wrapper."""
        for name in TEXT_PARTS:
            inner = self.values.get(name)
            if isinstance(inner, dict):
                return Config(inner, self.file, f"{self.level}{name}.").text
        return self

    def has(self, key: str) -> bool:
        """Whether a key is given and not null."""
        return self.values.get(key) is not None

    def count(self, *keys: str, default: int | None = None) -> int:
        """A positive whole number under the first of these keys that is given."""
        for key in keys:
            if self.has(key):
                value = self.values[key]
                if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                    raise self.wrong(key, f"{value!r} is not a positive whole number")
                if value > MAX_COUNT:
                    raise self.wrong(key, f"{value} is absurdly large")
                return value
        if default is None:
            raise InputError(f"{self.file} has no {self.level}{keys[0]}")
        return default

    def word(self, key: str) -> str | None:
        """A text, or None."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, str):
            raise self.wrong(key, f"{value!r} is not a text")
        return value

    def words(self, key: str) -> Sequence[str] | None:
        """A list of texts, or None."""
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
            raise self.wrong(key, "it is not a list of texts")
        return value

    def counts(self, key: str) -> Sequence[int] | None:
        """A list of whole numbers, or None."""
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or not all(type(number) is int for number in value):
            raise self.wrong(key, "it is not a list of whole numbers")
        return value

    def inner(self, key: str) -> "Config":
        """An object inside, empty where it is missing."""
        value = self.values.get(key)
        return Config(value if isinstance(value, dict) else {}, self.file, f"{self.level}{key}.")

    def wrong(self, key: str, why: str) -> InputError:
        """The error that a key cannot be right."""
        return InputError(f"{self.file}: {self.level}{key}: {why}")
