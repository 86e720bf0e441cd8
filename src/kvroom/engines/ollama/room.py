"""Ollama's KV room, planned: context times parallel, where parallel may be forced to one.

Source: Ollama fb3076099, server/sched.go (families without parallel requests), envconfig/config.go
and server/routes.go (defaults), llm/llama_server.go (truncation). Below it lies llama.cpp, whose
slots then have cells of their own.
"""

from kvroom.cells import cells_of, known_dtype, padded, state_bytes, token_bytes
from kvroom.room import Ask, Expected, KvRoom, Pages

SINGLE_SLOT = ("mllama", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe", "qwen3_6",
               "qwen3_6_moe", "qwen3_8", "qwen3_8_moe", "qwen3_next", "lfm2", "lfm2_moe",
               "nemotron_h", "qwen3vl", "qwen3vlmoe", "qwen35", "qwen35moe", "qwen3next", "lfm2moe",
               "nemotron_h_moe")  # fmt: skip
"""Families served one request at a time, whatever OLLAMA_NUM_PARALLEL says: by the names that
config.json and GGUF files use."""

CONTEXT_BY_CARD = ((47 << 30, 262_144), (23 << 30, 32_768), (0, 4_096))
"""Memory of all cards from which OLLAMA_CONTEXT_LENGTH defaults to so many tokens."""
DTYPES = ("f16", "q8_0", "q4_0")
MIB = 1 << 20


def plan(ask: Ask) -> KvRoom:
    """The room for an ask. Like llama.cpp, Ollama allocates what is asked."""
    dtype = known_dtype("Ollama", ask.settings.kv_cache_dtype, DTYPES)
    family = ask.architecture.family.removesuffix("_text")
    asked = ask.settings.slots or 1
    slots = 1 if family in SINGLE_SLOT else asked
    context = padded(_context(ask))
    growing = [a for a in ask.architecture.attention if a.kind != "cross"]
    caches = slots * sum(cells_of(a, context) * token_bytes(a, dtype) for a in growing)
    state = slots * state_bytes(ask.architecture)
    forced = f"; forced to 1 for {family}, {asked} were asked" if slots < asked else ""
    return KvRoom(
        bytes_per_token=round(sum(token_bytes(a, dtype) for a in growing)),
        pool_bytes=round(caches) + state,
        fixed_bytes=state,
        state_slots=slots if state else 0,
        blocks=slots,
        block_tokens=context,
        tokens=slots * context,
        pools=(Pages(limit="slots", usable=slots, admission=lambda p, o: 1, end=lambda p, o: 1),),
        slots=slots,
        max_len=context,
        max_concurrency=float(slots),
        reserves_end=True,
        too_long=f"the prompt is cut to {context // 2 + 2} tokens without a word, unless the "
        "request says truncate: false",
        expected=(
            Expected("context_tokens", "llama_context: n_ctx", slots * context),
            Expected("kv_bytes", "llama_kv_cache: size (MiB)", round(caches / MIB, 2), MIB),
        ),
        arithmetic=(
            f"num_ctx {context} x num_parallel {slots}{forced}",
            *(
                f"{a.layers} {a.kind} layers: {token_bytes(a, dtype):,.0f} B a token in {dtype}, "
                f"{cells_of(a, context)} cells"
                for a in growing
            ),
            f"{caches / MIB:.2f} MiB of cache and {state / MIB:.2f} MiB of state",
        ),
    )


def _context(ask: Ask) -> int:
    """Tokens of one request: as set, else by the memory of the cards; no more than the model's."""
    asked = ask.settings.max_len
    if asked is None:
        memory = (ask.card_bytes or 0) * ask.tensor_parallel
        asked = next(tokens for least, tokens in CONTEXT_BY_CARD if memory >= least)
    return min(asked, ask.architecture.max_len or asked)
