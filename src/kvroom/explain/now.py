"""What one moment of a living engine means, in a sentence."""

import msgspec

from kvroom.explain.case import Case
from kvroom.explain.course import NEARLY_FULL

FEW = 0.5


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """An engine now; None where it does not tell."""

    at_s: float
    """Since the watch began."""
    running: float
    waiting: float
    kv_cache_usage: float | None = None
    preempted: float | None = None
    """Since the engine was started."""
    tokens_per_s: float | None = None
    """Output tokens since the moment before."""
    said: str = ""


def now(moment: Look, before: Look | None, case: Case) -> str:
    """Why requests wait or are pushed out; empty while neither happens."""
    pushed = (moment.preempted or 0) - ((before.preempted or 0) if before else 0)
    if before is not None and pushed > 0:
        return (
            f"{pushed:.0f} {'request was' if pushed == 1 else 'requests were'} pushed out: those "
            f"that run have outgrown the pool{_used(moment)}"
        )
    if not moment.waiting:
        return ""
    waiting = f"{moment.waiting:.0f} request{'' if moment.waiting == 1 else 's'} waiting"
    usage, slots = moment.kv_cache_usage, case.slots
    if not moment.running:
        stuck = before is not None and before.waiting and not before.running
        return (
            f"{waiting} while none runs: the first needs more than the pool"
            if stuck
            else f"{waiting}, none runs yet"
        )
    if slots is not None and moment.running >= slots:
        return f"{waiting}: {moment.running:.0f} run, as many as there are slots"
    if usage is not None and usage >= NEARLY_FULL:
        return f"{waiting}: the pool is {usage:.1%} full; {moment.running:.0f} of these fit"
    if usage is not None and usage < FEW:
        return (
            f"{waiting} while the pool is {usage:.0%} full: for a step with room for their "
            "prompts, or for a slot"
        )
    return f"{waiting}, {moment.running:.0f} run{_used(moment)}"


def _used(moment: Look) -> str:
    return "" if moment.kv_cache_usage is None else f", which is {moment.kv_cache_usage:.1%} full"
