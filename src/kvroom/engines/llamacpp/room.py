"""llama.cpp's KV room, planned: cells per slot, states per slot, all allocated at the start.

Formulas: llama-context.cpp (padding, division among slots), llama-kv-cache.cpp and
llama-kv-cache-iswa.cpp (cells), llama-hparams.cpp (states), commit 0c1e57098.
"""

from kvroom.checkpoint.architecture import Attention
from kvroom.errors import InputError
from kvroom.room import Ask, KvRoom

PAD = 256
AUTO_SLOTS = 4
MICRO_BATCH = 512
MIB = 1 << 20
F32 = 4

BITS = {"f32": 32, "f16": 16, "bf16": 16, "q8_0": 8.5, "q5_1": 6, "q5_0": 5.5, "q4_1": 5,
        "q4_0": 4.5, "iq4_nl": 4.5}  # fmt: skip
"""Per element, scales included: a q8_0 block is 34 bytes for 32 elements."""


def plan(ask: Ask) -> KvRoom:
    """The room for an ask. ``available`` does not size it: llama.cpp allocates what is asked."""
    slots = ask.settings.slots or AUTO_SLOTS
    length = ask.settings.max_len or ask.architecture.max_len
    if length is None:
        raise InputError("the model does not say how long a request may be", "give --max-len")
    dtype = (ask.settings.kv_cache_dtype or "f16").lower()
    if dtype not in BITS:
        raise InputError(f"llama.cpp has no cache type {dtype!r}", "known: " + ", ".join(BITS))
    cells = _padded(length)
    growing = [a for a in ask.architecture.attention if a.kind != "cross"]
    per_token = sum(_token_bytes(a, dtype) for a in growing if a.kind in ("full", "mla"))
    caches = sum(slots * _cells(a, cells) * _token_bytes(a, dtype) for a in growing)
    state = sum(s.layers * (s.conv() + s.ssm()) * F32 for s in ask.architecture.states)
    return KvRoom(
        bytes_per_token=round(per_token),
        fixed_bytes=slots * state,
        state_slots=slots if state else 0,
        blocks=slots,
        block_tokens=cells,
        tokens=slots * cells,
        usable_blocks=slots,
        slots=slots,
        max_len=cells,
        max_concurrency=float(slots),
        admission_blocks=lambda prompt, output: 1,
        end_blocks=lambda prompt, output: 1,
        reserves_end=True,
        expected_log={
            "llama_context: n_ctx": slots * cells,
            "llama_context: n_ctx_seq": cells,
            "llama_kv_cache: size (MiB)": round(caches / MIB, 2),
            **(
                {"llama_memory_recurrent: size (MiB)": round(slots * state / MIB, 2)}
                if state
                else {}
            ),
        },
        arithmetic=(
            f"{length} tokens a slot, padded to {PAD}: {cells} cells",
            *(
                f"{a.layers} {a.kind} layers: {_token_bytes(a, dtype):,.0f} B a token in {dtype}, "
                f"{_cells(a, cells)} cells a slot"
                for a in growing
            ),
            f"{slots} slots: {caches / MIB:.2f} MiB of cache and {slots * state / MIB:.2f} MiB of "
            "state, allocated whether used or not",
        ),
    )


def _padded(count: int) -> int:
    return -(-count // PAD) * PAD


def _cells(attention: Attention, cells: int) -> int:
    """A window keeps itself and one micro-batch, padded."""
    if attention.kind != "sliding" or attention.window is None:
        return cells
    return _padded(min(cells, attention.window + MICRO_BATCH))


def _token_bytes(attention: Attention, dtype: str) -> float:
    """Bytes per token of all these layers."""
    return attention.layers * attention.elements() * BITS[dtype] / 8
