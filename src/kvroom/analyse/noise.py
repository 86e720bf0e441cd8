"""How large a difference must be before it is more than noise."""

import math
from collections.abc import Iterable, Sequence

import msgspec

from kvroom.analyse.contender import Measured
from kvroom.stats import Spread

BETWEEN_STARTS = 0.05
"""Share by which two starts of one engine differ for no reason. A prior, not measured here: hosts
of one kind were seen to differ by 3 to 6 %."""

UNREPEATED = 0.05
"""Scatter assumed where no round was repeated."""

TIMES_SCATTER = 2.0
"""About 95 % of the differences that rounds show by chance are smaller."""


class Noise(msgspec.Struct, frozen=True, kw_only=True):
    """The noise of one run."""

    scatter: float
    """Standard deviation of repeated rounds around their mean, as a share of it, over all cells."""
    rounds: int
    """Repeated rounds it was taken from."""
    limit: float
    """Two figures of two starts that differ by no more than this share are not told apart."""

    def apart(self, one: Spread, other: Spread) -> bool:
        """Whether one is ahead of the other: in every round, and by more than noise."""
        return one.low > other.high and one.mean > (1 + self.limit) * other.mean


def noise(contenders: Iterable[Measured]) -> Noise:
    """What the run's own repeats say, on top of the prior for starts."""
    spreads = [
        spread
        for one in contenders
        for level in one.levels
        if level.concurrency not in one.voids and (spread := level.output_throughput_rounds)
    ]
    scatter, rounds = _pooled([s for s in spreads if s.n > 1])
    fewest = min((s.n for s in spreads), default=1)
    by_chance = TIMES_SCATTER * scatter * math.sqrt(2 / fewest)
    return Noise(scatter=scatter, rounds=rounds, limit=BETWEEN_STARTS + by_chance)


def _pooled(repeated: Sequence[Spread]) -> tuple[float, int]:
    freedom = sum(s.n - 1 for s in repeated)
    if not freedom:
        return UNREPEATED, 0
    squares = sum((s.n - 1) * (s.deviation / s.mean) ** 2 for s in repeated)
    return math.sqrt(squares / freedom), sum(s.n for s in repeated)
