"""The catalogue of known failures, and where a log shows one of them."""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Annotated

import msgspec

from kvroom import located
from kvroom.explain.finding import Cause, Confidence, Quote
from kvroom.log_reader import QUOTED, literal
from kvroom.records import LogLine, Source
from kvroom.settings import Strict

Text = Annotated[str, msgspec.Meta(min_length=1)]


class Signature(Strict, frozen=True, kw_only=True):
    """One known failure. Words in braces are named groups of the pattern."""

    name: Text
    engines: tuple[str, ...]
    pattern: Text
    cause: Cause
    claim: Text
    remedy: str = ""
    setting: str = ""
    """What to change, in our words or as the engine spells it."""
    to: str = ""
    price: str = ""
    verify: str = ""
    settle: str = ""
    versions: Text
    """Releases whose source or logs have the line."""
    source: Text
    """Where that is known from."""
    example: Text
    """A line that must be found."""
    confidence: Confidence = "certain"
    circumstance: bool = False
    """Whether it is only a hint, which comes after what is certain."""
    also: tuple[Cause, ...] = ()
    """Causes that are true as well whenever this is."""


class Hit(msgspec.Struct, kw_only=True):
    """A known failure in a log."""

    signature: Signature
    quote: Quote
    groups: dict[str, str]
    times: int = 1


@cache
def catalogue() -> tuple[Signature, ...]:
    """All known failures."""
    return tuple(located.load(Path(__file__).with_name("signatures.yaml"), list[Signature]))


@cache
def _compiled(engine: str) -> tuple[tuple[str, re.Pattern[str], Signature], ...]:
    return tuple(
        (literal(one.pattern), re.compile(one.pattern), one)
        for one in catalogue()
        if engine in one.engines or not one.engines
    )


def marks(engine: str) -> tuple[str, ...]:
    """Words of which one stands in every line that shows a failure of this engine."""
    patterns = (one.pattern for _, _, one in _compiled(engine))
    words = (literal(part) for pattern in patterns for part in _alternatives(pattern))
    return tuple(dict.fromkeys(filter(None, words)))


def _alternatives(pattern: str) -> Iterator[str]:
    """The parts of a pattern of which one must be found, those inside of groups left together."""
    depth, start = 0, 0
    for at, sign in enumerate(pattern):
        depth += (sign == "(") - (sign == ")")
        if sign == "|" and not depth:
            yield pattern[start:at]
            start = at + 1
    yield pattern[start:]


class Hits:
    """Watches the lines of one log go by."""

    def __init__(self, engine: str, file: str) -> None:
        self.file = file
        self.signatures = _compiled(engine)
        self.hits: dict[str, Hit] = {}

    def watched(self, lines: Iterable[LogLine]) -> Iterator[LogLine]:
        """The lines unchanged."""
        for line in lines:
            for needed, pattern, signature in self.signatures:
                match = pattern.search(line.text) if needed in line.text else None
                if match is not None:
                    self._hit(signature, match, line)
            yield line

    def _hit(self, signature: Signature, match: re.Match[str], line: LogLine) -> None:
        if (known := self.hits.get(signature.name)) is not None:
            known.times += 1
            return
        start = max(0, match.start() - QUOTED // 2) if match.start() > QUOTED // 2 else 0
        text = line.text[start : start + QUOTED].strip()
        groups = {name: text[:QUOTED] for name, text in match.groupdict().items() if text}
        quote = Quote(Source(self.file, line.number), text)
        self.hits[signature.name] = Hit(signature=signature, quote=quote, groups=groups)

    def found(self) -> list[Hit]:
        """The failures in the order of the catalogue."""
        return [self.hits[one.name] for _, _, one in self.signatures if one.name in self.hits]
