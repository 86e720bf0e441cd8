"""What a change did, beside what it promised."""

from collections.abc import Iterator, Sequence

from kvroom.analyse.contender import Measured
from kvroom.analyse.noise import noise
from kvroom.store import Applied


def outcomes(changes: Sequence[Applied], contenders: Sequence[Measured]) -> Iterator[str]:
    """A sentence a change: before, after, and whether that is what was expected."""
    floor = noise(contenders).limit
    for one in changes:
        said = f"{one.setting} {one.now or 'its default'} -> {one.to}"
        after = _after(one, contenders)
        if one.before is None or after is None:
            yield f"{one.contender} with {said}: not measured."
            continue
        yield (
            f"{one.contender} with {said}: {one.before:,.0f} tok/s became {after:,.0f} at "
            f"{one.concurrency}, {_worth(after / one.before, floor)}{_promised(one, after)}."
        )


def _after(one: Applied, contenders: Sequence[Measured]) -> float | None:
    found = next((c for c in contenders if c.contender.name == one.changed), None)
    if found is None or one.concurrency is None or not found.rankable(one.concurrency):
        return None
    level = found.level(one.concurrency)
    rounds = level.output_throughput_rounds if level else None
    return rounds.mean if rounds else None


def _worth(factor: float, floor: float) -> str:
    if 1 / (1 + floor) <= factor <= 1 + floor:
        return f"no difference shown (noise limit {floor:.0%})"
    return f"{factor:.2f} times"


def _promised(one: Applied, after: float) -> str:
    if one.expected is None:
        return ""
    low, likely, high = one.expected
    within = "as" if low <= after <= high else "less than" if after < low else "more than"
    return f"; {within} predicted ({likely:,.0f}, between {low:,.0f} and {high:,.0f})"
