"""From a configuration to layers: one short function for each way models lay out their layers.

A family that is not listed is read by its layer types or as a plain transformer, and says so.
"""

from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from kvroom.checkpoint import layers
from kvroom.checkpoint.architecture import Architecture, Attention, State
from kvroom.checkpoint.config import Config

LINEAR = ("linear_attention", "mamba", "linear", "gated_delta_net", "kda")
"""What a list of layer types calls layers with a state."""

Layers = tuple[tuple[Attention, ...], tuple[State, ...]]
Reader = Callable[[Config], Layers]


def architecture(outer: Config) -> Architecture:
    """The architecture that a configuration describes."""
    config = outer.text
    family = config.word("model_type") or outer.word("model_type") or "unknown"
    reader = FAMILIES.get(family.removesuffix("_model").removesuffix("_text"))
    guesses: tuple[str, ...] = ()
    if reader is None:
        reader = _by_types if _listed(config) else _dense
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


# the list that newer configurations carry: a word for each layer


def _listed(config: Config) -> Sequence[str] | None:
    """A word for each layer, without those that take their keys and values from an earlier one."""
    types = config.words("layer_types") or config.words("layers_block_type")
    if types is None:
        return None
    depth = config.count("num_hidden_layers", "n_layer", "num_layers", default=len(types))
    if len(types) != depth:
        raise config.wrong("layer_types", f"{len(types)} types for {depth} layers")
    return types[: depth - _shared(config)]


def _shared(config: Config) -> int:
    """Layers at the end that keep nothing of their own (Gemma 3n and 4)."""
    return config.count("num_kv_shared_layers") if config.values.get("num_kv_shared_layers") else 0


def _by_types(config: Config) -> Layers:
    types = Counter(_listed(config) or ())
    attention = [layers.attention(config, types["full_attention"] + types["attention"])]
    if types["sliding_attention"]:
        window = config.count("sliding_window")
        attention.append(layers.attention(config, types["sliding_attention"], "sliding", window))
    if types["chunked_attention"]:
        window = config.count("attention_chunk_size")
        attention.append(layers.attention(config, types["chunked_attention"], "chunked", window))
    states = []
    linear = sum(types[name] for name in LINEAR)
    if linear:
        states.append(layers.state(config, linear))
    if types["conv"]:
        states.append(layers.short_conv(config, types["conv"]))
    return tuple(attention), tuple(states)


# attention alone


def _dense(config: Config) -> Layers:
    """Alike in all layers; with a window in all of them where one is given and in use."""
    if set(_listed(config) or ()) - {"full_attention", "attention"}:
        return _by_types(config)
    depth = layers.depth(config)
    if not config.values.get("sliding_window") or config.values.get("use_sliding_window") is False:
        return (layers.attention(config, depth),), ()
    window = config.count("sliding_window")
    full = min(depth, config.values.get("max_window_layers") or 0) if _is_qwen(config) else 0
    return (
        layers.attention(config, full),
        layers.attention(config, depth - full, "sliding", window),
    ), ()


def _is_qwen(config: Config) -> bool:
    """Qwen's first layers are full: as many as ``max_window_layers`` says."""
    return isinstance(config.values.get("max_window_layers"), int)


def _deepseek(config: Config) -> Layers:
    """Latent attention; V3.2 and GLM-5 keep the keys of a sparse index beside it."""
    depth = layers.depth(config)
    if not config.has("index_head_dim"):
        return (layers.mla(config, depth),), ()
    return (layers.mla(config, depth), layers.sparse_index(config, _indexed(config, depth))), ()


def _indexed(config: Config, depth: int) -> int:
    """Layers with an index of their own; others use that of an earlier one."""
    pattern = config.word("index_topk_pattern")
    if pattern is not None:
        return depth - pattern[:depth].count("S")
    every = config.count("index_topk_freq", default=1)
    offset = config.count("index_skip_topk_offset", default=2)
    return sum(1 for layer in range(depth) if max(layer - offset + 1, 0) % every == 0)


def _alternating(every: int, key: str | None = None) -> Reader:
    """One full layer in each row of so many, the others with a sliding window."""

    def read(config: Config) -> Layers:
        if _listed(config):
            return _by_types(config)
        depth = layers.depth(config)
        full = depth // (config.count(key, default=every) if key else every)
        window = config.count("sliding_window")
        return (
            layers.attention(config, full),
            layers.attention(config, depth - full, "sliding", window),
        ), ()

    return read


def _gemma4(config: Config) -> Layers:
    """Full layers have heads of another size than those with a window; and fewer, where a value is
    its key (``attention_k_eq_v``)."""
    (_, *windowed), _ = _by_types(config)
    types = Counter(_listed(config) or ())
    kv_heads, size, _ = layers.heads(config)
    if config.values.get("attention_k_eq_v") is not False:
        own = _of_single_layers(config, "num_key_value_heads", kv_heads)
        kv_heads = config.count("num_global_key_value_heads", default=own)
    own = _of_single_layers(config, "head_dim", size)
    size = config.count("global_head_dim", default=own)
    full = Attention(
        kind="full",
        layers=types["full_attention"],
        kv_heads=kv_heads,
        key_dim=size,
        value_dim=size,
    )
    return (full, *windowed), ()


def _of_single_layers(config: Config, key: str, default: int) -> int:
    """As transformers 5 saves it: an entry for each layer that differs."""
    own = config.inner("per_layer_config")
    return next((own.inner(layer).count(key, default=default) for layer in own.values), default)


def _llama4(config: Config) -> Layers:
    if _listed(config):
        return _by_types(config)
    depth = layers.depth(config)
    chunk = config.count("attention_chunk_size", default=8192)
    flags = config.counts("no_rope_layers")
    full = sum(1 for flag in flags if flag == 0) if flags else depth // 4
    return (
        layers.attention(config, full),
        layers.attention(config, depth - full, "chunked", chunk),
    ), ()


def _mllama(config: Config) -> Layers:
    cross = len(config.counts("cross_attention_layers") or ())
    depth = layers.depth(config)
    return (
        layers.attention(config, depth - cross),
        layers.attention(config, cross, "cross"),
    ), ()


# with states


def _qwen_hybrid(config: Config) -> Layers:
    if _listed(config):
        return _by_types(config)
    depth = layers.depth(config)
    full = depth // config.count("full_attention_interval", default=4)
    return (layers.attention(config, full),), (layers.gated_delta_net(config, depth - full),)


def _kimi_linear(config: Config) -> Layers:
    types, depth = _listed(config), layers.depth(config)
    listed = config.inner("linear_attn_config").counts("kda_layers") or ()
    linear = Counter(types)["linear_attention"] if types else len(listed)
    return (layers.mla(config, depth - linear),), (layers.kda(config, linear),)


def _nemotron_h(config: Config) -> Layers:
    """A letter for each layer: M a state, * attention, - and E neither."""
    config = _with_head_dim(config)
    if not config.has("hybrid_override_pattern"):
        return _by_types(config)
    pattern = (config.word("hybrid_override_pattern") or "").replace("|", "")
    if len(pattern) != config.count("num_hidden_layers", default=len(pattern) or 1):
        raise config.wrong("hybrid_override_pattern", "it does not have a letter for each layer")
    return (
        (layers.attention(config, pattern.count("*")),),
        (layers.mamba2(config, pattern.count("M")),),
    )


def _with_head_dim(config: Config) -> Config:
    """Nemotron-H calls the size of its attention heads ``attention_head_dim`` or ``head_dim``."""
    if not config.has("attention_head_dim"):
        return config
    values = {**config.values, "head_dim": config.count("attention_head_dim")}
    return Config(values, config.file, config.level)


def _jamba(config: Config) -> Layers:
    depth, period = layers.depth(config), config.count("attn_layer_period", default=8)
    offset = config.values.get("attn_layer_offset", 4)
    full = sum(1 for layer in range(depth) if layer % period == offset)
    return (layers.attention(config, full),), (layers.mamba1(config, depth - full),)


def _bamba(config: Config) -> Layers:
    if _listed(config):
        return _by_types(config)
    full = len(config.counts("attn_layer_indices") or ())
    return (layers.attention(config, full),), (layers.mamba2(config, layers.depth(config) - full),)


def _falcon_h1(config: Config) -> Layers:
    """Every layer has both."""
    depth = layers.depth(config)
    return (layers.attention(config, depth),), (layers.mamba2(config, depth),)


def _pure_mamba2(config: Config) -> Layers:
    return (), (layers.mamba2(config, layers.depth(config)),)


def _pure_mamba1(config: Config) -> Layers:
    return (), (layers.mamba1(config, layers.depth(config)),)


GUESSES: dict[Reader, str] = {
    _by_types: "by its layer_types",
    _dense: "as a plain transformer with grouped-query attention in every layer",
}

FAMILIES: dict[str, Reader] = {
    **dict.fromkeys(
        ("llama", "mistral", "qwen2", "qwen3", "qwen2_moe", "qwen3_moe", "qwen2_vl", "qwen2_5_vl",
         "phi", "phi3",
         "phi4", "phimoe", "glm", "glm4", "glm4_moe", "mixtral", "mistral3", "ministral",
         "starcoder2", "granite", "granitemoe", "olmo2", "stablelm", "qwen3_vl",
         "qwen3_vl_moe", "minimax_m2", "hunyuan_v1_dense", "ernie4_5", "exaone4", "smollm3",
         "olmo3", "cohere2"),
        _dense,
    ),
    **dict.fromkeys(
        ("deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "glm4_moe_lite", "glm_moe_dsa",
         "glm5"),
        _deepseek,
    ),
    "gemma": _dense,
    "gemma2": _alternating(2),
    "gemma3": _alternating(6, "sliding_window_pattern"),
    "gemma3n": _by_types,
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
