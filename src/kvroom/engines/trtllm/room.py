"""TensorRT-LLM's KV room, planned: the V1 manager of the PyTorch backend, 1.3.0rc29.

States of linear-attention layers stand in slots of their own, one for each sequence the engine may
run and one more that pads CUDA graphs. They are taken before the first block. Under the default
policy, GUARANTEED_NO_EVICT, a request reserves its whole length when it is admitted; under
MAX_UTILIZATION its prompt alone, and is paused when there is no more room. Formulas:
pyexecutor/resource_manager.py, _util.py and mamba_cache_manager.py, kvCacheManager.cpp.
"""

from collections import defaultdict
from collections.abc import Iterator

from kvroom.checkpoint.architecture import Attention
from kvroom.errors import InputError
from kvroom.room import (
    DTYPE_BYTES,
    Ask,
    Expected,
    KvRoom,
    Pages,
    Share,
    ceil_div,
    dtype_bytes,
    release,
)

GIB = 1 << 30
BLOCK_TOKENS = 32
DEFAULT_BATCH = 2048
DEFAULT_BATCH_TOKENS = 8192
PADDING_SLOTS = 1
"""The dummy sequence that fills up a CUDA graph's batch keeps a state too."""
NEWEST = (1, 3, 0)
FLOORS_SINCE = (1, 2, 0)
"""From here on a partial block is left out; before, one more was taken."""

_DTYPES = {**DTYPE_BYTES, "fp8": 1}


def share(ask: Ask) -> Share:
    """``free_gpu_memory_fraction``: of what weights, activations and graphs leave."""
    tokens = ask.settings.batch_tokens or DEFAULT_BATCH_TOKENS
    requests = min(ask.settings.slots or DEFAULT_BATCH, tokens)
    return Share("rest", ask.settings.memory_fraction or 0.9, tokens, requests, (0.5, 4.5))


def plan(ask: Ask) -> KvRoom:
    """The room for an ask; InputError where not one block is left."""
    per_token = sum(_token_bytes(a, ask) for a in ask.growing)
    if not per_token:
        raise InputError("TensorRT-LLM: the model has no layers with a KV cache")
    page = ask.block_tokens or BLOCK_TOKENS
    batch = ask.settings.slots or DEFAULT_BATCH
    state = _state_bytes(ask)
    state_slots = batch + PADDING_SLOTS if state else 0
    fixed = state_slots * state
    length = ask.length()
    windows = _windows(ask, length)
    blocks = {
        window: _blocks((ask.available - fixed) // len(windows), size * page, ask.version)
        for window, size in windows.items()
    }
    if min(blocks.values()) < 1:
        raise InputError(
            f"TensorRT-LLM: {state_slots} state slots take {fixed / GIB:.2f} GiB of "
            f"{ask.available / GIB:.2f} GiB, and no block is left",
            "lower slots (max_batch_size)",
        )
    main = max(blocks)
    pool_bytes = sum(n * page * windows[w] for w, n in blocks.items()) + fixed
    pools = (
        _pool(ask, "kv", main, blocks[main], page),
        *(_pool(ask, "window", w, n, page) for w, n in blocks.items() if w != main),
    )
    return KvRoom(
        bytes_per_token=per_token,
        pool_bytes=pool_bytes,
        fixed_bytes=fixed,
        state_slots=state_slots,
        blocks=blocks[main],
        block_tokens=page,
        tokens=blocks[main] * page,
        pools=pools,
        slots=batch,
        max_len=length,
        max_prompt=ask.settings.batch_tokens or DEFAULT_BATCH_TOKENS,
        max_concurrency=min(pool.usable / pool.end(length, 0) for pool in pools),
        reserves_end=not ask.overcommit,
        too_long="it is refused with an error",
        expected=_expected(ask, pool_bytes, blocks, windows, (state, state_slots)),
        arithmetic=(*_layers(ask), *_division(ask, state, state_slots, windows, page)),
    )


def _windows(ask: Ask, length: int) -> dict[int, int]:
    """Window -> bytes per token of the layers that share it; equal shares of the memory each.

    Layers keep their whole length unless ``max_attention_window`` says otherwise.
    """
    sizes: defaultdict[int, int] = defaultdict(int)
    for attention in ask.growing:
        window = attention.window if ask.windowed and attention.kind == "sliding" else None
        sizes[min(window or length, length)] += _token_bytes(attention, ask)
    return dict(sizes)


def _blocks(available: int, size: int, version: str) -> int:
    if release(version, NEWEST) < FLOORS_SINCE:
        return ceil_div(max(0, available), size)
    return max(0, available) // size


def _pool(ask: Ask, limit: str, window: int, blocks: int, page: int) -> Pages:
    """Blocks of the layers with this window."""

    def pages(tokens: int) -> int:
        return ceil_div(min(tokens, window), page)

    return Pages(
        limit=limit,
        usable=blocks,
        admission=lambda p, o: pages(p if ask.overcommit else p + o),
        end=lambda p, o: pages(p + o),
    )


def _cache_dtype(ask: Ask) -> str:
    dtype = (ask.settings.kv_cache_dtype or "auto").lower()
    return ask.architecture.kv_quant or ask.architecture.dtype if dtype == "auto" else dtype


def _token_bytes(attention: Attention, ask: Ask) -> int:
    """Bytes per token of all these layers on one rank; NVFP4 has a scale for 16 elements."""
    elements = attention.layers * attention.elements(ask.tensor_parallel)
    if attention.own_dtype is not None:
        return elements * dtype_bytes(attention.own_dtype)
    if _cache_dtype(ask) == "nvfp4":
        return ceil_div(elements, 2) + ceil_div(elements, 16)
    return elements * dtype_bytes(_cache_dtype(ask), _DTYPES)


def _state_bytes(ask: Ask) -> int:
    """One sequence's states, in the dtype the outermost configuration declares.

    A dtype declared only inside ``text_config`` is not seen: the founding case's checkpoint says
    float32 there, and its log shows two bytes an element.
    """
    return ask.state_bytes(ask.architecture.ssm_dtype_outside or ask.architecture.dtype)


def temporary_blocks(ask: Ask, length: int, page: int) -> int:
    """Blocks of the pool that stands while activations are measured, before the final one.

    Prompts fill one step of ``max_num_tokens``, each with room for one token more.
    """
    budget, batch = (
        ask.settings.batch_tokens or DEFAULT_BATCH_TOKENS,
        ask.settings.slots or DEFAULT_BATCH,
    )
    longest = max(1, min(budget, length - 1))
    prompts = [longest] * (budget // longest) + [budget % longest]
    filled = sum(ceil_div(prompt + 1, page) for prompt in prompts if prompt)
    return max(filled, ceil_div(length + 1, page) + batch - 1, batch)


def _expected(
    ask: Ask,
    pool_bytes: int,
    blocks: dict[int, int],
    windows: dict[int, int],
    states: tuple[int, int],
) -> tuple[Expected, ...]:
    """``max tokens in paged KV cache`` counts every state slot as a block, so it overstates."""
    (state, state_slots), length = states, max(windows)
    page = ask.block_tokens or BLOCK_TOKENS
    dry, dry_slots = temporary_blocks(ask, length, page), state_slots - PADDING_SLOTS
    dry_bytes = dry * page * sum(windows.values()) + max(0, dry_slots) * state
    return (
        Expected("kv_bytes", "Allocated (GiB)", round(pool_bytes / GIB, 2), GIB),
        Expected(
            "kv_allocated_tokens",
            "max tokens in paged KV cache",
            (sum(blocks.values()) + state_slots) * page,
        ),
        Expected("kv_bytes_per_token", "kv size per token (bytes)", sum(windows.values())),
        Expected("kv_fixed_bytes", "fixed cost (bytes)", state_slots * state),
        Expected("", "Allocated for the dry run (GiB)", round(dry_bytes / GIB, 2)),
    )


def _layers(ask: Ask) -> Iterator[str]:
    for a in ask.growing:
        yield (
            f"{a.layers} {a.kind} layers x {a.elements(ask.tensor_parallel)} elements in "
            f"{_cache_dtype(ask)} = {_token_bytes(a, ask):,} B a token"
        )
        if a.kind == "sliding" and not ask.windowed:
            yield "  kept at full length: max_attention_window is not set"


def _division(
    ask: Ask, state: int, state_slots: int, windows: dict[int, int], page: int
) -> Iterator[str]:
    if state:
        yield f"one state slot: {state:,} B over all layers"
        tokens = state * state_slots // sum(windows.values())
        yield (
            f"{state_slots} slots (max_batch_size and {PADDING_SLOTS} to pad CUDA graphs) = "
            f"{state_slots * state:,} B, as much as {tokens:,} tokens"
        )
    left = ask.available - state_slots * state
    yield f"{ask.available:,} B - {state_slots * state:,} B = {left:,} B for blocks"
    for window, size in windows.items():
        part = left // len(windows)
        yield (
            f"window {window}: {part:,} B // {size:,} B // {page} = "
            f"{_blocks(part, size * page, ask.version)} blocks"
        )
