"""Facts from log lines by patterns: named groups are the names of the facts."""

import re
from collections.abc import Iterable, Iterator

from kvroom.records import Fact, LogLine, Source

UNITS = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "GB": 2**30}
"""Engines that print GB mean 2**30 bytes."""
QUOTED = 300
"""Characters of a line that a fact keeps."""


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
            text=line.text[:QUOTED].strip(),
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
