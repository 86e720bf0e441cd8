"""The curve in words: where throughput stops growing, why, and what the arithmetic gives."""

from kvroom.explain.case import Case
from kvroom.explain.curve import GROWS, Curve, Point
from kvroom.units import show_seconds

SLOWER = 0.8
"""Of the factor by which requests grew, from which the step is said to have grown with them."""


def growth(case: Case, curve: Curve) -> str:
    """One or two sentences on the curve of a contender."""
    top, best = curve.top, curve.best
    if len(curve.points) == 1 and curve.together >= top.concurrency:
        return f"One level was measured: {_speed(top)}. A second one would show what it does."
    if curve.together < top.concurrency:
        return _batches(case, curve)
    if best is top:
        before = curve.points[-2]
        return (
            f"Throughput still grows at {top.concurrency}: {_speed(before)}, {_speed(top)}, and "
            "all run at once. Where it ends, only a higher level shows."
        )
    return _saturated(curve)


def _speed(point: Point) -> str:
    return f"{point.tokens_per_s:,.0f} tok/s at {point.concurrency}"


def _batches(case: Case, curve: Curve) -> str:
    """Some run while the others wait: the round is several batches."""
    top, together = curve.top, curve.together
    waiting = top.concurrency - together
    said = (
        f"At {top.concurrency}, {together} run ({curve.how}) and {waiting} "
        f"{'waits' if waiting == 1 else 'wait'} for them, so a round is "
        f"{-(-top.concurrency // together)} batches"
    )
    round_s, whole_s = curve.round_s(together, top.concurrency), curve.batch_s(top.concurrency)
    speed = curve.tokens_per_s(together)
    if round_s is None or whole_s is None or speed is None:
        return f"{said}: {show_seconds(top.seconds)} were measured, {_speed(top)}."
    tokens = top.concurrency * curve.output
    given = tokens / round_s.likely
    within = speed.low <= top.tokens_per_s <= speed.high
    said += (
        f": {_seconds(round_s.low, round_s.high)} by the lower levels, where one batch of "
        f"{top.concurrency} would take {_seconds(whole_s.low, whole_s.high)}. {tokens:,} tokens in "
        f"{show_seconds(round_s.likely)} are {given:,.0f} tok/s; {top.tokens_per_s:,.0f} were "
        f"measured"
    )
    return said + ("." if within else _not_so(case, top.tokens_per_s, speed.low))


def _not_so(case: Case, measured: float, least: float) -> str:
    if measured > least:
        return ", more than that: those that wait start as soon as one has ended."
    pushed = case.live.preempted if case.live else None
    if pushed:
        return f", less than that: {pushed:,.0f} times a request was pushed out and begun again."
    return ", less than that, which is not explained."


def _saturated(curve: Curve) -> str:
    """All run, and more of them gain nothing."""
    best, top = curve.best, curve.top
    said = (
        f"Throughput stops growing at {best.concurrency}: {_speed(best)}, {_speed(top)}, although "
        f"all {top.concurrency} run at once"
    )
    if best.tpot_ms is None or top.tpot_ms is None or not best.tpot_ms:
        return said + "."
    slower, more = top.tpot_ms / best.tpot_ms, top.concurrency / best.concurrency
    grown = f"{best.tpot_ms:,.1f} ms a token became {top.tpot_ms:,.1f}, {slower:.1f} times as long"
    if slower >= SLOWER * more / GROWS:
        return f"{said}. {grown}: the machine is busy, and a step takes as long as it has requests."
    return f"{said}. {grown} for {more:.1f} times the requests: the rest of the round is prompts."


def _seconds(low: float, high: float) -> str:
    return (
        show_seconds(low) if high <= low * 1.02 else f"{show_seconds(low)} to {show_seconds(high)}"
    )
