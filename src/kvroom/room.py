"""How much fits into the KV cache of one engine, as planned: a value that every adapter fills."""

from collections.abc import Callable, Mapping
from typing import Literal

import msgspec

from kvroom.checkpoint.architecture import Architecture
from kvroom.errors import InputError
from kvroom.matchup import Settings

DTYPE_BYTES = {
    "float32": 4,
    "fp32": 4,
    "f32": 4,
    "bfloat16": 2,
    "bf16": 2,
    "float16": 2,
    "fp16": 2,
    "half": 2,
    "f16": 2,
    "auto": 2,
}


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """One question to an adapter's arithmetic."""

    architecture: Architecture
    settings: Settings
    available: int
    """Bytes for the cache, states included, on one rank."""
    version: str = ""
    tensor_parallel: int = 1
    speculative_tokens: int = 0
    on_cpu: bool = False
    block_tokens: int | None = None
    """Tokens in a page, where the user chooses them."""


class KvRoom(msgspec.Struct, frozen=True, kw_only=True):
    """The planned pool of one engine with one set of settings."""

    bytes_per_token: int
    """Of all layers whose cache grows with every token, on one rank."""
    fixed_bytes: int
    """Taken before the first token: states in slots of their own."""
    state_slots: int
    """How many such states there are; 0 where states live in the pool, or there are none."""
    blocks: int
    """Pages of the pool, as the engine counts them."""
    block_tokens: int
    """Tokens of the growing layers in one page."""
    tokens: int
    """What the pool holds in tokens, as the engine counts."""
    usable_blocks: int
    """Pages that requests can get."""
    slots: int | None
    """The most requests the engine runs at once, whatever the room."""
    max_len: int
    max_concurrency: float | None
    """Requests of full length that fit."""
    admission_blocks: Callable[[int, int], int]
    """Prompt and output tokens -> pages that must be free for a request to start."""
    end_blocks: Callable[[int, int], int]
    """Prompt and output tokens -> pages it holds when it ends."""
    reserves_end: bool
    """Whether a request is admitted only if its end fits too, so nothing is ever preempted."""
    expected_log: Mapping[str, int | float | str]
    """What the engine's own log calls a figure -> the figure."""
    arithmetic: tuple[str, ...]
    """The plan unfolded, one line a step, each with its source."""


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """What a room does to one load."""

    admission_blocks: int
    blocks_per_request: int
    fit: int
    """Requests that run to their end side by side, by the pool alone."""
    running: int
    """Of the asked concurrency, how many run at once."""
    waiting: int
    binds: str
    """What keeps the others waiting: ``kv``, ``slots``, ``max_len``; ``nothing`` if none wait."""


Plan = Callable[[Ask], KvRoom]

ShareOf = Literal["total", "rest", "static"]


class Share(msgspec.Struct, frozen=True):
    """What an engine's memory fraction is a fraction of.

    ``total``: of the whole card, for everything. ``rest``: of what weights and activations leave,
    for the pool. ``static``: of the memory free at the start, for weights and pool.
    """

    of: ShareOf
    default: float


def fit(room: KvRoom, prompt: int, output: int, concurrency: int) -> Fit:
    """How many requests of these lengths run and wait when so many arrive together."""
    if prompt + output > room.max_len:
        return Fit(
            admission_blocks=0,
            blocks_per_request=0,
            fit=0,
            running=0,
            waiting=concurrency,
            binds="max_len",
        )
    start, end = room.admission_blocks(prompt, output), room.end_blocks(prompt, output)
    fits = room.usable_blocks // end if end else concurrency
    slots = room.slots if room.slots is not None else concurrency
    running = min(concurrency, fits, slots)
    return Fit(
        admission_blocks=start,
        blocks_per_request=end,
        fit=fits,
        running=running,
        waiting=concurrency - running,
        binds=_binds(running, concurrency, fits, slots),
    )


def _binds(running: int, concurrency: int, fits: int, slots: int) -> str:
    if running == concurrency:
        return "nothing"
    return "kv" if fits < slots else "slots"


def ceil_div(value: int, by: int) -> int:
    """Division rounded up."""
    return -(-value // by)


def dtype_bytes(dtype: str, known: Mapping[str, int] = DTYPE_BYTES) -> int:
    """Bytes of an element; InputError names the dtypes there are."""
    try:
        return known[dtype.lower()]
    except KeyError:
        raise InputError(
            f"unknown data type {dtype!r}", "known: " + ", ".join(sorted(known))
        ) from None
