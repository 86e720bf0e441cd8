"""What an engine said of itself and took while a level ran: its own gauges beside our client."""

import functools
import operator
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from kvroom.records import Fact, Sample
from kvroom.store import Round
from kvroom.units import NS_PER_S

LOGGED = ("running", "waiting", "kv_cache_usage")


class Window(msgspec.Struct, frozen=True):
    """A round, from its release to its last token, on the clock of the run."""

    concurrency: int
    start_ns: int
    end_ns: int

    @classmethod
    def of(cls, stored: Round) -> "Window":
        """The window of a stored round."""
        start_ns = stored.info.started_ns
        return cls(
            stored.info.concurrency, start_ns, start_ns + (stored.frame["ended_ns"].max() or 0)
        )

    def holds(self, sample: Sample) -> bool:
        """Whether the sample was taken meanwhile."""
        return self.start_ns <= sample.at_ns <= self.end_ns


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine's gauges showed at one moment; None where it does not tell."""

    at_s: float
    """Since the first round of the level was released, the time between rounds left out."""
    running: float | None
    waiting: float | None
    kv_cache_usage: float | None


class Live(msgspec.Struct, frozen=True, kw_only=True):
    """Over all rounds of a level; None where the engine does not tell."""

    samples: int
    running_max: float | None
    waiting_max: float | None
    kv_cache_usage_max: float | None
    preempted: float | None
    """How often requests were pushed out."""
    memory_bytes_max: int | None
    device_memory_bytes_max: int | None
    series: list[Moment]
    throttled: int | None = None
    """All reasons, as the driver's bits, for which a card was held down."""
    clock_mhz: tuple[int, int] | None = None
    """The lowest and the highest clock of the cards."""


def live(samples: Sequence[Sample], windows: Iterable[Window]) -> dict[int, Live]:
    """For each level what was seen during its rounds; levels without a sample are left out."""
    by_level: dict[int, list[Window]] = {}
    for window in windows:
        by_level.setdefault(window.concurrency, []).append(window)
    found = {level: _level(samples, of) for level, of in by_level.items()}
    return {level: one for level, one in found.items() if one.samples}


PERCENT = "_percent"


def from_log(facts: Iterable[Fact], started_ns: int) -> list[Sample]:
    """What an engine without an endpoint for it prints of its state, a sample a line."""
    found: dict[int, Sample] = {}
    for fact in facts:
        name = fact.name.removesuffix(PERCENT)
        if name in LOGGED and fact.at_s is not None and isinstance(fact.value, float):
            at_ns = started_ns + round(fact.at_s * NS_PER_S)
            sample = found.setdefault(fact.source.line, Sample(at_ns=at_ns, gauges={}))
            sample.gauges[name] = fact.value / (100 if fact.name.endswith(PERCENT) else 1)
    return list(found.values())


def _level(samples: Sequence[Sample], windows: Sequence[Window]) -> Live:
    within = [s for s in samples for w in windows if w.holds(s)]
    devices = [device for sample in within for device in sample.devices]
    clocks = [device.clock_mhz for device in devices if device.clock_mhz]
    masks = [device.throttled for device in devices if device.throttled is not None]
    return Live(
        samples=len(within),
        running_max=_most(within, "running"),
        waiting_max=_most(within, "waiting"),
        kv_cache_usage_max=_most(within, "kv_cache_usage"),
        preempted=_risen(samples, windows, "preempted"),
        memory_bytes_max=max((s.memory_bytes for s in within if s.memory_bytes), default=None),
        device_memory_bytes_max=max((d.memory_bytes for d in devices), default=None),
        throttled=functools.reduce(operator.or_, masks) if masks else None,
        clock_mhz=(min(clocks), max(clocks)) if clocks else None,
        series=list(_series(samples, windows)),
    )


def _series(samples: Sequence[Sample], windows: Sequence[Window]) -> Iterator[Moment]:
    """The moments of the rounds, one round after the other."""
    before_ns = 0
    for window in windows:
        for sample in samples:
            if window.holds(sample) and sample.gauges:
                yield Moment(
                    at_s=round((before_ns + sample.at_ns - window.start_ns) / NS_PER_S, 3),
                    running=sample.gauges.get("running"),
                    waiting=sample.gauges.get("waiting"),
                    kv_cache_usage=sample.gauges.get("kv_cache_usage"),
                )
        before_ns += window.end_ns - window.start_ns


def _most(samples: Sequence[Sample], name: str) -> float | None:
    return max((s.gauges[name] for s in samples if name in s.gauges), default=None)


def _risen(samples: Sequence[Sample], windows: Sequence[Window], name: str) -> float | None:
    """How far a counter rose during these rounds, from the last look before to the first after."""
    told = [sample for sample in samples if name in sample.gauges]
    if not told:
        return None
    risen = 0.0
    for window in windows:
        before = [s for s in told if s.at_ns <= window.start_ns] or told[:1]
        after = [s for s in told if s.at_ns >= window.end_ns] or told[-1:]
        risen += after[0].gauges[name] - before[-1].gauges[name]
    return risen
