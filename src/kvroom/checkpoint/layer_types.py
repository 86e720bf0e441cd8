"""The list of layer types that newer configurations carry: a word for each layer."""

from collections import Counter
from collections.abc import Callable, Sequence

from kvroom.checkpoint import layers
from kvroom.checkpoint.architecture import Attention, State
from kvroom.checkpoint.config import Config

LINEAR = ("linear_attention", "mamba", "linear", "gated_delta_net", "kda")
"""What a list of layer types calls layers with a state."""

NOTHING = ("moe", "mlp", "dense", "sparse")
"""What it calls layers that keep nothing."""

FULL = ("full_attention", "attention")
KNOWN = {*FULL, "sliding_attention", "chunked_attention", "conv", *LINEAR, *NOTHING}

Layers = tuple[tuple[Attention, ...], tuple[State, ...]]
Reader = Callable[[Config], Layers]


def listed(config: Config) -> Sequence[str] | None:
    """A word for each layer, without those that take their keys and values from an earlier one."""
    types = config.words("layer_types") or config.words("layers_block_type")
    if types is None:
        return None
    depth = config.count("num_hidden_layers", "n_layer", "num_layers", default=len(types))
    if len(types) != depth:
        raise config.wrong("layer_types", f"{len(types)} types for {depth} layers")
    return types[: depth - _shared(config, depth)]


def _shared(config: Config, depth: int) -> int:
    """Layers at the end that keep nothing of their own (Gemma 3n and 4): not if it were all."""
    if not config.values.get("num_kv_shared_layers"):
        return 0
    shared = config.count("num_kv_shared_layers")
    return shared if shared < depth else 0


def by_types(config: Config) -> Layers:
    """So many layers of each kind; those of an unknown kind are taken for full attention."""
    words = listed(config)
    if words is None:
        raise config.wrong("layer_types", "it is missing")
    types = Counter(words)
    elsewhere = KNOWN.difference(FULL)
    full = sum(number for name, number in types.items() if name not in elsewhere)
    attention = [layers.attention(config, full)]
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


def in_rows(config: Config, every: int) -> Config:
    """With the list of layers that older files leave out."""
    if listed(config) is not None:
        return config
    types = [
        "sliding_attention" if (layer + 1) % every else "full_attention"
        for layer in range(layers.depth(config))
    ]
    return changed(config, layer_types=types)


def changed(config: Config, **values: object) -> Config:
    """The same, with some values told by others."""
    return Config({**config.values, **values}, config.file, config.level)
