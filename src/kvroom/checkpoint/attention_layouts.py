"""How families without states lay out their layers: one short function for each way."""

from collections import Counter

from kvroom.checkpoint import layers
from kvroom.checkpoint.architecture import Attention
from kvroom.checkpoint.config import Config
from kvroom.checkpoint.layer_types import FULL, Layers, Reader, by_types, changed, in_rows, listed


def dense(config: Config) -> Layers:
    """Alike in all layers; with a window in all of them where one is given and in use."""
    if set(listed(config) or ()).difference(FULL):
        return by_types(config)
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


def deepseek(config: Config) -> Layers:
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


def alternating(every: int, key: str | None = None) -> Reader:
    """One full layer ends each row of so many, the others have a sliding window."""

    def read(config: Config) -> Layers:
        if not config.values.get("sliding_window"):
            return dense(config)
        row = config.count(key, default=every) if key and not listed(config) else every
        return by_types(in_rows(config, row))

    return read


def gemma4(config: Config) -> Layers:
    """Full layers have heads of another size than those with a window; and fewer, where a value is
    its key (``attention_k_eq_v``). The last layer is always full."""
    config = in_rows(config, 6)
    types = list(config.words("layer_types") or config.words("layers_block_type") or ())
    config = changed(config, layer_types=[*types[:-1], "full_attention"])
    (_, *windowed), _ = by_types(config)
    kv_heads, size = _global_heads(config)
    full = Attention(
        kind="full",
        layers=Counter(listed(config))["full_attention"],
        kv_heads=kv_heads,
        key_dim=size,
        value_dim=size,
    )
    return (full, *windowed), ()


def _global_heads(config: Config) -> tuple[int, int]:
    """KV heads of a full layer and their size."""
    kv_heads, size, _ = layers.heads(config)
    if config.has("per_layer_config"):
        return (
            _of_single_layers(config, "num_key_value_heads", kv_heads),
            _of_single_layers(config, "head_dim", size),
        )
    if config.values.get("attention_k_eq_v"):
        kv_heads = config.count("num_global_key_value_heads", default=kv_heads)
    return kv_heads, config.count("global_head_dim", default=size)


def _of_single_layers(config: Config, key: str, default: int) -> int:
    """As transformers 5 saves it: an entry for each layer that differs."""
    own = config.inner("per_layer_config")
    return next((own.inner(layer).count(key, default=default) for layer in own.values), default)


def llama4(config: Config) -> Layers:
    """Chunks where positions rotate; all the way back in layers without rotation."""
    if listed(config):
        return by_types(config)
    depth = layers.depth(config)
    chunk = config.count("attention_chunk_size", default=8192)
    flags = config.counts("no_rope_layers")
    every = config.count("no_rope_layer_interval", default=4)
    full = sum(1 for flag in flags if flag == 0) if flags else depth // every
    return (
        layers.attention(config, full),
        layers.attention(config, depth - full, "chunked", chunk),
    ), ()


def mllama(config: Config) -> Layers:
    """Some layers look at a picture instead of the text: unless listed, as in 11B."""
    depth = layers.depth(config)
    own = config.counts("cross_attention_layers")
    cross = len(range(3, min(depth, 40), 5) if own is None else own)
    return (
        layers.attention(config, depth - cross),
        layers.attention(config, cross, "cross"),
    ), ()
