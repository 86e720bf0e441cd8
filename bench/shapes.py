"""The shape of a model as a case tells it -> an architecture."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from kvroom.checkpoint.architecture import Architecture, Attention, State

SYNTHETIC = ("conv_layers", "compressor_blocks")
"""Told only in part: good for shares, not for bytes."""


def architecture(shape: Mapping[str, Any], model: str) -> Architecture | None:
    """Layers by kind; None where the shape is not told."""
    attention, states = tuple(_attention(shape)), tuple(_states(shape))
    if not attention and not states:
        return None
    head = next((a for a in attention if a.kind in ("full", "mla")), None)
    draft = msgspec.structs.replace(head, layers=1) if head and shape.get("mtp_layers") else None
    return Architecture(
        family=_family(shape, model),
        attention=attention,
        states=states,
        ssm_dtype="float32" if shape.get("gdn_v_heads") else None,
        draft=draft,
        dtype="float16" if "fp16" in model else "bfloat16",
    )


def _family(shape: Mapping[str, Any], model: str) -> str:
    name = model.lower()
    if "gemma-4" in name:
        return "gemma4_text"
    if shape.get("gdn_v_heads"):
        return "qwen3_5_text" if shape["gdn_v_heads"] == 48 else "qwen3_next"
    return "kimi_linear" if "kimi" in name else "llama"


def _attention(shape: Mapping[str, Any]) -> Iterator[Attention]:
    linear = sum(shape.get(name, 0) for name in ("linear_layers", "kda_layers", "mamba_layers"))
    if shape.get("kv_lora_rank"):
        layers = shape.get("mla_layers") or shape["layers"] - linear
        width = shape["kv_lora_rank"] + shape.get("qk_rope_head_dim", 0)
        yield Attention(kind="mla", layers=layers, kv_heads=1, key_dim=width, value_dim=0)
        return
    if shape.get("swa_layers") and shape.get("swa_head_dim"):
        yield _heads(
            "full", shape["full_layers"], shape["global_kv_heads"], shape["global_head_dim"]
        )
        yield _heads("sliding", shape["swa_layers"], shape["swa_kv_heads"], shape["swa_head_dim"],
                     shape["sliding_window"])  # fmt: skip
        return
    if shape.get("conv_layers"):
        yield from _with_convolutions(shape)
        return
    if shape.get("compressor_blocks"):
        yield from _compressors(shape)
        return
    if shape.get("swa_groups"):
        yield _heads("full", shape.get("global_groups", 1), 2, 512)
        yield _heads("sliding", shape["swa_groups"], 8, 256, shape["sliding_window"])
        return
    heads, size = shape.get("kv_heads"), shape.get("head_dim")
    if heads and size and shape.get("layers"):
        yield _heads("full", shape.get("full_attention_layers") or shape["layers"] - linear, heads,
                     size)  # fmt: skip
    elif shape.get("key_length") and shape.get("heads"):
        yield Attention(kind="full", layers=shape["layers"], kv_heads=shape["heads"],
                        key_dim=shape["key_length"], value_dim=shape["value_length"])  # fmt: skip


def _with_convolutions(shape: Mapping[str, Any]) -> Iterator[Attention]:
    """Full and windowed layers, and short convolutions kept as windows of a few wide tokens."""
    ranks = 4
    each = shape["attn_bytes_per_token_layer_rank"] // 4
    yield _heads("full", shape["full_layers"], ranks, each)
    yield _heads("sliding", shape["swa_layers"], ranks, each, shape["sliding_window"])
    wide = shape["page_bytes"] // shape["conv_block"] // 4
    yield _heads("sliding", shape["conv_layers"], ranks, wide, shape["conv_window"])


def _compressors(shape: Mapping[str, Any]) -> Iterator[Attention]:
    """Groups whose pages are as wide as any and hold a few tokens each."""
    wide, block = 576, 256
    yield Attention(kind="mla", layers=1, kv_heads=1, key_dim=wide, value_dim=0)
    for tokens in shape["compressor_blocks"]:
        yield Attention(
            kind="sliding",
            layers=1,
            kv_heads=1,
            key_dim=wide * block // tokens,
            value_dim=0,
            window=tokens,
        )


def _heads(kind: Any, layers: int, heads: int, size: int, window: int | None = None) -> Attention:
    return Attention(
        kind=kind, layers=layers, kv_heads=heads, key_dim=size, value_dim=size, window=window
    )


def _states(shape: Mapping[str, Any]) -> Iterator[State]:
    columns = shape.get("conv_kernel", 4) - 1
    if shape.get("gdn_v_heads"):
        size = shape["gdn_head_dim"]
        yield State(
            kind="gated_delta_net",
            layers=shape["linear_layers"],
            conv_channels=2 * shape["gdn_k_heads"] * size + shape["gdn_v_heads"] * size,
            conv_columns=columns,
            recurrent=shape["gdn_v_heads"] * size * size,
        )
    elif shape.get("state_mib_per_slot"):
        elements = int(shape["state_mib_per_slot"] * 2**20 / 2)
        yield State(kind="mamba2", layers=1, conv_channels=0, conv_columns=0, recurrent=elements)
    elif shape.get("kda_layers") and shape.get("kda_heads"):
        heads, size = shape["kda_heads"], shape["kda_head_dim"]
        yield State(
            kind="kda",
            layers=shape["kda_layers"],
            conv_channels=3 * heads * size,
            conv_columns=columns,
            recurrent=heads * size * size,
        )
