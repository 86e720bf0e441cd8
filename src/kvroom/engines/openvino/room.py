"""OpenVINO GenAI's KV room, planned: blocks of 32 tokens shared by all requests, on CPU."""

from kvroom.errors import InputError
from kvroom.room import Ask, Expected, KvRoom, Pages, ceil_div

BLOCK_TOKENS = 32
DEFAULT_SLOTS = 256
U8_EXTRA = 12
"""Bytes of scale and zero point for a head's key, and again for its value, of one token with u8.
Seen with heads of 64: SmolLM2-135M's block is 437,760 B = 30 layers x 32 x 3 heads x 2 x (64 + 12).
"""


def plan(ask: Ask) -> KvRoom:
    """The room for an ask; InputError where not one block fits."""
    dtype = (ask.settings.kv_cache_dtype or "u8").lower()
    growing = [a for a in ask.architecture.attention if a.kind != "cross"]
    per_token = sum(
        a.layers * _token_bytes(a.kv_heads, a.key_dim, a.value_dim, dtype) for a in growing
    )
    if not ask.available:
        raise InputError("OpenVINO sizes its pool by what it is given", "give --available")
    blocks = ask.available // (per_token * BLOCK_TOKENS) if per_token else 0
    if not blocks:
        raise InputError(
            f"OpenVINO: {ask.available:,} B hold not one block of {BLOCK_TOKENS} tokens"
        )
    length = ask.settings.max_len or ask.architecture.max_len or blocks * BLOCK_TOKENS
    pool = blocks * BLOCK_TOKENS
    length = ask.settings.max_len or ask.architecture.max_len or pool
    return KvRoom(
        bytes_per_token=per_token,
        pool_bytes=pool * per_token,
        blocks=blocks,
        block_tokens=BLOCK_TOKENS,
        tokens=pool,
        pools=(
            Pages(
                limit="kv",
                usable=blocks,
                admission=lambda prompt, output: ceil_div(prompt, BLOCK_TOKENS),
                end=lambda prompt, output: ceil_div(prompt + output, BLOCK_TOKENS),
            ),
        ),
        slots=ask.settings.slots or DEFAULT_SLOTS,
        max_len=min(length, pool),
        max_concurrency=blocks / ceil_div(length, BLOCK_TOKENS),
        reserves_end=False,
        too_long="it is given up when it has filled the pool alone",
        expected=(
            Expected("kv_blocks", "KV cache: blocks", blocks),
            Expected("kv_tokens", "KV cache: tokens", pool),
            Expected("kv_bytes", "KV cache: bytes", pool * per_token),
        ),
        arithmetic=(
            f"{per_token:,} B a token in {dtype}, {per_token * BLOCK_TOKENS:,} B a block of "
            f"{BLOCK_TOKENS}",
            f"{ask.available:,} B // {per_token * BLOCK_TOKENS:,} B = {blocks} blocks",
        ),
    )


def _token_bytes(heads: int, key: int, value: int, dtype: str) -> int:
    if dtype == "u8":
        return heads * (key + value + 2 * U8_EXTRA)
    sizes = {"f32": 4, "bf16": 2, "f16": 2}
    if dtype not in sizes:
        raise InputError(f"OpenVINO has no cache precision {dtype!r}", "known: u8, f16, bf16, f32")
    return heads * (key + value) * sizes[dtype]
