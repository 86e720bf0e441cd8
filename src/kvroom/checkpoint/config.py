"""config.json as a mapping that says what it lacks: every complaint names the file and the key."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from kvroom.checkpoint.tensors import MALFORMED, shown
from kvroom.errors import InputError

MAX_CONFIG_BYTES = 8 << 20
MAX_COUNT = 1 << 24
"""No dimension, head or layer count of a model comes near this."""

MAX_LEVELS = 8
MAX_WORD = 200
WRITTEN_BY = "take config.json as the model's authors published it"

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
        return cls.parse(read_bounded(path, MAX_CONFIG_BYTES), str(path))

    @classmethod
    def parse(cls, text: bytes, file: str) -> "Config":
        """The configuration in a text; InputError if it is not a JSON object."""
        try:
            values = msgspec.json.decode(text)
        except MALFORMED as error:
            raise InputError(f"{file} is not JSON: {error}", WRITTEN_BY) from None
        if not isinstance(values, dict):
            raise InputError(f"{file} does not hold an object", WRITTEN_BY)
        return cls(values, file)

    def with_quantization(self, other: "Config") -> "Config":
        """With what ModelOpt writes into a file of its own, unless this one says it already."""
        if self.has("quantization_config"):
            return self
        return Config({**self.values, "quantization_config": other.values}, self.file, self.level)

    @property
    def text(self) -> "Config":
        """The part that describes the language model; itself where there is no wrapper."""
        found = self
        for _ in range(MAX_LEVELS):
            name = next((part for part in TEXT_PARTS if found.has(part)), None)
            if name is None:
                return found
            if not isinstance(found.values[name], dict):
                raise found.wrong(name, "it is not an object")
            found = found.inner(name)
        raise self.wrong(TEXT_PARTS[0], "it lies absurdly deep")

    def has(self, key: str) -> bool:
        """Whether a key is given and not null."""
        return self.values.get(key) is not None

    def count(self, *keys: str, default: int | None = None) -> int:
        """A positive whole number under the first of these keys that is given."""
        for key in keys:
            if self.has(key):
                value = self.values[key]
                if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                    raise self.wrong(key, f"{shown(value)} is not a positive whole number")
                if value > MAX_COUNT:
                    raise self.wrong(key, f"{shown(value)} is absurdly large")
                return value
        if default is None:
            raise InputError(f"{self.file} has no {self.level}{keys[0]}", WRITTEN_BY)
        return default

    def word(self, key: str) -> str | None:
        """A text of one line, or None."""
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, str):
            raise self.wrong(key, f"{shown(value)} is not a text")
        if len(value) > MAX_WORD or not value.isprintable():
            raise self.wrong(key, f"{shown(value)} is not a word")
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
        return InputError(f"{self.file}: {self.level}{key}: {why}", WRITTEN_BY)


def read_bounded(path: Path, most: int) -> bytes:
    """The bytes of a file; InputError if it cannot be read, or has more than ``most``."""
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise InputError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    if len(data) > most:
        raise InputError(f"{path} is larger than {most >> 20} MiB")
    return data
