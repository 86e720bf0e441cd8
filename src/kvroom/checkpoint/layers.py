"""One kind of layer, from the keys of a configuration: its heads, or its state."""

from kvroom.checkpoint.architecture import Attention, AttentionKind, State
from kvroom.checkpoint.config import Config

INDEX_SCALES = 128
"""A sparse indexer keeps a scale of 4 bytes for so many elements of a key."""


def depth(config: Config) -> int:
    """How many layers the model has."""
    return config.count("num_hidden_layers", "n_layer", "num_layers")


def heads(config: Config) -> tuple[int, int, int]:
    """KV heads and the sizes of key and value heads."""
    number = config.count("num_attention_heads", "n_head", "num_heads")
    kv_heads = _kv_heads(config, number)
    hidden = config.count("hidden_size", "d_model", "n_embd")
    if not config.has("head_dim") and hidden % number:
        raise config.wrong("hidden_size", f"{hidden} is no multiple of {number} attention heads")
    size = config.count("head_dim", default=max(1, hidden // number))
    if number % kv_heads:
        raise config.wrong("num_key_value_heads", f"{kv_heads} does not divide {number} heads")
    return kv_heads, size, config.count("v_head_dim", default=size)


def _kv_heads(config: Config, number: int) -> int:
    """One for all heads where Falcon says ``multi_query``; ChatGLM tells groups of them."""
    if config.values.get("multi_query") and not config.values.get("new_decoder_architecture"):
        return 1
    keys = ["num_key_value_heads", "num_kv_heads"]
    if config.values.get("multi_query_attention") is not False:
        keys.append("multi_query_group_num")
    return config.count(*keys, default=number)


def attention(
    config: Config, layers: int, kind: AttentionKind = "full", window: int | None = None
) -> Attention:
    """So many layers of ordinary attention."""
    kv_heads, key, value = heads(config)
    return Attention(
        kind=kind, layers=layers, kv_heads=kv_heads, key_dim=key, value_dim=value, window=window
    )


def mla(config: Config, layers: int) -> Attention:
    """Layers that keep one latent vector, and its rotary part, for keys and values together."""
    latent = config.count("kv_lora_rank") + config.count("qk_rope_head_dim")
    return Attention(kind="mla", layers=layers, kv_heads=1, key_dim=latent, value_dim=0)


def sparse_index(config: Config, layers: int) -> Attention:
    """Layers that keep a key in 8 bits, and its scales, to choose what is looked at."""
    size = config.count("index_head_dim")
    packed = size + size // INDEX_SCALES * 4
    return Attention(
        kind="mla", layers=layers, kv_heads=1, key_dim=packed, value_dim=0, own_dtype="uint8"
    )


def gated_delta_net(config: Config, layers: int) -> State:
    """Qwen3-Next and its kin."""
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


def mamba2(config: Config, layers: int) -> State:
    """Mamba 2, under the names of several families."""
    number = config.count("mamba_n_heads", "mamba_num_heads", "num_heads")
    size = _mamba_head_dim(config, number)
    groups = config.count("mamba_n_groups", "n_groups", "mamba_ngroups", default=1)
    state = config.count("mamba_d_state", "ssm_state_size", "state_size", "mamba_state_dim")
    kernel = config.count("mamba_d_conv", "conv_kernel", "conv_kernel_size", default=4)
    return State(
        kind="mamba2",
        layers=layers,
        conv_channels=number * size + 2 * groups * state,
        conv_columns=kernel - 1,
        recurrent=number * size * state,
    )


def _mamba_head_dim(config: Config, number: int) -> int:
    """``head_dim`` is that of the attention, except where there is none."""
    pure = "head_dim" if config.has("num_heads") else "mamba_head_dim"
    for key in ("mamba_d_head", "mamba_head_dim", pure):
        if isinstance(config.values.get(key), int):
            return config.count(key)
    inner = config.count("mamba_expand", "expand", default=2) * config.count("hidden_size")
    return config.count("mamba_d_ssm", default=inner) // number


def mamba1(config: Config, layers: int) -> State:
    """Mamba, and the layers of Jamba."""
    inner = config.count("mamba_expand", "expand", default=2) * config.count("hidden_size")
    return State(
        kind="mamba1",
        layers=layers,
        conv_channels=inner,
        conv_columns=config.count("mamba_d_conv", "conv_kernel", default=4) - 1,
        recurrent=inner * config.count("mamba_d_state", "state_size", default=16),
    )


def short_conv(config: Config, layers: int) -> State:
    """LFM2: a convolution and no more."""
    return State(
        kind="short_conv",
        layers=layers,
        conv_channels=config.count("conv_dim", "hidden_size"),
        conv_columns=config.count("conv_L_cache", default=3) - 1,
        recurrent=0,
    )


def kda(config: Config, layers: int) -> State:
    """Kimi delta attention: three convolutions, and a square state for each head."""
    inner = config.inner("linear_attn_config")
    number = inner.count("num_heads", default=config.count("linear_num_heads", default=32))
    size = inner.count("head_dim", default=config.count("linear_head_dim", default=128))
    kernel = config.count("linear_conv_kernel_dim", default=4)
    return State(
        kind="kda",
        layers=layers,
        conv_channels=3 * number * size,
        conv_columns=inner.count("short_conv_kernel_size", default=kernel) - 1,
        recurrent=number * size * size,
    )


def state(config: Config, layers: int) -> State:
    """Layers that are called linear: which kind they are shows in the keys there are."""
    if config.has("linear_num_key_heads"):
        return gated_delta_net(config, layers)
    if config.has("linear_head_dim") or config.has("linear_attn_config"):
        return kda(config, layers)
    if config.has("mamba_dt_rank"):
        return mamba1(config, layers)
    return mamba2(config, layers)
