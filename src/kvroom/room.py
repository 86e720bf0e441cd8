"""How much fits into the KV cache of one engine, as planned: a value that every adapter fills."""

import re
from collections.abc import Callable, Mapping
from typing import Literal

import msgspec

from kvroom.checkpoint.architecture import Architecture, Attention
from kvroom.errors import InputError
from kvroom.settings import Settings

DTYPE_BYTES = {
    "uint8": 1,
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
    card_bytes: int | None = None
    """Memory of one card, where it is known; engines choose defaults by it."""
    card: str = ""
    """Its name, where it is known."""
    version: str = ""
    on_cpu: bool = False
    block_tokens: int | None = None
    """Tokens in a page, where the user chooses them."""
    state_slots: int | None = None
    """Slots for recurrent states, where the user chooses them (SGLang)."""
    overcommit: bool = False
    """Admit requests whose end may not fit (TensorRT-LLM's MAX_UTILIZATION)."""
    windowed: bool = False
    """Let layers with a window keep only that (TensorRT-LLM's max_attention_window)."""

    @property
    def tensor_parallel(self) -> int:
        """Cards that share each layer."""
        return self.settings.tensor_parallel or 1

    @property
    def speculative_tokens(self) -> int:
        """Tokens guessed ahead, 0 without speculation."""
        return self.settings.speculative.tokens if self.settings.speculative else 0

    @property
    def growing(self) -> tuple[Attention, ...]:
        """Attention with a cache for every token, the draft head's included when it is used."""
        found = tuple(a for a in self.architecture.attention if a.kind != "cross")
        draft = self.architecture.draft
        return (*found, draft) if self.speculative_tokens and draft is not None else found

    def length(self) -> int:
        """The most tokens of one request; InputError where neither user nor model says."""
        length = self.settings.max_len or self.architecture.max_len
        if length is None:
            raise InputError("the model does not say how long a request may be", "give --max-len")
        return length

    def state_bytes(self, ssm_dtype: str) -> int:
        """One sequence's states over all layers on one rank, with recurrent ones of this dtype."""
        rank = self.tensor_parallel
        conv, ssm = dtype_bytes(self.architecture.dtype), dtype_bytes(ssm_dtype)
        states = self.architecture.states
        return sum(s.layers * (s.conv(rank) * conv + s.ssm(rank) * ssm) for s in states)


class Pages(msgspec.Struct, frozen=True, kw_only=True):
    """One pool that requests draw from, and what a request takes of it."""

    limit: str
    """Its name where it is what binds: ``kv``, ``state``, ``window``."""
    usable: int
    """Pages that requests can get."""
    admission: Callable[[int, int], int]
    """Prompt and output tokens -> pages that must be free for a request to start."""
    end: Callable[[int, int], int]
    """Prompt and output tokens -> pages it holds when it ends."""

    def holds(self, prompt: int, output: int) -> int | None:
        """Requests that run to their end side by side; None if they take nothing of this pool."""
        end = self.end(prompt, output)
        return self.usable // end if end else None


class Expected(msgspec.Struct, frozen=True):
    """A figure that the engine's own log will print."""

    fact: str
    """As the adapter's ``read_log`` names it; empty where it does not read that line."""
    wording: str
    """As the engine calls it, with the unit it prints."""
    value: int | float
    """In that unit; a fraction is rounded as the engine rounds it."""
    scale: int = 1
    """What the unit is in the fact's own: 2**30 where GiB are printed and bytes are kept."""

    def agrees(self, logged: float) -> bool:
        """Whether a logged fact is this figure, within what printing rounds away."""
        slack = 0.0051 * self.scale if isinstance(self.value, float) else 0
        return abs(self.value * self.scale - logged) <= slack


class KvRoom(msgspec.Struct, frozen=True, kw_only=True):
    """The planned pools of one engine with one set of settings."""

    bytes_per_token: int
    """Of all layers whose cache grows with every token, on one rank."""
    pool_bytes: int
    """What pages and states take together, on one rank."""
    fixed_bytes: int = 0
    """Of them, taken before the first token: states in slots of their own."""
    state_slots: int = 0
    """How many such states there are; 0 where states live in the pool, or there are none."""
    blocks: int
    """Pages of the main pool, as the engine counts them."""
    block_tokens: int
    """Tokens of the growing layers in one page."""
    tokens: int
    """What the pool holds in tokens, as the engine counts."""
    pools: tuple[Pages, ...]
    """The main pool first."""
    slots: int
    """The most requests the engine runs at once, whatever the room."""
    max_len: int
    max_prompt: int | None = None
    """The longest prompt, where steps of the engine must hold a whole one."""
    max_concurrency: float | None
    """Requests of full length that fit."""
    reserves_end: bool
    """Whether a request is admitted only if its end fits too, so nothing is ever preempted."""
    too_long: str
    """What the engine does with a request that is longer than ``max_len``."""
    expected: tuple[Expected, ...]
    arithmetic: tuple[str, ...]
    """The plan unfolded, one line a step, each with its source."""

    @property
    def expected_log(self) -> dict[str, int | float]:
        """What the engine's own log calls a figure -> the figure."""
        return {one.wording: one.value for one in self.expected}


Plan = Callable[[Ask], KvRoom]

ShareOf = Literal["total", "rest", "static"]


class Share(msgspec.Struct, frozen=True):
    """What an engine's memory fraction is a fraction of.

    ``total``: of the whole card, for everything. ``rest``: of what weights and activations leave,
    for the pool. ``static``: of the memory free at the start, for weights and pool. Its largest
    step sizes the activations.
    """

    of: ShareOf
    fraction: float
    step_tokens: int
    step_requests: int
    workspace_gib: tuple[float, float]
    """What its kernels keep for themselves, at least and at most."""
    graphs: bool = True
    """Whether it captures CUDA graphs."""


ShareFor = Callable[[Ask], Share]
"""What an engine takes of a card for an ask."""


Version = tuple[int, int, int]


def release(text: str, newest: Version) -> Version:
    """The first three numbers of a version, the newest where none is given; InputError if it is
    no version."""
    if not text:
        return newest
    numbers = re.match(r"v?(\d+)(?:\.(\d+))?(?:\.(\d+))?", text)
    if numbers is None:
        raise InputError(f"{text[:80]!r} is not a version", "such as 0.31.0")
    major, minor, patch = (int(number or 0) for number in numbers.groups())
    return major, minor, patch


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
