"""TensorRT-LLM's KV room, planned: the V1 manager of the PyTorch backend, 1.3.0rc29.

States of linear-attention layers stand in slots of their own, one for each sequence the engine may
run and one more that pads CUDA graphs. They are taken before the first block. Requests reserve
their whole length when they are admitted (GUARANTEED_NO_EVICT), so nothing is ever preempted.
Formulas: pyexecutor/resource_manager.py and _util.py.
"""

from kvroom.checkpoint.architecture import Attention
from kvroom.errors import InputError
from kvroom.room import DTYPE_BYTES, Ask, KvRoom, ceil_div, dtype_bytes

GIB = 1 << 30
BLOCK_TOKENS = 32
DEFAULT_BATCH = 2048
PADDING_SLOTS = 1
"""The dummy sequence that fills up a CUDA graph's batch keeps a state too."""

_DTYPES = {**DTYPE_BYTES, "fp8": 1}


def plan(ask: Ask) -> KvRoom:
    """The room for an ask; InputError where not one block is left."""
    per_token = sum(_token_bytes(a, ask) for a in _growing(ask))
    if not per_token:
        raise InputError("TensorRT-LLM: the model has no layers with a KV cache")
    batch = ask.settings.slots or DEFAULT_BATCH
    state = _state_bytes(ask)
    state_slots = batch + PADDING_SLOTS if state else 0
    fixed = state_slots * state
    tokens = max(0, ask.available - fixed) // per_token
    blocks = tokens // BLOCK_TOKENS
    if not blocks:
        raise InputError(
            f"TensorRT-LLM: {state_slots} state slots take {fixed / GIB:.2f} GiB of "
            f"{ask.available / GIB:.2f} GiB, and no block is left",
            "lower slots (max_batch_size)",
        )
    length = ask.settings.max_len or ask.architecture.max_len or 0
    whole = ceil_div(length, BLOCK_TOKENS)
    allocated = blocks * BLOCK_TOKENS * per_token + fixed
    return KvRoom(
        bytes_per_token=per_token,
        fixed_bytes=fixed,
        state_slots=state_slots,
        blocks=blocks,
        block_tokens=BLOCK_TOKENS,
        tokens=blocks * BLOCK_TOKENS,
        usable_blocks=blocks,
        slots=batch,
        max_len=length,
        max_concurrency=blocks / whole if whole else None,
        admission_blocks=lambda prompt, output: ceil_div(prompt + output, BLOCK_TOKENS),
        end_blocks=lambda prompt, output: ceil_div(prompt + output, BLOCK_TOKENS),
        reserves_end=True,
        expected_log={
            "Allocated (GiB)": round(allocated / GIB, 2),
            "max tokens in paged KV cache": (blocks + state_slots) * BLOCK_TOKENS,
            "KV cache bytes per token": per_token,
        },
        arithmetic=_arithmetic(ask, per_token, state, state_slots, blocks),
    )


def _growing(ask: Ask) -> list[Attention]:
    found = [a for a in ask.architecture.attention if a.kind != "cross"]
    if ask.speculative_tokens and ask.architecture.draft is not None:
        found.append(ask.architecture.draft)
    return found


def _cache_dtype(ask: Ask) -> str:
    dtype = (ask.settings.kv_cache_dtype or "auto").lower()
    return ask.architecture.kv_quant or "auto" if dtype == "auto" else dtype


def _token_bytes(attention: Attention, ask: Ask) -> int:
    """Bytes per token of all these layers on one rank; NVFP4 has a scale for 16 elements."""
    elements = attention.layers * attention.elements(ask.tensor_parallel)
    if _cache_dtype(ask) == "nvfp4":
        return ceil_div(elements, 2) + ceil_div(elements, 16)
    return elements * dtype_bytes(_cache_dtype(ask), _DTYPES)


def _state_bytes(ask: Ask) -> int:
    """One sequence's states over all layers, in the dtype the outermost configuration declares.

    A dtype declared only inside ``text_config`` is not seen: the founding case's checkpoint says
    float32 there, and its log shows two bytes an element.
    """
    architecture, rank = ask.architecture, ask.tensor_parallel
    conv = dtype_bytes(architecture.dtype)
    ssm = dtype_bytes(architecture.ssm_dtype_outside or architecture.dtype)
    return sum(s.layers * (s.conv(rank) * conv + s.ssm(rank) * ssm) for s in architecture.states)


def _arithmetic(
    ask: Ask, per_token: int, state: int, state_slots: int, blocks: int
) -> tuple[str, ...]:
    lines = [
        f"{a.layers} {a.kind} layers x {a.elements(ask.tensor_parallel)} elements in "
        f"{_cache_dtype(ask)} = {_token_bytes(a, ask):,} B a token"
        for a in _growing(ask)
    ]
    if state:
        lines.append(f"one state slot: {state:,} B over all layers")
        lines.append(
            f"{state_slots} slots (max_batch_size and {PADDING_SLOTS} to pad CUDA graphs) = "
            f"{state_slots * state:,} B, which is {state * state_slots // per_token:,} tokens"
        )
    left = ask.available - state_slots * state
    lines.append(f"{ask.available:,} B - {state_slots * state:,} B = {left:,} B for blocks")
    lines.append(f"{left:,} B // {per_token:,} B // {BLOCK_TOKENS} = {blocks} blocks")
    return tuple(lines)
