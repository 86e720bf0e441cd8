"""What a room does to a load: who runs, who waits, and what they wait for."""

import msgspec

from kvroom.room import KvRoom


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """What a room does to one load."""

    admission_blocks: int
    pool: str
    """The pool of which the fewest requests find enough."""
    blocks_per_request: int
    """Pages of that pool that a request holds when it ends."""
    fit: int
    """Requests that run to their end side by side, by the pools alone."""
    running: int
    """Of the asked concurrency, how many run at once, to the end."""
    waiting: int
    preempted: int
    """Of the waiting, how many are let in first and pushed out as the others grow."""
    binds: str
    """What keeps the others waiting: a pool's name, ``slots``, ``max_len``, ``batch_tokens``
    (no step holds the prompt); ``nothing`` if none wait."""


def fit(room: KvRoom, prompt: int, output: int, concurrency: int) -> Fit:
    """How many requests of these lengths run and wait when so many arrive together."""
    if prompt + output > room.max_len:
        return _refused("max_len", concurrency)
    if room.max_prompt is not None and prompt > room.max_prompt:
        return _refused("batch_tokens", concurrency)
    held = [(pool.holds(prompt, output), pool) for pool in room.pools]
    fits, tightest = min(
        ((number, pool) for number, pool in held if number is not None),
        key=lambda pair: pair[0],
        default=(concurrency, room.pools[0]),
    )
    running = min(concurrency, fits, room.slots)
    admitted = min(concurrency, room.slots, _admitted(room, prompt, output))
    return Fit(
        pool=tightest.limit,
        admission_blocks=tightest.admission(prompt, output),
        blocks_per_request=tightest.end(prompt, output),
        fit=fits,
        running=running,
        waiting=concurrency - running,
        preempted=max(0, admitted - running),
        binds=_binds(running, concurrency, fits, room.slots, tightest.limit),
    )


def _refused(why: str, concurrency: int) -> Fit:
    return Fit(
        pool="",
        admission_blocks=0,
        blocks_per_request=0,
        fit=0,
        running=0,
        waiting=concurrency,
        preempted=0,
        binds=why,
    )


def _admitted(room: KvRoom, prompt: int, output: int) -> int:
    """How many start together before any of them has grown."""
    starts = ((pool.admission(prompt, output), pool.usable) for pool in room.pools)
    return min((usable // pages for pages, usable in starts if pages), default=room.slots)


def _binds(running: int, concurrency: int, fits: int, slots: int, limit: str) -> str:
    if running == concurrency:
        return "nothing"
    return limit if fits < slots else "slots"
