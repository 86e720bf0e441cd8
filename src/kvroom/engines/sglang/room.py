"""SGLang's KV room, planned: a pool of tokens, and beside it slots for recurrent states.

States are sized first, by precedence: a given number of slots; one for each request where the
radix cache is off and the number of requests is given; else a share of what there is. With the
radix cache a running request takes several slots. Formulas: SGLang 0.5.23,
kv_cache_configurator.py.
"""

from kvroom.errors import InputError
from kvroom.room import DTYPE_BYTES, Ask, KvRoom, dtype_bytes

STATE_RATIO = 0.9
"""``--mamba-full-memory-ratio``: state to cache."""
SLOTS_PER_REQUEST = 5
"""With the radix cache, an extra buffer and the overlap scheduler; 1 without the radix cache."""
PADDING_SLOTS = 1
CLIP_OUTPUT = 4096
"""More output than this is not reserved at admission."""

_DTYPES = {**DTYPE_BYTES, "fp8_e5m2": 1, "fp8_e4m3": 1, "fp8": 1}


def plan(ask: Ask) -> KvRoom:
    """The room for an ask; InputError where no token fits."""
    dtype = ask.settings.kv_cache_dtype or "auto"
    growing = [a for a in ask.architecture.attention if a.kind in ("full", "mla")]
    per_token = sum(
        a.layers * a.elements(ask.tensor_parallel) * dtype_bytes(dtype, _DTYPES) for a in growing
    )
    state = _state_bytes(ask)
    radix = ask.settings.prefix_cache is not False
    state_slots = _state_slots(ask, state, radix)
    held = (state_slots + PADDING_SLOTS) * state if state_slots else 0
    tokens = (ask.available - held) // per_token if per_token else 0
    if tokens <= 0:
        raise InputError(
            f"SGLang: states take {held:,} B of {ask.available:,} B, and no token fits",
            "lower slots (--max-running-requests) or --max-mamba-cache-size",
        )
    per_request = SLOTS_PER_REQUEST if radix else 1
    by_state = state_slots // per_request if state else None
    slots = [n for n in (ask.settings.slots, by_state, tokens // 2) if n is not None]
    length = ask.settings.max_len or ask.architecture.max_len or tokens
    return KvRoom(
        bytes_per_token=per_token,
        fixed_bytes=held,
        state_slots=state_slots,
        blocks=tokens,
        block_tokens=1,
        tokens=tokens,
        usable_blocks=tokens,
        slots=min(slots),
        max_len=min(length, tokens - 1),
        max_concurrency=tokens / length,
        admission_blocks=lambda prompt, output: prompt + min(output, CLIP_OUTPUT),
        end_blocks=lambda prompt, output: prompt + output,
        reserves_end=False,
        expected_log={"max_total_num_tokens": tokens, "max_running_requests": min(slots)},
        arithmetic=(
            f"{per_token:,} B a token; {state:,} B a state slot, {state_slots} slots and "
            f"{PADDING_SLOTS} to pad: {held:,} B",
            f"({ask.available:,} B - {held:,} B) // {per_token:,} B = {tokens:,} tokens",
            *((f"{state_slots} slots // {per_request} a request = {by_state}",) if state else ()),
        ),
    )


def _state_slots(ask: Ask, state: int, radix: bool) -> int:
    if not state:
        return 0
    if not radix and ask.settings.slots is not None:
        return ask.settings.slots
    budget = ask.available * STATE_RATIO / (1 + STATE_RATIO)
    return max(0, int((budget - state) // state))


def _state_bytes(ask: Ask) -> int:
    """One slot over all layers; the declared dtype of the recurrent state, float32 without one."""
    architecture, rank = ask.architecture, ask.tensor_parallel
    conv = dtype_bytes(architecture.dtype)
    ssm = dtype_bytes(architecture.ssm_dtype or "float32")
    return sum(s.layers * (s.conv(rank) * conv + s.ssm(rank) * ssm) for s in architecture.states)
