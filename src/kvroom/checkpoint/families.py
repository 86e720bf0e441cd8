"""From a configuration to layers: one short function for each way models lay out their layers.

A family that is not listed is read by its layer types or as a plain transformer, and says so.
"""

from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from kvroom.checkpoint.architecture import Architecture, Attention, AttentionKind, State
from kvroom.checkpoint.config import Config

Layers = tuple[tuple[Attention, ...], tuple[State, ...]]
Reader = Callable[[Config], Layers]


def architecture(outer: Config) -> Architecture:
    """The architecture that a configuration describes."""
    config = outer.text
    family = config.word("model_type") or outer.word("model_type") or "unknown"
    reader = FAMILIES.get(family.removesuffix("_text"))
    guesses: tuple[str, ...] = ()
    if reader is None:
        reader = _by_types if config.has("layer_types") else _dense
        guesses = (f"the family {family!r} is not known; read {GUESSES[reader]}",)
    attention, states = reader(config)
    return Architecture(
        family=family,
        attention=tuple(a for a in attention if a.layers),
        states=tuple(s for s in states if s.layers),
        dtype=_dtype(config) or _dtype(outer) or "bfloat16",
        ssm_dtype=config.word("mamba_ssm_dtype") or config.word("mamba_ssm_cache_dtype"),
        ssm_dtype_outside=outer.word("mamba_ssm_dtype") or outer.word("mamba_ssm_cache_dtype"),
        kv_quant=_kv_quant(outer),
        max_len=config.count("max_position_embeddings", default=0) or None,
        hidden=config.count("hidden_size", "d_model", "n_embd", default=1),
        vocab=config.count("vocab_size", default=1),
        draft=_draft(config, attention),
        guesses=guesses,
    )


def _dtype(config: Config) -> str | None:
    name = config.word("dtype") or config.word("torch_dtype")
    return name.removeprefix("torch.") if name else None


def _kv_quant(outer: Config) -> str | None:
    """ModelOpt and compressed-tensors write it in different places."""
    for level in (outer, outer.text):
        quant = level.inner("quantization_config")
        for place in (quant, quant.inner("quantization")):
            algorithm = place.word("kv_cache_quant_algo")
            if algorithm:
                return algorithm.lower()
        scheme = quant.inner("kv_cache_scheme")
        if scheme.has("num_bits"):
            return {8: "fp8", 4: "nvfp4"}.get(scheme.count("num_bits"))
    return None


def _draft(config: Config, attention: Sequence[Attention]) -> Attention | None:
    keys = ("mtp_num_hidden_layers", "num_nextn_predict_layers")
    layers = next((config.count(k) for k in keys if config.has(k) and config.values[k]), 0)
    main = next((a for a in attention if a.kind in ("full", "mla")), None)
    if not layers or main is None:
        return None
    return msgspec.structs.replace(main, layers=layers)


# attention


def _heads(config: Config) -> tuple[int, int, int]:
    """KV heads and the sizes of key and value heads."""
    heads = config.count("num_attention_heads", "n_head", "num_heads")
    kv_heads = config.count("num_key_value_heads", "multi_query_group_num", default=heads)
    hidden = config.count("hidden_size", "d_model", "n_embd")
    if not config.has("head_dim") and hidden % heads:
        raise config.wrong("hidden_size", f"{hidden} is no multiple of {heads} attention heads")
    size = config.count("head_dim", default=max(1, hidden // heads))
    if heads % kv_heads:
        raise config.wrong("num_key_value_heads", f"{kv_heads} does not divide {heads} heads")
    return kv_heads, size, config.count("v_head_dim", default=size)


def _attention(
    config: Config, layers: int, kind: AttentionKind = "full", window: int | None = None
) -> Attention:
    kv_heads, key, value = _heads(config)
    return Attention(
        kind=kind, layers=layers, kv_heads=kv_heads, key_dim=key, value_dim=value, window=window
    )


def _mla(config: Config, layers: int) -> Attention:
    latent = config.count("kv_lora_rank") + config.count("qk_rope_head_dim")
    return Attention(kind="mla", layers=layers, kv_heads=1, key_dim=latent, value_dim=0)


def _depth(config: Config) -> int:
    return config.count("num_hidden_layers", "n_layer", "num_layers")


def _dense(config: Config) -> Layers:
    if set(config.words("layer_types") or ()) - {"full_attention"}:
        return _by_types(config)
    return (_attention(config, _depth(config)),), ()


def _all_sliding(config: Config) -> Layers:
    """Mistral 7B v0.1: one window for all layers, where it is given."""
    if not config.has("sliding_window"):
        return _dense(config)
    window = config.count("sliding_window")
    return (_attention(config, _depth(config), "sliding", window),), ()


def _deepseek(config: Config) -> Layers:
    return (_mla(config, _depth(config)),), ()


def _types(config: Config) -> Counter[str]:
    """How many layers there are of each type."""
    types, depth = config.words("layer_types") or (), _depth(config)
    if len(types) != depth:
        raise config.wrong("layer_types", f"{len(types)} types for {depth} layers")
    return Counter(types)


def _by_types(config: Config) -> Layers:
    """The list that newer configurations carry: a word for each layer."""
    types = _types(config)
    attention = [_attention(config, types["full_attention"] + types["attention"])]
    if types["sliding_attention"]:
        window = config.count("sliding_window")
        attention.append(_attention(config, types["sliding_attention"], "sliding", window))
    if types["chunked_attention"]:
        window = config.count("attention_chunk_size")
        attention.append(_attention(config, types["chunked_attention"], "chunked", window))
    states = []
    if types["linear_attention"]:
        states.append(_gated_delta_net(config, types["linear_attention"]))
    if types["conv"]:
        states.append(_short_conv(config, types["conv"]))
    if types["mamba"]:
        states.append(_mamba2(config, types["mamba"]))
    return tuple(attention), tuple(states)


def _alternating(every: int, key: str | None = None) -> Reader:
    """One full layer in each row of so many, the others with a sliding window."""

    def read(config: Config) -> Layers:
        if config.has("layer_types"):
            return _by_types(config)
        depth = _depth(config)
        full = depth // (config.count(key, default=every) if key else every)
        window = config.count("sliding_window")
        return (
            _attention(config, full),
            _attention(config, depth - full, "sliding", window),
        ), ()

    return read


def _gemma4(config: Config) -> Layers:
    """Full layers have heads of another size and number than those with a window."""
    types, window = _types(config), config.count("sliding_window")
    sliding = _attention(config, types["sliding_attention"], "sliding", window)
    full_size = config.count("global_head_dim", default=sliding.key_dim)
    full_heads = config.count("num_global_key_value_heads", default=sliding.kv_heads)
    full = Attention(
        kind="full",
        layers=types["full_attention"],
        kv_heads=full_heads,
        key_dim=full_size,
        value_dim=full_size,
    )
    return (full, sliding), ()


def _llama4(config: Config) -> Layers:
    depth = _depth(config)
    chunk = config.count("attention_chunk_size", default=8192)
    full = sum(1 for flag in config.counts("no_rope_layers") or () if flag == 0) or depth // 4
    return (_attention(config, full), _attention(config, depth - full, "chunked", chunk)), ()


def _mllama(config: Config) -> Layers:
    cross = len(config.counts("cross_attention_layers") or ())
    depth = _depth(config)
    return (_attention(config, depth - cross), _attention(config, cross, "cross")), ()


# state


def _gated_delta_net(config: Config, layers: int) -> State:
    key_heads, value_heads = (
        config.count(f"linear_num_{which}_heads") for which in ("key", "value")
    )
    key, value = (config.count(f"linear_{which}_head_dim") for which in ("key", "value"))
    return State(
        kind="gated_delta_net",
        layers=layers,
        conv_channels=2 * key_heads * key + value_heads * value,
        conv_columns=config.count("linear_conv_kernel_dim") - 1,
        recurrent=value_heads * value * key,
    )


def _mamba2(config: Config, layers: int) -> State:
    heads = config.count("mamba_n_heads", "mamba_num_heads", "num_heads")
    size = _mamba_head_dim(config, heads)
    groups = config.count("mamba_n_groups", "n_groups", "mamba_ngroups", default=1)
    state = config.count("mamba_d_state", "ssm_state_size", "state_size", "mamba_state_dim")
    kernel = config.count("mamba_d_conv", "conv_kernel", "conv_kernel_size", default=4)
    return State(
        kind="mamba2",
        layers=layers,
        conv_channels=heads * size + 2 * groups * state,
        conv_columns=kernel - 1,
        recurrent=heads * size * state,
    )


def _mamba_head_dim(config: Config, heads: int) -> int:
    for key in ("mamba_d_head", "mamba_head_dim", "head_dim"):
        if isinstance(config.values.get(key), int):
            return config.count(key)
    inner = config.count("mamba_expand", "expand", default=2) * config.count("hidden_size")
    return inner // heads


def _mamba1(config: Config, layers: int) -> State:
    inner = config.count("mamba_expand", "expand", default=2) * config.count("hidden_size")
    return State(
        kind="mamba1",
        layers=layers,
        conv_channels=inner,
        conv_columns=config.count("mamba_d_conv", "conv_kernel", default=4) - 1,
        recurrent=inner * config.count("mamba_d_state", "state_size", default=16),
    )


def _short_conv(config: Config, layers: int) -> State:
    return State(
        kind="short_conv",
        layers=layers,
        conv_channels=config.count("conv_dim", "hidden_size"),
        conv_columns=config.count("conv_L_cache", default=3) - 1,
        recurrent=0,
    )


def _qwen_hybrid(config: Config) -> Layers:
    if config.has("layer_types"):
        return _by_types(config)
    depth = _depth(config)
    full = depth // config.count("full_attention_interval", default=4)
    return (_attention(config, full),), (_gated_delta_net(config, depth - full),)


def _kimi_linear(config: Config) -> Layers:
    linear = config.inner("linear_attn_config")
    heads, size = linear.count("num_heads"), linear.count("head_dim")
    kda = len(linear.counts("kda_layers") or ())
    state = State(
        kind="kda",
        layers=kda,
        conv_channels=3 * heads * size,
        conv_columns=linear.count("short_conv_kernel_size", default=4) - 1,
        recurrent=heads * size * size,
    )
    return (_mla(config, _depth(config) - kda),), (state,)


def _nemotron_h(config: Config) -> Layers:
    pattern = config.word("hybrid_override_pattern") or ""
    if len(pattern.replace("|", "")) != _depth(config):
        raise config.wrong("hybrid_override_pattern", "it does not have a letter for each layer")
    attention = _attention(_with_head_dim(config), pattern.count("*"))
    return (attention,), (_mamba2(config, pattern.count("M")),)


def _with_head_dim(config: Config) -> Config:
    """Nemotron-H calls the size of its attention heads ``attention_head_dim`` or ``head_dim``."""
    if not config.has("attention_head_dim"):
        return config
    values = {**config.values, "head_dim": config.count("attention_head_dim")}
    return Config(values, config.file, config.level)


def _jamba(config: Config) -> Layers:
    depth, period = _depth(config), config.count("attn_layer_period", default=8)
    offset = config.values.get("attn_layer_offset", 4)
    full = sum(1 for layer in range(depth) if layer % period == offset)
    return (_attention(config, full),), (_mamba1(config, depth - full),)


def _bamba(config: Config) -> Layers:
    if config.has("layer_types"):
        return _by_types(config)
    full = len(config.counts("attn_layer_indices") or ())
    return (_attention(config, full),), (_mamba2(config, _depth(config) - full),)


def _falcon_h1(config: Config) -> Layers:
    """Every layer has both."""
    depth = _depth(config)
    return (_attention(config, depth),), (_mamba2(config, depth),)


def _pure_mamba2(config: Config) -> Layers:
    return (), (_mamba2(config, _depth(config)),)


def _pure_mamba1(config: Config) -> Layers:
    return (), (_mamba1(config, _depth(config)),)


GUESSES: dict[Reader, str] = {
    _by_types: "by its layer_types",
    _dense: "as a plain transformer with grouped-query attention in every layer",
}

FAMILIES: dict[str, Reader] = {
    **dict.fromkeys(
        ("llama", "qwen2", "qwen3", "qwen2_moe", "qwen3_moe", "qwen2_vl", "qwen2_5_vl", "phi",
         "phi3", "phi4", "phimoe", "glm", "glm4", "glm4_moe", "mixtral", "mistral3", "ministral",
         "starcoder2", "granite", "granitemoe", "olmo2", "stablelm", "qwen3_vl",
         "qwen3_vl_moe", "minimax_m2", "hunyuan_v1_dense", "ernie4_5", "exaone4", "smollm3"),
        _dense,
    ),
    "mistral": _all_sliding,
    **dict.fromkeys(
        ("deepseek_v2", "deepseek_v3", "kimi_k2", "glm4_moe_lite", "glm_moe_dsa", "glm5"), _deepseek
    ),
    "gemma": _dense,
    "gemma2": _alternating(2),
    "gemma3": _alternating(6, "sliding_window_pattern"),
    "gemma4": _gemma4,
    "gpt_oss": _alternating(2),
    "llama4": _llama4,
    "mllama": _mllama,
    **dict.fromkeys(
        ("qwen3_next", "qwen3_5", "qwen3_5_moe", "qwen3_6", "qwen3_6_moe", "qwen3_8",
         "qwen3_8_moe"),
        _qwen_hybrid,
    ),
    "kimi_linear": _kimi_linear,
    "nemotron_h": _nemotron_h,
    "jamba": _jamba,
    "bamba": _bamba,
    "granitemoehybrid": _bamba,
    "falcon_h1": _falcon_h1,
    "mamba2": _pure_mamba2,
    "mamba": _pure_mamba1,
    "lfm2": _by_types,
    "lfm2_moe": _by_types,
}  # fmt: skip
