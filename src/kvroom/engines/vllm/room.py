"""vLLM's KV room, planned: from the architecture to the figures of its own log.

Block size: platforms/interface.py (_align_hybrid_block_size). Bytes per element:
v1/kv_cache_interface.py. State shapes and dtypes: model_executor/layers/mamba/mamba_utils.py and
models/config.py. All of vLLM 0.31.0; what differs between versions is said where it does.
"""

from kvroom.checkpoint.architecture import Architecture, Attention, State
from kvroom.engines.vllm.pages import Pool, Spec, pool
from kvroom.errors import InputError
from kvroom.room import DTYPE_BYTES, Ask, KvRoom, ceil_div, dtype_bytes

GIB = 1 << 30
NULL_BLOCK_SINCE = (0, 29)
"""From here on the start-up check holds back the block that the pool never gives away."""
PREFIX_CACHE_ON_HYBRIDS_SINCE = (0, 26)
TOKENS_BY_CONCURRENCY_SINCE = (0, 24)
"""From here on the logged tokens are concurrency times length; before, blocks over groups."""
NEWEST = (0, 31)

DEFAULT_BLOCK = 16
CPU_BLOCK = 128
CPU_STEP = 32
MLA_STEP = 128
SMALL_CARD = 70 * GIB

PER_HEAD = {"int8_per_token_head": 1.0, "fp8_per_token_head": 1.0, "int4_per_token_head": 0.5}
"""Bytes per element; two scales of 4 bytes are kept for each head and token."""
SCALES_PER_HEAD = 8
ONE_BYTE = ("fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc")


def plan(ask: Ask) -> KvRoom:
    """The room for an ask; InputError where vLLM would refuse to start."""
    version = _version(ask.version)
    architecture, length = ask.architecture, _max_len(ask)
    dtype = _cache_dtype(ask)
    state_pages = _state_pages(ask, version)
    block = _block(ask, dtype)
    made = pool(_specs(ask, dtype, block, state_pages), ask.available, _in_flight(ask))
    _check_start(made, length, version)
    concurrency = made.concurrency(length)
    tokens = _logged_tokens(made, concurrency, length, version)
    return KvRoom(
        bytes_per_token=sum(a.layers * _token_bytes(a, dtype, ask) for a in _growing(ask)),
        fixed_bytes=0,
        state_slots=0,
        blocks=made.blocks,
        block_tokens=block,
        tokens=tokens,
        usable_blocks=made.blocks - 1,
        slots=ask.settings.slots or _default_slots(ask),
        max_len=length,
        max_concurrency=concurrency,
        admission_blocks=lambda prompt, output: made.held(prompt),
        end_blocks=lambda prompt, output: made.held(prompt + output),
        reserves_end=False,
        expected_log=_expected_log(ask, made, block, tokens, concurrency, length),
        arithmetic=_arithmetic(architecture, made, block, dtype, ask, length),
    )


def _version(text: str) -> tuple[int, int]:
    parts = text.removeprefix("v").split(".")
    if not text:
        return NEWEST
    try:
        return int(parts[0]), int(parts[1]) if len(parts) > 1 else 0
    except ValueError:
        raise InputError(f"{text!r} is not a version of vLLM", "such as 0.31.0") from None


def _max_len(ask: Ask) -> int:
    length = ask.settings.max_len or ask.architecture.max_len
    if length is None:
        raise InputError("the model does not say how long a request may be", "give --max-len")
    return length


def _cache_dtype(ask: Ask) -> str:
    """``auto`` is what the checkpoint asks for, else the model's own dtype."""
    dtype = (ask.settings.kv_cache_dtype or "auto").lower()
    if dtype != "auto":
        return dtype
    return ask.architecture.kv_quant or ask.architecture.dtype


def _growing(ask: Ask) -> list[Attention]:
    """Attention with a cache for every token, the draft head's included when it is used."""
    found = [a for a in ask.architecture.attention if a.kind != "cross"]
    if ask.speculative_tokens and ask.architecture.draft is not None:
        found.append(ask.architecture.draft)
    return found


def _token_bytes(attention: Attention, dtype: str, ask: Ask) -> int:
    """Bytes per token and layer on one rank."""
    elements = attention.elements(ask.tensor_parallel)
    heads = max(1, attention.kv_heads // ask.tensor_parallel)
    if dtype in PER_HEAD:
        return round(elements * PER_HEAD[dtype]) + heads * SCALES_PER_HEAD
    if dtype in ONE_BYTE:
        return elements
    if dtype == "nvfp4":
        sizes = (attention.key_dim, attention.value_dim)
        return heads * sum(size // 2 + size // 16 for size in sizes)
    return elements * dtype_bytes(dtype, {**DTYPE_BYTES, **dict.fromkeys(ONE_BYTE, 1)})


def _state_bytes(state: State, ask: Ask) -> int:
    """Convolution and recurrent state of one layer on one rank."""
    conv = dtype_bytes(ask.architecture.dtype)
    ssm = dtype_bytes(_ssm_dtype(state, ask))
    tensor_parallel, drafts = ask.tensor_parallel, ask.speculative_tokens
    drafts = 0 if state.kind == "mamba1" else drafts
    return state.conv(tensor_parallel, drafts) * conv + state.ssm(tensor_parallel) * ssm


def _ssm_dtype(state: State, ask: Ask) -> str:
    """The declared dtype where vLLM looks for it; float32 for KDA, Nemotron-H, and GDN on CPU."""
    architecture = ask.architecture
    family = architecture.family.removesuffix("_text")
    if state.kind == "gated_delta_net" and ask.on_cpu:
        return "float32"
    if family.startswith(("qwen3_5", "qwen3_6", "qwen3_8")) and architecture.ssm_dtype:
        return architecture.ssm_dtype
    if family == "nemotron_h":
        return architecture.ssm_dtype or "float32"
    return "float32" if state.kind == "kda" else architecture.dtype


def _state_pages(ask: Ask, version: tuple[int, int]) -> tuple[int, int]:
    """Pages of state a request holds in each state group: at most, and between boundaries.

    With prefix caching (mode "align") the state before a block boundary stays beside the new one.
    """
    drafts = ask.speculative_tokens
    caching = ask.settings.prefix_cache
    if caching is None:
        attention = bool(ask.architecture.attention)
        caching = attention and version >= PREFIX_CACHE_ON_HYBRIDS_SINCE
    return (2 if caching else 1) + drafts, 1 + drafts


def _block(ask: Ask, dtype: str) -> int:
    """Tokens per attention page: the backend's, enlarged until a state fits into a page."""
    block = ask.block_tokens or (CPU_BLOCK if ask.on_cpu else DEFAULT_BLOCK)
    attention = [a for a in _growing(ask) if a.kind in ("full", "mla")]
    if not ask.architecture.states or not attention:
        return block
    state = max(_state_bytes(state, ask) for state in ask.architecture.states)
    step = max(block, CPU_STEP if ask.on_cpu else DEFAULT_BLOCK)
    step = max(step, MLA_STEP) if attention[0].kind == "mla" else step
    per_token = _token_bytes(attention[0], dtype, ask)
    return max(block, step * ceil_div(state, step * per_token))


def _specs(ask: Ask, dtype: str, block: int, state_pages: tuple[int, int]) -> list[Spec]:
    specs: list[Spec] = []
    page = 0
    for attention in _growing(ask):
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
        spec = Spec(
            kind="mamba",
            block=block,
            page=max(page, _state_bytes(state, ask)),
            layout=(state.conv_channels, state.conv_columns, state.recurrent),
            states=state_pages[0],
            steady_states=state_pages[1],
        )
        specs += [spec] * state.layers
    return specs


def _in_flight(ask: Ask) -> int:
    """Tokens scheduled and not yet settled: two steps' worth with asynchronous scheduling."""
    batch = ask.settings.batch_tokens or 2048
    return batch if ask.on_cpu else 2 * batch


def _default_slots(ask: Ask) -> int:
    return 128 if ask.on_cpu else 256


def _check_start(made: Pool, length: int, version: tuple[int, int]) -> None:
    """vLLM starts only if one request of full length fits."""
    reserve = 1 if version >= NULL_BLOCK_SINCE else 0
    if made.pages(length) <= made.blocks - reserve:
        return
    longest = made.longest(length, reserve)
    needed = made.pages(length) * made.width / GIB
    hint = f"lower max_len to {longest}, which fits" if longest else "not even one token fits"
    raise InputError(
        f"vLLM does not start: one request of {length} tokens needs {needed:.2f} GiB of KV cache, "
        f"and there are {(made.blocks - reserve) * made.width / GIB:.2f} GiB",
        hint,
    )


def _logged_tokens(made: Pool, concurrency: float, length: int, version: tuple[int, int]) -> int:
    if version >= TOKENS_BY_CONCURRENCY_SINCE:
        return int(concurrency * length)
    smallest = min(spec.block for group in made.groups for spec in group.specs)
    return made.blocks // len(made.groups) * smallest


def _expected_log(
    ask: Ask, made: Pool, block: int, tokens: int, concurrency: float, length: int
) -> dict[str, int | float | str]:
    device = "CPU" if ask.on_cpu else "GPU"
    expected: dict[str, int | float | str] = {
        f"{device} KV cache size (tokens)": tokens,
        f"Maximum concurrency for {length:,} tokens per request": round(concurrency, 2),
    }
    if ask.architecture.states and ask.architecture.attention:
        page = max(spec.page for group in made.groups for spec in group.specs)
        state = max(_state_bytes(state, ask) for state in ask.architecture.states)
        expected["Setting attention block size to (tokens)"] = block
        expected["Padding mamba page size by (%)"] = round(100 * (page - state) / state, 2)
    return expected


def _arithmetic(
    architecture: Architecture, made: Pool, block: int, dtype: str, ask: Ask, length: int
) -> tuple[str, ...]:
    lines = [
        f"{a.layers} {a.kind} layers: {a.elements(ask.tensor_parallel)} elements a token in {dtype}"
        f" = {_token_bytes(a, dtype, ask):,} B a token and layer"
        for a in _growing(ask)
    ]
    lines += [
        f"{s.layers} {s.kind} layers: {s.conv(ask.tensor_parallel, ask.speculative_tokens):,} + "
        f"{s.ssm(ask.tensor_parallel):,} elements of state = {_state_bytes(s, ask):,} B a layer"
        for s in architecture.states
    ]
    lines.append(f"block: {block} tokens")
    for group in made.groups:
        first = group.specs[0]
        lines.append(
            f"group of {len(group.specs)} {first.kind} layers: pages of {first.page:,} B, "
            f"{group.pages(length, made.in_flight)} for {length} tokens"
        )
    lines.append(f"one block id: {made.width:,} B, the widest group")
    lines.append(f"{ask.available:,} B // {made.width:,} B = {made.blocks} block ids")
    lines.append(
        f"{made.blocks} / {made.pages(length)} = {made.concurrency(length):.2f} requests of "
        f"{length} tokens"
    )
    return tuple(lines)
