"""Where the time of a start went: from the first line of the log to the answered probe."""

import re
from collections.abc import Iterable, Sequence

import msgspec

from kvroom.records import LogLine, Source

ANSWERED = "answered"
"""From the last line that ends a phase to the probe that was answered."""


class Phase(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the start."""

    name: str
    seconds: float
    source: Source | None
    """The line that ended it; None for the last, which a probe ended."""


def phases(
    lines: Iterable[LogLine], file: str, ends: Sequence[tuple[str, str]], ready_s: float
) -> list[Phase]:
    """The phases of a start in order; together they take ``ready_s`` exactly.

    ``ends`` are names and patterns of the lines that end them, of which the last before the engine
    was ready counts. A phase whose line is missing, or came before an earlier one's, is left out:
    its time is then in the one after it.
    """
    found = _last_lines(lines, ends, ready_s)
    made: list[Phase] = []
    before = 0.0
    for name, _ in ends:
        line = found.get(name)
        if line is None or line.at_s is None or line.at_s < before:
            continue
        made.append(Phase(name=name, seconds=line.at_s - before, source=Source(file, line.number)))
        before = line.at_s
    if not made:
        return []
    return [*made, Phase(name=ANSWERED, seconds=ready_s - before, source=None)]


def _last_lines(
    lines: Iterable[LogLine], ends: Sequence[tuple[str, str]], ready_s: float
) -> dict[str, LogLine]:
    patterns = [(name, re.compile(pattern)) for name, pattern in ends]
    found: dict[str, LogLine] = {}
    for line in lines:
        if line.at_s is None:
            continue
        if line.at_s > ready_s:
            break
        for name, pattern in patterns:
            if pattern.search(line.text):
                found[name] = line
    return found
