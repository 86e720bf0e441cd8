"""Numbers without a domain: percentiles and spreads."""

import statistics
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import ArrayLike


class Percentiles(msgspec.Struct, frozen=True, kw_only=True):
    """Mean, percentiles and maximum of one sample, in its unit; linear interpolation (numpy)."""

    mean: float
    p50: float
    p90: float
    p99: float
    max: float

    @classmethod
    def of(cls, sample: ArrayLike) -> "Percentiles | None":
        """The percentiles of a sample, or None when it is empty."""
        values = np.asarray(sample, dtype=float)
        if values.size == 0:
            return None
        p50, p90, p99 = np.percentile(values, (50, 90, 99))
        return cls(
            mean=float(values.mean()),
            p50=float(p50),
            p90=float(p90),
            p99=float(p99),
            max=float(values.max()),
        )


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Repeated measurements of one figure: the first, the mean, and how far they lie apart."""

    first: float
    mean: float
    low: float
    high: float
    deviation: float
    """Sample standard deviation; 0 for a single value."""
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread | None":
        """The spread of at least one value in the order measured, or None for none."""
        if not values:
            return None
        return cls(
            first=values[0],
            mean=sum(values) / len(values),
            low=min(values),
            high=max(values),
            deviation=statistics.stdev(values) if len(values) > 1 else 0.0,
            n=len(values),
        )
