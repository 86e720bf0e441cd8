"""The measured curve of one contender: where it stops growing, and the arithmetic of why.

Requests of equal length that come together also end together. If R of N run at once, a round is so
many batches of R and one of what is left, and its seconds are the sum of theirs. The seconds of a
batch larger than any that was measured lie on the line of the two largest. They are held between
growing half as fast as that (where only one was measured: not at all) and as many times more as
there are requests, which is when they gain nothing by sharing a step.
"""

import math
from collections.abc import Sequence

import msgspec

from kvroom.explain.case import Case
from kvroom.explain.finding import Forecast, How

STILL_GROWS = 0.5
"""The least share of its slope with which a batch goes on to grow. An assumption."""
GROWS = 1.05
"""More tokens a second than at the level before by this much is growth."""


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One level: the mean over its rounds."""

    concurrency: int
    tokens_per_s: float
    seconds: float
    """From due to the last token of a round."""
    tpot_ms: float | None


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """All levels that can be believed, and how many requests run at once."""

    points: tuple[Point, ...]
    output: int
    """Tokens of an answer."""
    together: int
    """Requests that run at once at the highest level."""
    how: How
    noise: float
    """Share by which two figures differ for no reason."""

    @property
    def top(self) -> Point:
        """The highest level."""
        return self.points[-1]

    @property
    def best(self) -> Point:
        """The lowest level from which on throughput does not grow any more."""
        most = max(point.tokens_per_s for point in self.points)
        return next(p for p in self.points if p.tokens_per_s * GROWS >= most)

    @property
    def shared(self) -> tuple[Point, ...]:
        """Levels at which all requests ran at once."""
        return tuple(p for p in self.points if p.concurrency <= self.together)

    def batch_s(self, requests: int) -> Forecast | None:
        """Seconds that so many requests take which run at once; None without such a level."""
        points = self.shared
        if not points:
            return None
        below = [p for p in points if p.concurrency <= requests]
        above = [p for p in points if p.concurrency >= requests]
        if below and above:
            return _exactly(_between(below[-1], above[0], requests))
        if not below:
            share = requests / points[0].concurrency
            return Forecast(points[0].seconds * share, points[0].seconds, points[0].seconds)
        return _beyond(points, requests)

    def round_s(self, together: int, concurrency: int) -> Forecast | None:
        """Seconds of a round in which so many of all run at once."""
        full, rest = divmod(concurrency, together)
        batches = [self.batch_s(together)] * full + ([self.batch_s(rest)] if rest else [])
        known = [one for one in batches if one is not None]
        if not known or len(known) < len(batches):
            return None
        return Forecast(
            *(sum(getattr(one, end) for one in known) for end in ("low", "likely", "high"))
        )

    def tokens_per_s(self, together: int) -> Forecast | None:
        """Output tokens a second at the highest level if so many ran at once, noise included; if
        more than now, not less than now."""
        seconds = self.round_s(together, self.top.concurrency)
        if seconds is None:
            return None
        tokens = self.top.concurrency * self.output
        least = self.top.tokens_per_s if together > self.together else 0.0
        low, likely, high = (max(least, tokens / s) for s in (seconds.high, seconds.likely,
                                                              seconds.low))  # fmt: skip
        return Forecast(low * (1 - self.noise), likely, high * (1 + self.noise))


def _exactly(seconds: float) -> Forecast:
    return Forecast(seconds, seconds, seconds)


def _between(low: Point, high: Point, requests: int) -> float:
    if low is high or low.concurrency == high.concurrency:
        return low.seconds
    share = (requests - low.concurrency) / (high.concurrency - low.concurrency)
    return low.seconds + share * (high.seconds - low.seconds)


def _beyond(points: Sequence[Point], requests: int) -> Forecast:
    """Past the largest measured batch: on the line of the last two, held to its two bounds."""
    last = points[-1]
    least, most = last.seconds, last.seconds * requests / last.concurrency
    if len(points) == 1:
        return Forecast(least, math.sqrt(least * most), most)
    before = points[-2]
    slope = (last.seconds - before.seconds) / (last.concurrency - before.concurrency)
    more = min(max(0.0, slope * (requests - last.concurrency)), most - least)
    return Forecast(least + STILL_GROWS * more, least + more, most)


def curve(case: Case) -> Curve | None:
    """The curve of a measured contender; None where no level can be believed."""
    one, output = case.measured, case.load.output
    if one is None or not output:
        return None
    points = []
    for level in one.levels:
        rounds = level.output_throughput_rounds
        if rounds is None or not one.rankable(level.concurrency):
            continue
        points.append(
            Point(
                concurrency=level.concurrency,
                tokens_per_s=rounds.mean,
                seconds=level.concurrency * output / rounds.mean,
                tpot_ms=level.tpot_ms.p50 if level.tpot_ms else None,
            )
        )
    if not points:
        return None
    points.sort(key=lambda point: point.concurrency)
    together, how = _together(case, points[-1].concurrency)
    return Curve(
        points=tuple(points),
        output=output,
        together=together,
        how=how,
        noise=case.noise.limit if case.noise else 0.0,
    )


def _together(case: Case, concurrency: int) -> tuple[int, How]:
    """How many run to their end at once: where the pool is short, the plan's figure, since gauges
    count requests that are about to be pushed out; else by the gauges, else as many as streamed."""
    fit, running = case.fit, case.state("most_running")
    if fit is not None and fit.running and fit.waiting and case.state("most_waiting"):
        return min(fit.running, concurrency), "planned"
    if running is not None and case.observed is not None:
        waits = case.state("most_waiting") is not None
        return (int(running.running) or 1 if waits else concurrency), "observed"
    if fit is not None and fit.running:
        return min(fit.running, concurrency), "planned"
    streaming = case.top.first_round.flight.max_streaming if case.top else concurrency
    return max(1, min(streaming, concurrency)), "observed"
