"""Ollama's KV room, planned: context times parallel, where parallel may be forced to one.

Source: Ollama fb3076099, server/sched.go (families without parallel requests) and
envconfig/config.go (defaults). Below it lies llama.cpp, whose arithmetic is the same: each slot has
a part of its own.
"""

from kvroom.errors import InputError
from kvroom.room import Ask, KvRoom

SINGLE_SLOT = ("mllama", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe", "qwen3_6",
               "qwen3_6_moe", "qwen3_8", "qwen3_8_moe", "qwen3_next", "lfm2", "lfm2_moe",
               "nemotron_h")  # fmt: skip
"""Families that Ollama serves one request at a time, whatever OLLAMA_NUM_PARALLEL says."""

DEFAULT_CONTEXT = 4096
PAD = 256
BITS = {"f16": 16, "q8_0": 8.5, "q4_0": 4.5}
F32 = 4
MIB = 1 << 20


def plan(ask: Ask) -> KvRoom:
    """The room for an ask. Like llama.cpp, Ollama allocates what is asked."""
    dtype = (ask.settings.kv_cache_dtype or "f16").lower()
    if dtype not in BITS:
        raise InputError(f"Ollama has no cache type {dtype!r}", "known: " + ", ".join(BITS))
    family = ask.architecture.family.removesuffix("_text")
    asked = ask.settings.slots or 1
    slots = 1 if family in SINGLE_SLOT else asked
    context = -(-(ask.settings.max_len or DEFAULT_CONTEXT) // PAD) * PAD
    growing = [a for a in ask.architecture.attention if a.kind != "cross"]
    per_token = sum(a.layers * a.elements() * BITS[dtype] / 8 for a in growing)
    state = sum(s.layers * (s.conv() + s.ssm()) * F32 for s in ask.architecture.states)
    forced = f"; forced to 1 for {family}, {asked} were asked" if slots < asked else ""
    return KvRoom(
        bytes_per_token=round(per_token),
        fixed_bytes=slots * state,
        state_slots=slots if state else 0,
        blocks=slots,
        block_tokens=context,
        tokens=slots * context,
        usable_blocks=slots,
        slots=slots,
        max_len=context,
        max_concurrency=float(slots),
        admission_blocks=lambda prompt, output: 1,
        end_blocks=lambda prompt, output: 1,
        reserves_end=True,
        expected_log={
            "llama_context: n_ctx": slots * context,
            "llama_kv_cache: size (MiB)": round(slots * context * per_token / MIB, 2),
        },
        arithmetic=(
            f"num_ctx {context} x num_parallel {slots}{forced}",
            f"{per_token:,.0f} B a token in {dtype}: {slots * context * per_token / MIB:.2f} MiB",
        ),
    )
