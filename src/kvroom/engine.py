"""What kvroom needs to know of an engine: data and pure functions, no process and no socket."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from kvroom.errors import InputError
from kvroom.matchup import Settings
from kvroom.records import Fact, LogLine, Source
from kvroom.room import Plan, ShareFor

Format = Literal["gguf", "safetensors"]
Knob = Callable[[Any, Settings], Sequence[str]]
"""One setting and all settings -> the engine's arguments for it."""


@dataclass(frozen=True, kw_only=True)
class Home:
    """How an engine is started once it is there, and which packages bring it."""

    program: str
    """Its program when it is taken from the PATH."""
    within: tuple[str, ...]
    """What follows ``python`` inside an environment; ``{servers}`` is kvroom's own servers."""
    packages: Callable[[str], list[str]] | None = None
    """Requirements that install a version; None where no wheel is known to work."""
    subcommand: tuple[str, ...] = ()
    """Words between the program and its flags when it is taken from the PATH."""
    repairs: Mapping[str, "Repair"] = field(default_factory=dict)
    """For a package: what has to be mended after installing it."""
    disclosure: str = ""
    """What a reader of the numbers must know of an engine started inside an environment."""


@dataclass(frozen=True, kw_only=True)
class Repair:
    """What to mend in a fresh environment, and why."""

    why: str
    uninstall: tuple[str, ...] = ()
    empty: tuple[str, ...] = ()
    """Files below site-packages that are made empty."""


@dataclass(frozen=True, kw_only=True)
class Tokenizer:
    """The engine's endpoint that turns text into token ids."""

    path: str
    text_field: str
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """How the engine wants to be asked for a completion."""

    path: str = "/v1/completions"
    tokenizer: Tokenizer | None = None
    """Where prompts can be sent as token ids; without it they are sent as text."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Fields beside the usual ones."""


@dataclass(frozen=True, kw_only=True)
class Probes:
    """Cheap requests that disturb nothing."""

    ready: str = "/health"
    version: tuple[str, str] | None = None
    """Path and JSON key of the version as the server reports it."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where one launch of the engine lives."""

    model: str
    served_model: str
    host: str
    port: int


@dataclass(frozen=True, kw_only=True)
class Engine:
    """One adapter."""

    name: str
    summary: str
    home: Home | None
    """None for endpoints that kvroom only attaches to."""
    formats: tuple[Format, ...] = ()
    base: Callable[[Place, Settings], Sequence[str]] = lambda place, settings: ()
    """Arguments that every launch needs."""
    knobs: Mapping[str, Knob] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    dialect: Dialect = field(default_factory=Dialect)
    probes: Probes = field(default_factory=Probes)
    ready_line: str = ""
    """A pattern of the line that says the engine serves."""
    read_log: Callable[[Iterable[LogLine], str], Iterator[Fact]] = lambda lines, file: iter(())
    """Log lines and the name of their file -> what the engine said of itself."""
    room: Plan | None = None
    """The engine's allocator; None where nothing is known of it."""
    kv_dtypes: tuple[str, ...] = ("auto",)
    """Data types of the cache that a plan compares unless one is named."""
    share: ShareFor | None = None
    """Its memory fraction; None where the cache is sized by other settings."""
    takes_what_is_left: bool = True
    """Whether the pool is made of what is left; else of what slots and lengths ask for."""

    def arguments(self, place: Place, settings: Settings, flags: Sequence[str]) -> list[str]:
        """The whole argument list; the verbatim flags come last, so they win."""
        given = settings.given()
        for name in given:
            if name not in self.knobs:
                known = ", ".join(sorted(self.knobs)) or "none"
                raise InputError(
                    f"{self.name} has no setting {name!r}",
                    f"it knows {known}; its own options go under 'flags'",
                )
        words = list(self.base(place, settings))
        for name, value in given.items():
            words += self.knobs[name](value, settings)
        return words + list(flags)

    def body(
        self, served_model: str, prompt: list[int] | str, output_tokens: int
    ) -> dict[str, Any]:
        """The JSON body of one streamed, greedy completion of forced length."""
        return {
            "model": served_model,
            "prompt": prompt,
            "max_tokens": output_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            **self.dialect.extra,
        }


UNITS = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def log_reader(
    *patterns: str,
) -> Callable[[Iterable[LogLine], str], Iterator[Fact]]:
    """A ``read_log`` from patterns whose named groups are the facts.

    ``(?P<kv_tokens>...)`` gives the fact ``kv_tokens``; ``(?P<kv_bytes__MiB>...)`` gives
    ``kv_bytes`` with the printed figure converted. Thousands separators are dropped.
    """
    compiled = [re.compile(pattern) for pattern in patterns]

    def read(lines: Iterable[LogLine], file: str) -> Iterator[Fact]:
        for line in lines:
            for pattern in compiled:
                match = pattern.search(line.text)
                if match is not None:
                    yield from _facts(match, line, file)

    return read


def _facts(match: re.Match[str], line: LogLine, file: str) -> Iterator[Fact]:
    for group, text in match.groupdict().items():
        if text is None:
            continue
        name, _, scale = group.partition("__")
        yield Fact(
            name=name,
            value=_value(text, UNITS[scale]),
            unit=_unit(name),
            source=Source(file, line.number),
            at_s=line.at_s,
        )


def _value(text: str, scale: int) -> float | str:
    try:
        return float(text.replace(",", "")) * scale
    except ValueError:
        return text


def _unit(name: str) -> str:
    return next((u for u in ("bytes", "tokens", "blocks") if name.endswith(u)), "")


def last(facts: Iterable[Fact], name: str) -> Fact | None:
    """The last fact of a name: when an engine sizes itself twice, the last pass counts."""
    found = None
    for fact in facts:
        if fact.name == name:
            found = fact
    return found
