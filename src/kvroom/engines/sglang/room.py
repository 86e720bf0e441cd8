"""SGLang's KV room, planned: a pool of tokens, and beside it slots for recurrent states.

States are sized first, by precedence: a given number of slots; one for each request where the
radix cache is off and the number of requests is given; else a share of what there is. With the
radix cache a running request takes several slots. Layers with a window have a pool of their own.
Formulas: SGLang 0.5.23, kv_cache_configurator.py, schedule_policy.py, arg_groups/memory_hook.py.
"""

import msgspec

from kvroom.checkpoint.architecture import Attention
from kvroom.errors import InputError
from kvroom.room import DTYPE_BYTES, Ask, Expected, KvRoom, Pages, Share, ceil_div, dtype_bytes

GIB, MIB = 1 << 30, 1 << 20
STATE_RATIO = 0.9
"""``--mamba-full-memory-ratio``: state to cache."""
WINDOW_RATIO = 0.8
"""``--swa-full-tokens-ratio``: tokens of the window pool to tokens of the full one."""
SLOTS_PER_REQUEST = 5
"""With the radix cache, an extra buffer and the overlap scheduler; 1 without the radix cache."""
PADDING_SLOTS = 1
CLIP_OUTPUT = 4096
"""More output than this is not reserved at admission."""
AUTO_REQUESTS = (2048, 4096)

_DTYPES = {**DTYPE_BYTES, "fp8_e5m2": 1, "fp8_e4m3": 1, "fp8": 1}


class Tier(msgspec.Struct, frozen=True):
    """Defaults by the memory of a card."""

    below_gib: float
    chunk: int
    graph_batch: int


TIERS = (
    Tier(20, 2048, 8),
    Tier(35, 4096, 48),
    Tier(60, 4096, 32),
    Tier(160, 8192, 256),
    Tier(float("inf"), 16_384, 512),
)


def share(ask: Ask) -> Share:
    """The static fraction: as set, or what a reserve for chunks and graphs leaves of the card."""
    settings, card_bytes = ask.settings, ask.card_bytes or 0
    tier = next(tier for tier in TIERS if card_bytes < tier.below_gib * GIB)
    chunk = settings.batch_tokens or tier.chunk
    graphs = min(tier.graph_batch, settings.slots or tier.graph_batch)
    reserve = (512 + 1.5 * max(chunk, 2048) + 1024 / 8 + 2 * graphs) * MIB
    if card_bytes > 60 * GIB:
        reserve = max(reserve, 10_240 * MIB)
    fraction = settings.memory_fraction or round(1 - reserve / max(card_bytes, reserve), 3)
    return Share("static", fraction, chunk, graphs, (0.1, 2.5))


def plan(ask: Ask) -> KvRoom:
    """The room for an ask; InputError where no token fits."""
    full, window = _token_bytes(ask, sliding=False), _token_bytes(ask, sliding=True)
    state = ask.state_bytes(ask.architecture.ssm_dtype or "float32")
    radix = ask.settings.prefix_cache is not False
    state_slots = _state_slots(ask, state, radix)
    held = (state_slots + PADDING_SLOTS) * state if state_slots else 0
    page = ask.block_tokens or 1
    per_token = full + WINDOW_RATIO * window if full else window
    tokens = int((ask.available - held) // per_token) // page * page if per_token else 0
    if tokens <= 0:
        raise InputError(
            f"SGLang: states take {held / GIB:.2f} GiB of {ask.available / GIB:.2f} GiB, and no "
            "token fits",
            "lower slots (--max-running-requests) or the number of state slots",
        )
    per_request = SLOTS_PER_REQUEST if radix else 1
    length = min(ask.settings.max_len or ask.architecture.max_len or tokens, tokens) - 1
    slots = _slots(ask, tokens, length + 1, state_slots // per_request if state else None)
    return KvRoom(
        bytes_per_token=full + window,
        pool_bytes=round(tokens * per_token) + held,
        fixed_bytes=held,
        state_slots=state_slots,
        blocks=tokens // page,
        block_tokens=page,
        tokens=tokens,
        pools=_pools(ask, tokens, page, (state_slots, per_request)),
        slots=slots,
        max_len=length,
        max_concurrency=tokens / (length + 1),
        reserves_end=True,
        too_long=f"the answer is cut without a word; an input over {length - 5} tokens gets "
        "HTTP 400",
        expected=_expected(tokens, slots, state_slots),
        arithmetic=_arithmetic(ask, (full, window, state), held, tokens, state_slots, per_request),
    )


def _pools(ask: Ask, tokens: int, page: int, state: tuple[int, int]) -> tuple[Pages, ...]:
    """Tokens, then states, then windows: a request must find room in each.

    Requests of forced length reserve their output up to a limit when they are admitted.
    """
    pools = [
        Pages(
            limit="kv",
            usable=tokens // page,
            admission=lambda p, o: ceil_div(p + min(o, CLIP_OUTPUT), page),
            end=lambda p, o: ceil_div(p + o, page),
        )
    ]
    state_slots, per_request = state
    if state_slots:
        pools.append(
            Pages(
                limit="state",
                usable=state_slots,
                admission=lambda p, o: per_request,
                end=lambda p, o: per_request,
            )
        )
    windows = [a.window for a in ask.growing if a.kind == "sliding" and a.window]
    if windows and any(a.kind != "sliding" for a in ask.growing):
        widest = max(windows)
        pools.append(
            Pages(
                limit="window",
                usable=int(tokens * WINDOW_RATIO),
                admission=lambda p, o: min(p, widest),
                end=lambda p, o: min(p + o, widest),
            )
        )
    return tuple(pools)


def _slots(ask: Ask, tokens: int, length: int, by_state: int | None) -> int:
    """Requests at once: as asked or by the pool, capped by the pool and by the states."""
    low, high = AUTO_REQUESTS
    asked = ask.settings.slots or max(low, min(high, int(tokens / length * 512)))
    return min(n for n in (asked, by_state, max(1, tokens // 2)) if n is not None)


def _token_bytes(ask: Ask, *, sliding: bool) -> int:
    """Bytes per token and rank of all layers with a window, or of all others."""
    dtype = ask.settings.kv_cache_dtype or "auto"
    size = dtype_bytes(dtype if dtype != "auto" else ask.architecture.dtype, _DTYPES)

    def of(attention: Attention) -> int:
        elements = attention.layers * attention.elements(ask.tensor_parallel)
        return elements * (dtype_bytes(attention.own_dtype) if attention.own_dtype else size)

    return sum(of(a) for a in ask.growing if (a.kind == "sliding") == sliding)


def _state_slots(ask: Ask, state: int, radix: bool) -> int:
    if not state:
        return 0
    if ask.state_slots is not None:
        return ask.state_slots
    if not radix and ask.settings.slots is not None:
        return ask.settings.slots
    budget = ask.available * STATE_RATIO / (1 + STATE_RATIO)
    drafts = ask.speculative_tokens
    each = state * (1 + drafts / (SLOTS_PER_REQUEST if radix else 1))
    return max(0, int((budget - state * (1 + drafts)) // each))


def _expected(tokens: int, slots: int, state_slots: int) -> tuple[Expected, ...]:
    figures = [
        Expected("kv_tokens", "max_total_num_tokens", tokens),
        Expected("slots", "max_running_requests", slots),
    ]
    if state_slots:
        figures.append(Expected("state_slots", "max_mamba_cache_size", state_slots))
    return tuple(figures)


def _arithmetic(
    ask: Ask,
    sizes: tuple[int, int, int],
    held: int,
    tokens: int,
    state_slots: int,
    per_request: int,
) -> tuple[str, ...]:
    full, window, state = sizes
    lines = [f"{full:,} B a token"]
    if window:
        lines.append(
            f"layers with a window: {window:,} B a token, in a pool of {WINDOW_RATIO} times as "
            "many tokens"
        )
    if state:
        lines.append(
            f"{state:,} B a state slot; {state_slots} slots and {PADDING_SLOTS} to pad: {held:,} B"
        )
        lines.append(
            f"{state_slots} slots // {per_request} a request = {state_slots // per_request}"
        )
    lines.append(f"({ask.available:,} B - {held:,} B) hold {tokens:,} tokens")
    return tuple(lines)
