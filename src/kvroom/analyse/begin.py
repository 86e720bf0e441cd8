"""The first requests after a start: when the first token came, and when the speed was steady."""

import statistics
from collections.abc import Iterator, Sequence
from itertools import takewhile

import msgspec

from kvroom.store import Round
from kvroom.units import NS_PER_MS, NS_PER_S

STEADY = 1.10
"""A round is at steady speed if its tokens are no more than this times further apart than those of
the median round at the same concurrency."""


class Begin(msgspec.Struct, frozen=True, kw_only=True):
    """From the answered probe to steady speed, the time of our own preparations left out."""

    first_token_ms: float
    """Of the first request ever sent, from due."""
    usual_first_token_ms: float | None
    """The median of the measured requests at that concurrency; None if there are none."""
    slow_rounds: int | None
    """How many rounds came before the first at steady speed, the warm-up counted; None if it cannot
    be told."""
    slow_s: float | None
    """How long those took."""


def begin(warmup: Round | None, rounds: Sequence[Round]) -> Begin | None:
    """What the requests that warmed an engine up show; None if there were none, or they failed."""
    if warmup is None or not warmup.frame["event_ns"].list.len().min():
        return None
    alike = [one for one in rounds if one.info.concurrency == len(warmup.frame)]
    paces = [pace for one in (warmup, *alike) if (pace := _pace(one)) is not None]
    slow = None
    if alike and len(paces) == len(alike) + 1:
        limit = STEADY * statistics.median(paces[1:])
        count = len(list(takewhile(lambda pace: pace > limit, paces)))
        slow = (warmup, *alike)[:count]
    return Begin(
        first_token_ms=min(_first_tokens_ms(warmup)),
        usual_first_token_ms=_median(ms for one in alike for ms in _first_tokens_ms(one)),
        slow_rounds=None if slow is None else len(slow),
        slow_s=None if slow is None else sum(_seconds(one) for one in slow),
    )


def _pace(stored: Round) -> float | None:
    """The median over requests of the time between tokens."""
    return _median(_paces(stored))


def _paces(stored: Round) -> Iterator[float]:
    for events, tokens in stored.frame.select("event_ns", "event_tokens").iter_rows():
        later = sum(tokens[1:])
        if later > 0:
            yield (events[-1] - events[0]) / later


def _first_tokens_ms(stored: Round) -> list[float]:
    rows = stored.frame.select("event_ns", "due_ns").iter_rows()
    return [(events[0] - due) / NS_PER_MS for events, due in rows if events]


def _seconds(stored: Round) -> float:
    return float(max(stored.frame["ended_ns"], default=0)) / NS_PER_S


def _median(values: Iterator[float]) -> float | None:
    known = list(values)
    return statistics.median(known) if known else None
