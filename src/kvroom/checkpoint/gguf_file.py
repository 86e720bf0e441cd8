"""A GGUF file's metadata -> architecture and weights."""

from collections import Counter
from pathlib import Path
from typing import Any

from kvroom.checkpoint.architecture import Architecture, Attention, State
from kvroom.checkpoint.tensors import Tensor
from kvroom.errors import InputError

DAMAGED = (ValueError, LookupError, TypeError, ArithmeticError, MemoryError, OSError)
"""What the reader runs into when counts, offsets or texts of a file are not what they should be."""

MLA_FAMILIES = ("deepseek2", "kimi-linear", "glm-dsa")


class GgufFile:
    """An open GGUF file: metadata by key, tensors by header."""

    def __init__(self, path: Path) -> None:
        import gguf

        self.path = path
        try:
            self.reader: Any = gguf.GGUFReader(path)
            self.family = str(self.get("general.architecture"))
        except DAMAGED as error:
            raise InputError(f"{path} cannot be read as GGUF: {error}") from None

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key; InputError if it is missing and has no default."""
        field = self.reader.fields.get(key)
        if field is not None:
            return field.contents()
        if default is None:
            raise InputError(f"{self.path} has no metadata key {key!r}")
        return default

    def own(self, key: str, default: Any = None) -> Any:
        """The value of a key of this file's family."""
        return self.get(f"{self.family}.{key}", default)

    def tensors(self) -> list[Tensor]:
        """Names, types and bytes of all tensors."""
        return [
            Tensor(str(t.name), t.tensor_type.name, int(t.n_bytes)) for t in self.reader.tensors
        ]


def gguf_architecture(file: GgufFile) -> Architecture:
    """The architecture that a GGUF file describes; InputError names what is missing."""
    try:
        return _architecture(file)
    except DAMAGED as error:
        raise InputError(f"{file.path} cannot be read as GGUF: {error}") from None


def _architecture(file: GgufFile) -> Architecture:
    depth = int(file.own("block_count"))
    attention, states = _layers(file, depth)
    return Architecture(
        family=file.family,
        attention=tuple(a for a in attention if a.layers),
        states=tuple(states),
        max_len=int(file.own("context_length")),
        hidden=int(file.own("embedding_length")),
        vocab=len(file.get("tokenizer.ggml.tokens", [0])),
    )


def _layers(file: GgufFile, depth: int) -> tuple[list[Attention], list[State]]:
    """KV heads may be listed layer by layer; a layer with none keeps a state instead."""
    heads = file.own("attention.head_count")
    listed = file.own("attention.head_count_kv", heads)
    per_layer = [int(n) for n in listed] if isinstance(listed, list) else [int(listed)] * depth
    interval = int(file.own("full_attention_interval", 0) or 0)
    if interval:
        per_layer = [n if (i + 1) % interval == 0 else 0 for i, n in enumerate(per_layer)]
    first = heads[0] if isinstance(heads, list) else heads
    size = int(file.own("attention.key_length", int(file.own("embedding_length")) // int(first)))
    value = int(file.own("attention.value_length", size))
    if file.family in MLA_FAMILIES:
        latent = int(file.own("attention.kv_lora_rank")) + int(file.own("rope.dimension_count"))
        return [Attention(kind="mla", layers=depth, kv_heads=1, key_dim=latent, value_dim=0)], []
    window = int(file.own("attention.sliding_window", 0) or 0)
    sliding = _sliding(file, depth) if window else 0
    counts = Counter(n for n in per_layer if n)
    attention = [
        Attention(kind="full", layers=n - (sliding if len(counts) == 1 else 0), kv_heads=kv,
                  key_dim=size, value_dim=value)
        for kv, n in counts.items()
    ]  # fmt: skip
    if sliding:
        kv_heads = next(iter(counts))
        attention.append(Attention(kind="sliding", layers=sliding, kv_heads=kv_heads,
                                   key_dim=size, value_dim=value, window=window))  # fmt: skip
    stateful = per_layer.count(0)
    return attention, [_state(file, stateful)] if stateful else []


def _sliding(file: GgufFile, depth: int) -> int:
    """How many layers have a window: llama.cpp knows the pattern by the family."""
    pattern = {"gemma2": 2, "gemma3": 6, "gpt-oss": 2, "gemma4": 6}.get(file.family)
    return depth - depth // pattern if pattern else depth


def _state(file: GgufFile, layers: int) -> State:
    """llama.cpp's keys: conv kernel, inner size, groups and state size."""
    inner, state = int(file.own("ssm.inner_size")), int(file.own("ssm.state_size"))
    groups = int(file.own("ssm.group_count", 1))
    return State(
        kind="mamba2",
        layers=layers,
        conv_channels=inner + 2 * groups * state,
        conv_columns=int(file.own("ssm.conv_kernel")) - 1,
        recurrent=inner * state,
    )
