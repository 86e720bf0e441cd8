"""How families with states lay out their layers: one short function for each way."""

from collections import Counter

from kvroom.checkpoint import layers
from kvroom.checkpoint.config import Config
from kvroom.checkpoint.layer_types import Layers, by_types, changed, listed


def qwen_hybrid(config: Config) -> Layers:
    """One full layer ends each row, the others have a gated delta net."""
    if listed(config):
        return by_types(config)
    depth = layers.depth(config)
    full = depth // config.count("full_attention_interval", default=4)
    return (layers.attention(config, full),), (layers.gated_delta_net(config, depth - full),)


def kimi_linear(config: Config) -> Layers:
    """Latent attention, and delta attention in the layers that are listed for it."""
    types, depth = listed(config), layers.depth(config)
    delta = config.inner("linear_attn_config").counts("kda_layers")
    if types is None and delta is None:
        raise config.wrong("linear_attn_config", "it does not say which layers are linear")
    linear = Counter(types)["linear_attention"] if types else len(delta or ())
    return (layers.mla(config, depth - linear),), (layers.kda(config, linear),)


def nemotron_h(config: Config) -> Layers:
    """A letter for each layer: M a state, * attention, - and E neither."""
    config = _with_head_dim(config)
    if not config.has("hybrid_override_pattern"):
        return by_types(config)
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
    return changed(config, head_dim=config.count("attention_head_dim"))


def jamba(config: Config) -> Layers:
    """One layer with attention in each period, at its offset; the others are Mamba."""
    depth, period = layers.depth(config), config.count("attn_layer_period", default=8)
    offset = config.values.get("attn_layer_offset", 4)
    full = sum(1 for layer in range(depth) if layer % period == offset)
    return (layers.attention(config, full),), (layers.mamba1(config, depth - full),)


def bamba(config: Config) -> Layers:
    """Mamba 2, with attention in the layers that are listed for it."""
    if listed(config):
        return by_types(config)
    full = len(config.counts("attn_layer_indices") or ())
    return (layers.attention(config, full),), (layers.mamba2(config, layers.depth(config) - full),)


def falcon_h1(config: Config) -> Layers:
    """Every layer has both."""
    depth = layers.depth(config)
    return (layers.attention(config, depth),), (layers.mamba2(config, depth),)


def lfm2(config: Config) -> Layers:
    """Older files list only the layers with attention; without any list all have it."""
    if listed(config) is not None:
        return by_types(config)
    depth = layers.depth(config)
    own = config.counts("full_attn_idxs")
    full = depth if own is None else len(own)
    return (layers.attention(config, full),), (layers.short_conv(config, depth - full),)


def pure_mamba2(config: Config) -> Layers:
    """Mamba 2 in every layer."""
    return (), (layers.mamba2(config, layers.depth(config)),)


def pure_mamba1(config: Config) -> Layers:
    """Mamba in every layer."""
    return (), (layers.mamba1(config, layers.depth(config)),)
