"""Two contenders at the highest level they share: which part of the gap has which reason.

The ratio of two throughputs is the product of three: of their speeds with one request, of what each
gains by running many at once, and of what each loses by letting some wait. The third is known where
the curve of the lower levels says what all of them together would have made.
"""

from collections.abc import Iterator, Sequence

import msgspec

from kvroom.analyse.effective import Compared, compared
from kvroom.explain.case import Case
from kvroom.explain.curve import Curve, curve

CONSEQUENCES = ("kv_memory", "batch_tokens", "dtype")
"""What may follow from another setting or from the engine; it is told, but not blamed alone."""
WORTH_NAMING = 1.03


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A factor of the gap and its reason."""

    factor: float
    because: str
    explained: bool = True


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """Why one contender is ahead of another."""

    ahead: str
    behind: str
    concurrency: int
    ratio: float
    apart: bool
    """Whether the ratio is more than noise."""
    parts: tuple[Part, ...]
    """Their product is the ratio."""
    differs: tuple[str, ...]
    """Settings that are not the same, with both values."""
    told: str


def pairs(cases: Sequence[Case]) -> list[Pair]:
    """The best contender at the highest level beside each other one."""
    measured = [(case, found) for case in cases if (found := curve(case)) is not None]
    if len(measured) < 2:
        return []
    level = max(found.top.concurrency for _, found in measured)
    there = [(case, found) for case, found in measured if found.top.concurrency == level]
    there.sort(key=lambda one: one[1].top.tokens_per_s, reverse=True)
    return [_pair(*there[0], *other) for other in there[1:]]


def _pair(ahead: Case, fast: Curve, behind: Case, slow: Curve) -> Pair:
    assert ahead.measured is not None
    assert behind.measured is not None
    settings = [one for one in compared([ahead.measured, behind.measured]) if one.differs]
    names = ahead.measured.contender.name, behind.measured.contender.name
    ratio = fast.top.tokens_per_s / slow.top.tokens_per_s
    parts = tuple(_parts(fast, slow, names))
    apart = ratio > 1 + max(fast.noise, slow.noise)
    return Pair(
        ahead=names[0],
        behind=names[1],
        concurrency=fast.top.concurrency,
        ratio=ratio,
        apart=apart,
        parts=parts,
        differs=tuple(f"{one.setting}: {_value(one, names[0])} and {_value(one, names[1])}"
                      for one in settings),
        told=_told(ahead, behind, ratio, apart, parts, settings),
    )  # fmt: skip


def _value(one: Compared, name: str) -> str:
    value = one.values.get(name)
    return value.value if value else "unknown"


def _parts(fast: Curve, slow: Curve, names: tuple[str, str]) -> Iterator[Part]:
    """One request, many at once, those that wait; what is left has no reason."""
    left = fast.top.tokens_per_s / slow.top.tokens_per_s
    waits = _kept(fast) / _kept(slow)
    if abs(waits - 1) > WORTH_NAMING - 1:
        yield Part(factor=waits, because=_waiting(fast, slow, names))
        left /= waits
    if fast.points[0].concurrency == slow.points[0].concurrency < fast.top.concurrency:
        alone = fast.points[0].tokens_per_s / slow.points[0].tokens_per_s
        few = fast.points[0].concurrency
        yield Part(
            factor=alone,
            because=f"already at {few} ({fast.points[0].tokens_per_s:,.0f} and "
            f"{slow.points[0].tokens_per_s:,.0f} tok/s), the pace of the engines",
        )
        left /= alone
    yield Part(
        factor=left,
        because="in what a step costs when many requests share it, which nothing here explains",
        explained=False,
    )


def _kept(one: Curve) -> float:
    """Of what all of them together would have made, the share that was made."""
    if one.together >= one.top.concurrency:
        return 1.0
    whole = one.batch_s(one.top.concurrency)
    return whole.likely / one.top.seconds if whole else 1.0


def _waiting(fast: Curve, slow: Curve, names: tuple[str, str]) -> str:
    said = [
        f"because in {name} {one.together} of {one.top.concurrency} ran while the others waited"
        for one, name in ((fast, names[0]), (slow, names[1]))
        if one.together < one.top.concurrency
    ]
    return " and ".join(said)


def _told(
    ahead: Case,
    behind: Case,
    ratio: float,
    apart: bool,
    parts: Sequence[Part],
    settings: Sequence[Compared],
) -> str:
    assert ahead.measured is not None
    assert behind.measured is not None
    names = ahead.measured.contender.name, behind.measured.contender.name
    if not apart:
        return f"No difference is shown between {names[0]} and {names[1]}: {ratio:.2f} is noise."
    named = [part for part in parts if abs(part.factor - 1) > WORTH_NAMING - 1]
    said = f"{names[0]} makes {ratio:.2f} times what {names[1]} makes: "
    said += "; ".join(f"{part.factor:.2f} {part.because}" for part in named)
    chosen = [one for one in settings if one.setting not in CONSEQUENCES] or settings
    alike = (ahead.engine, ahead.version) == (behind.engine, behind.version)
    if alike and len(chosen) == 1:
        one = chosen[0]
        said += (
            f". Only {one.setting} was chosen differently ({_value(one, names[0])} and "
            f"{_value(one, names[1])}), so all of the gap is its"
        )
    return said + "."
