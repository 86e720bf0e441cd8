"""A GGUF file's metadata -> architecture, by the keys that llama.cpp reads."""

from collections import Counter
from typing import NoReturn

import msgspec

from kvroom.checkpoint.architecture import Architecture, Attention, State, StateKind
from kvroom.checkpoint.gguf_file import GgufHead, Listed
from kvroom.errors import InputError

MAX_LAYERS = 4096

_PERIODS = {"gemma2": 2, "gemma3": 6, "gemma3n": 5, "gpt-oss": 2, "cohere2": 4, "exaone4": 4,
            "exaone-moe": 4, "olmo2": 4, "plamo3": 8, "afmoe": 4, "smallthinker": 4,
            "llama4": 4}  # fmt: skip
"""Every so many layers one is full. Families that are not here ignore a window unless they list
their layers."""
_FULL_FIRST = ("smallthinker",)
_CHUNK = 8192
"""Llama 4's; llama.cpp reads no key for it."""
_GEMMA3N_KEEP = 20
"""Layers of Gemma 3n that keep keys and values; the others reuse theirs."""

_INTERVAL = ("qwen3next", "qwen35", "qwen35moe")
_EVERY = 4
_BOTH = ("falcon-h1",)
_STATES_ONLY = ("mamba", "mamba2")
_KINDS: dict[str, StateKind] = {
    **dict.fromkeys(_INTERVAL, "gated_delta_net"),
    "mamba": "mamba1",
    "jamba": "mamba1",
}


def depth_of(head: GgufHead) -> int:
    """Layers of the model itself; those that draft come after them."""
    layers = head.count("block_count", least=1)
    drafts = head.count("nextn_predict_layers", 0)
    if layers > MAX_LAYERS or drafts >= layers:
        raise head.wrong(f"{head.family}.block_count", f"{layers} layers, {drafts} of them drafts")
    return layers - drafts


def gguf_architecture(head: GgufHead) -> Architecture:
    """The architecture that a GGUF file describes; InputError names what is missing."""
    depth = depth_of(head)
    kv_heads = _kv_heads(head, depth)
    recurrent = _recurrent(head, kv_heads)
    attention = _attention(head, kv_heads, recurrent if head.family not in _BOTH else set())
    states = _states(head, len(recurrent))
    if not attention and not states:
        _no_layers(head)
    main = next((a for a in attention if a.kind in ("full", "mla")), None)
    drafts = head.count("nextn_predict_layers", 0)
    return Architecture(
        family=head.family,
        attention=attention,
        states=states,
        max_len=head.count("context_length", least=1),
        hidden=head.count("embedding_length", least=1),
        vocab=_vocabulary(head),
        draft=msgspec.structs.replace(main, layers=drafts) if drafts and main else None,
    )


def _no_layers(head: GgufHead) -> NoReturn:
    if head.family in _STATES_ONLY:
        raise head.lacks(f"{head.family}.ssm.inner_size")
    raise InputError(
        f"{head.path}: no layer of the family {head.family!r} keeps what kvroom knows",
        "give a model with attention, a state space or short convolutions",
    )


def _vocabulary(head: GgufHead) -> int:
    tokens = head.fields.get("tokenizer.ggml.tokens")
    return tokens.length if isinstance(tokens, Listed) else head.count("vocab_size", 1)


def _kv_heads(head: GgufHead, depth: int) -> list[int]:
    """For each layer; none where it keeps no keys and values."""
    if head.family in _STATES_ONLY:
        return [0] * depth
    heads = head.each("attention.head_count", depth)
    return head.each("attention.head_count_kv", depth, heads)


def _recurrent(head: GgufHead, kv_heads: list[int]) -> set[int]:
    """The layers that keep a state."""
    depth = len(kv_heads)
    listed = head.value("attention.recurrent_layers")
    if isinstance(listed, list):
        return {i for i, flag in enumerate(head.each("attention.recurrent_layers", depth)) if flag}
    if head.family in _BOTH:
        return set(range(depth))
    without = {i for i, heads in enumerate(kv_heads) if not heads}
    if not without and (head.family in _INTERVAL or head.value("full_attention_interval")):
        every = head.count("full_attention_interval", _EVERY, least=1)
        return {i for i in range(depth) if (i + 1) % every}
    if head.family.startswith("nemotron_h"):  # its feed-forward layers keep nothing
        wide = head.each("feed_forward_length", depth)
        return {i for i in without if not wide[i]}
    return without


def _attention(head: GgufHead, kv_heads: list[int], recurrent: set[int]) -> tuple[Attention, ...]:
    """Layers that are alike together, full ones first."""
    keep = len(kv_heads) - head.count("attention.shared_kv_layers", 0)
    if head.family == "gemma3n" and head.value("attention.shared_kv_layers") is None:
        keep = _GEMMA3N_KEEP
    layers = [i for i, n in enumerate(kv_heads[: max(0, keep)]) if n and i not in recurrent]
    if not layers:
        return ()
    if head.count("attention.key_length_mla", 0):
        latent = head.count("attention.kv_lora_rank", least=1) + head.count("rope.dimension_count")
        return (Attention(kind="mla", layers=len(layers), kv_heads=1, key_dim=latent, value_dim=0),)
    windowed = _windowed(head, len(kv_heads))
    alike = Counter((windowed[i], kv_heads[i]) for i in layers)
    return tuple(
        _alike(head, slides, heads, number)
        for (slides, heads), number in sorted(alike.items(), key=lambda pair: pair[0][0])
    )


def _alike(head: GgufHead, slides: bool, kv_heads: int, layers: int) -> Attention:
    key, value = _head_sizes(head)
    if not slides:
        return Attention(
            kind="full", layers=layers, kv_heads=kv_heads, key_dim=key, value_dim=value
        )
    return Attention(
        kind="chunked" if head.family == "llama4" else "sliding",
        layers=layers,
        kv_heads=kv_heads,
        key_dim=head.count("attention.key_length_swa", key, least=1),
        value_dim=head.count("attention.value_length_swa", value, least=1),
        window=_window(head),
    )


def _head_sizes(head: GgufHead) -> tuple[int, int]:
    """Of a key and a value, each by itself the width of the model over its heads if not given."""
    heads = _heads(head)
    even = head.count("embedding_length", least=1) // heads if heads else 0
    sizes = [head.count(f"attention.{which}_length", even) for which in ("key", "value")]
    if not all(sizes):
        raise head.wrong(f"{head.family}.attention.key_length", "a head without elements")
    return sizes[0], sizes[1]


def _heads(head: GgufHead) -> int:
    """Of the first layer that has any, 0 where none has."""
    listed = head.value("attention.head_count")
    layers = len(listed) if isinstance(listed, list) else 1
    return next((one for one in head.each("attention.head_count", layers) if one), 0)


def _window(head: GgufHead) -> int:
    return head.count("attention.sliding_window", _CHUNK if head.family == "llama4" else 0)


def _windowed(head: GgufHead, depth: int) -> list[bool]:
    """Which layers have a window: listed, every so many by the file, or by the family."""
    pattern = head.value("attention.sliding_window_pattern")
    if not _window(head):
        return [False] * depth
    if isinstance(pattern, list):
        return [bool(one) for one in head.each("attention.sliding_window_pattern", depth)]
    period = head.count("attention.sliding_window_pattern", _PERIODS.get(head.family, 1), least=1)
    full = 0 if head.family in _FULL_FIRST else period - 1
    return [i % period != full for i in range(depth)]


def _states(head: GgufHead, layers: int) -> tuple[State, ...]:
    """By the keys that are there; a layer without any keeps nothing."""
    if not layers:
        return ()
    if head.value("shortconv.l_cache") is not None:
        channels, columns = head.count("embedding_length", least=1), head.count("shortconv.l_cache")
        return (_state("short_conv", layers, channels, columns, 0),)
    if head.value("kda.head_dim") is not None:
        size, heads = head.count("kda.head_dim", least=1), _heads(head)
        columns = head.count("ssm.conv_kernel", least=1)
        return (_state("kda", layers, 3 * heads * size, columns, heads * size * size),)
    if head.value("ssm.inner_size") is None:
        return ()
    inner, size = head.count("ssm.inner_size", least=1), head.count("ssm.state_size", least=1)
    channels = inner + 2 * head.count("ssm.group_count", 0) * size
    columns = head.count("ssm.conv_kernel", least=1)
    kind = _KINDS.get(head.family, "mamba2")
    return (_state(kind, layers, channels, columns, inner * size),)


def _state(kind: StateKind, layers: int, channels: int, kernel: int, recurrent: int) -> State:
    return State(
        kind=kind,
        layers=layers,
        conv_channels=channels,
        conv_columns=max(0, kernel - 1),
        recurrent=recurrent,
    )
