"""What a log says, put together: each fact once, with its last value and how often it was said."""

from collections.abc import Iterable

import msgspec

from kvroom.records import Fact

MOST_VALUES = 16


class Told(msgspec.Struct, kw_only=True):
    """A fact over a whole log; of figures the range too, of texts the first stands for both."""

    last: Fact
    first: Fact
    highest: Fact
    lowest: Fact
    """Of figures the largest; of texts the first."""
    times: int = 1
    values: list[str] = []
    """The different texts it had, the first of them."""
    low: float | None = None
    high: float | None = None


def told(facts: Iterable[Fact]) -> list[Told]:
    """The facts of a log in the order they first appear; memory does not grow with the log."""
    found: dict[str, Told] = {}
    for fact in facts:
        one = found.get(fact.name)
        if one is None:
            one = found[fact.name] = Told(last=fact, first=fact, highest=fact, lowest=fact, times=0)
        one.last, one.times = fact, one.times + 1
        if isinstance(fact.value, str):
            if fact.value not in one.values and len(one.values) < MOST_VALUES:
                one.values.append(fact.value)
        else:
            if one.low is None or fact.value < one.low:
                one.low, one.lowest = fact.value, fact
            if one.high is None or fact.value > one.high:
                one.high, one.highest = fact.value, fact
    return list(found.values())
