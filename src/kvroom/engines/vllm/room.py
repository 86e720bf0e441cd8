"""vLLM's KV room, planned: from the architecture to the figures of its own log.

Block size: platforms/interface.py (_align_hybrid_block_size). Bytes per element:
v1/kv_cache_interface.py. State shapes and dtypes: model_executor/layers/mamba/mamba_utils.py and
models/config.py. All of vLLM 0.31.0; what other releases did is in defaults.py.
"""

from collections import Counter

from kvroom.checkpoint.architecture import Architecture, Attention, State
from kvroom.engines.vllm import defaults, start
from kvroom.engines.vllm.defaults import since
from kvroom.engines.vllm.pages import Group, Pool, Spec, pool
from kvroom.room import DTYPE_BYTES, Ask, Expected, KvRoom, Pages, ceil_div, dtype_bytes

GIB = 1 << 30
DEFAULT_BLOCK = 16
CPU_BLOCK = 128
CPU_STEP = 32

PER_HEAD = {"int8_per_token_head": 1.0, "fp8_per_token_head": 1.0, "int4_per_token_head": 0.5}
"""Bytes per element; two scales of 4 bytes are kept for each head and token."""
SCALES_PER_HEAD = 8
PACKED_LATENT = {576: 656}
"""Elements of a latent -> its bytes beside a sparse index with fp8: 512 of 8 bits, 4 scales of 4
bytes, and 64 rotary elements of 16 bits (``fp8_ds_mla``)."""
ONE_BYTE = ("fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc")


def plan(ask: Ask) -> KvRoom:
    """The room for an ask; InputError where vLLM would refuse to start."""
    architecture, length = ask.architecture, ask.length()
    dtype = _cache_dtype(ask)
    block = _block(ask, dtype)
    specs = _specs(ask, dtype, block)
    made = pool(specs, ask.available, defaults.in_flight(ask), defaults.rules(ask))
    start.check_length(ask, made, length)
    start.check_graphs(ask, made)
    concurrency = made.concurrency(length)
    tokens = _logged_tokens(ask, made, length)
    whole = defaults.admits_uncapped(ask)
    return KvRoom(
        bytes_per_token=sum(a.layers * _token_bytes(a, dtype, ask) for a in ask.growing),
        pool_bytes=made.blocks * made.width,
        blocks=made.blocks,
        block_tokens=block,
        tokens=tokens,
        pools=(
            Pages(
                limit="kv",
                usable=made.blocks - 1,
                admission=lambda prompt, output: (
                    made.uncapped(prompt) if whole else made.held(prompt)
                ),
                end=lambda prompt, output: made.held(prompt + output),
            ),
        ),
        slots=defaults.slots(ask),
        max_len=length,
        max_concurrency=concurrency,
        reserves_end=False,
        too_long="it is refused with HTTP 400",
        expected=_expected(ask, made, block, tokens, concurrency, length),
        arithmetic=_arithmetic(architecture, made, block, dtype, ask, length),
    )


def _cache_dtype(ask: Ask) -> str:
    """``auto`` is what the checkpoint asks for, else the model's own dtype."""
    dtype = (ask.settings.kv_cache_dtype or "auto").lower()
    if dtype != "auto":
        return dtype
    return ask.architecture.kv_quant or ask.architecture.dtype


def _token_bytes(attention: Attention, dtype: str, ask: Ask) -> int:
    """Bytes per token and layer on one rank."""
    elements = attention.elements(ask.tensor_parallel)
    if attention.own_dtype is not None:
        return elements * dtype_bytes(attention.own_dtype)
    heads = max(1, attention.kv_heads // ask.tensor_parallel)
    if dtype in PER_HEAD:
        return round(elements * PER_HEAD[dtype]) + heads * SCALES_PER_HEAD
    if dtype in ONE_BYTE:
        sparse = attention.kind == "mla" and any(a.own_dtype for a in ask.growing)
        return PACKED_LATENT.get(elements, elements) if sparse else elements
    if dtype == "nvfp4":
        sizes = (attention.key_dim, attention.value_dim)
        return heads * sum(size // 2 + size // 16 for size in sizes)
    return elements * dtype_bytes(dtype, {**DTYPE_BYTES, **dict.fromkeys(ONE_BYTE, 1)})


def _state_bytes(state: State, ask: Ask) -> int:
    """Convolution and recurrent state of one layer on one rank."""
    conv = dtype_bytes(ask.architecture.dtype)
    ssm = dtype_bytes(defaults.ssm_dtype(state, ask))
    tensor_parallel, drafts = ask.tensor_parallel, ask.speculative_tokens
    drafts = 0 if state.kind == "mamba1" else drafts
    return state.conv(tensor_parallel, drafts) * conv + state.ssm(tensor_parallel) * ssm


def _block(ask: Ask, dtype: str) -> int:
    """Tokens per attention page: the backend's, enlarged until a state fits into a page."""
    block = ask.block_tokens or (CPU_BLOCK if ask.on_cpu else DEFAULT_BLOCK)
    attention = [a for a in ask.growing if a.kind in ("full", "mla")]
    if not ask.architecture.states or not attention:
        return block
    state = max(_state_bytes(state, ask) for state in ask.architecture.states)
    step = max(block, CPU_STEP if ask.on_cpu else DEFAULT_BLOCK)
    step = max(step, defaults.mla_step(ask)) if attention[0].kind == "mla" else step
    per_token = _token_bytes(attention[0], dtype, ask)
    return max(block, step * ceil_div(state, step * per_token))


def _specs(ask: Ask, dtype: str, block: int) -> list[Spec]:
    specs: list[Spec] = []
    page = 0
    for attention in ask.growing:
        page = max(page, block * _token_bytes(attention, dtype, ask))
        spec = Spec(
            kind=attention.kind if attention.kind != "cross" else "full",
            block=block,
            page=block * _token_bytes(attention, dtype, ask),
            layout=(attention.kv_heads, attention.key_dim, attention.value_dim),
            window=attention.window or 0,
        )
        specs += [spec] * attention.layers
    for state in ask.architecture.states:
        most, steady = defaults.state_pages(state, ask)
        spec = Spec(
            kind="mamba",
            block=block,
            page=max(page, _state_bytes(state, ask)),
            layout=(state.conv_channels, state.conv_columns, state.recurrent),
            states=most,
            steady_states=steady,
        )
        specs += [spec] * state.layers
    return specs


def _logged_tokens(ask: Ask, made: Pool, length: int) -> int:
    """The tokens of the log: since 0.20.1 concurrency times length, before blocks over groups."""
    if since(ask, 0, 20, 1):
        return int(made.concurrency(length) * length)
    smallest = min(spec.block for group in made.groups for spec in group.specs)
    return made.blocks // len(made.groups) * smallest


def _expected(
    ask: Ask, made: Pool, block: int, tokens: int, concurrency: float, length: int
) -> tuple[Expected, ...]:
    device = "CPU" if ask.on_cpu else "GPU"
    wording = f"Maximum concurrency for {length:,} tokens per request"
    figures = [
        Expected("kv_tokens", f"{device} KV cache size (tokens)", tokens),
        Expected("max_concurrency", wording, round(concurrency, 2)),
    ]
    if ask.architecture.states and ask.architecture.attention:
        page = max(spec.page for group in made.groups for spec in group.specs)
        state = max(_state_bytes(state, ask) for state in ask.architecture.states)
        padding = round(100 * (page - state) / state, 2)
        figures += [
            Expected("kv_block_tokens", "Setting attention block size to (tokens)", block),
            Expected("state_padding_percent", "Padding mamba page size by (%)", padding),
        ]
    return tuple(figures)


def _arithmetic(
    architecture: Architecture, made: Pool, block: int, dtype: str, ask: Ask, length: int
) -> tuple[str, ...]:
    lines = [
        f"{a.layers} {a.kind} layers: {a.elements(ask.tensor_parallel)} elements a token in {dtype}"
        f" = {_token_bytes(a, dtype, ask):,} B a token and layer"
        for a in ask.growing
    ]
    lines += [
        f"{s.layers} {s.kind} layers: {s.conv(ask.tensor_parallel, ask.speculative_tokens):,} + "
        f"{s.ssm(ask.tensor_parallel):,} elements of state = {_state_bytes(s, ask):,} B a layer"
        for s in architecture.states
    ]
    lines.append(f"block: {block} tokens")
    for group, count in Counter(made.groups).items():
        lines.append(_group_line(group, count, made, length))
    lines.append(f"one block id: {made.width:,} B, the widest group")
    lines.append(f"{ask.available:,} B // {made.width:,} B = {made.blocks} block ids")
    lines.append(
        f"{made.blocks} / {made.pages(length)} = {made.concurrency(length):.2f} requests of "
        f"{length} tokens"
    )
    return tuple(lines)


def _group_line(group: Group, count: int, made: Pool, length: int) -> str:
    kind = "state" if group.specs[0].kind == "mamba" else group.specs[0].kind
    return (
        f"{count} x {len(group.specs)} {kind} layers: pages of {group.specs[0].page:,} B, "
        f"{group.pages(length, made.in_flight)} a group for {length} tokens"
    )
