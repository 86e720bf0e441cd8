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
class Gauges:
    """Where the engine tells its state, and what its figures are called in our words.

    Only an endpoint that disturbs nothing: SGLang's ``/health`` generates a token, TensorRT-LLM's
    ``/metrics`` empties a queue.
    """

    names: Mapping[str, str]
    """A Prometheus name -> ours. Several series add up; of a usage the largest counts."""
    path: str = "/metrics"


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
    gauges: Gauges | None = None
    """None where nothing can be asked without disturbing it."""
    ready_line: str = ""
    """A pattern of the line that says the engine serves."""
    read_log: Callable[[Iterable[LogLine], str], Iterator[Fact]] = lambda lines, file: iter(())
    """Log lines and the name of their file -> what the engine said of itself."""
    log_marks: tuple[str, ...] = ()
    """Words of which at least one stands in every line of its real logs that ``read_log`` knows: of
    a large log only lines with one of them are tried."""
    phases: tuple[tuple[str, str], ...] = ()
    """Phases of a start, in order: a name, and a pattern of the lines that end it."""
    log_signature: str = ""
    """A pattern that only this engine's logs have: its name in a prefix, a file of its own."""
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


UNITS = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "GB": 2**30}
"""Engines that print GB mean 2**30 bytes."""


class LogReader:
    """A ``read_log`` from patterns whose named groups are the facts.

    ``(?P<kv_tokens>...)`` gives the fact ``kv_tokens``; ``(?P<kv_bytes__MiB>...)`` gives
    ``kv_bytes`` with the printed figure converted. Thousands separators are dropped.
    """

    def __init__(self, *patterns: str) -> None:
        self.patterns = [(literal(pattern), re.compile(pattern)) for pattern in patterns]

    def __call__(self, lines: Iterable[LogLine], file: str) -> Iterator[Fact]:
        """The facts in these lines of a file of this name."""
        for line in lines:
            for needed, pattern in self.patterns:
                match = pattern.search(line.text) if needed in line.text else None
                if match is not None:
                    yield from _facts(match, line, file)


_OPTIONAL = (
    re.compile(r"\[[^\]]*\]"),  # one character of many
    re.compile(r"\(\?[!=<][!=]?[^()]*\)"),  # what must not follow, or stands around
    re.compile(r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)[?*]"),  # a group that may be missing
    re.compile(r"\((?:\?:|\?P<\w+>)?[^()]*\|[^()]*\)"),  # one text of many
    re.compile(r"\(\?(?:P<\w+>|:)"),  # the head of a group
    re.compile(r"\\[A-Za-z.]|\\."),  # a class of characters, or one that is escaped
    re.compile(r".[?*]\??|\{\d+\}|\+\??|[.^$()]"),
)


def literal(pattern: str) -> str:
    """A text that stands in every line that a pattern finds, empty where none is sure.

    Looking for it first spares most lines the pattern itself.
    """
    for part in _OPTIONAL:
        pattern = part.sub("\0", pattern)
    return "" if "|" in pattern else max(pattern.split("\0"), key=len)


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
