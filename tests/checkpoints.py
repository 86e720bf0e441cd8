"""Builders of model folders, true and false, and how they are read."""

import json
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from kvroom.checkpoint.index import INDEX
from kvroom.checkpoint.read import read_checkpoint
from kvroom.checkpoint.tensors import BITS
from kvroom.errors import InputError

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "vocab_size": 100,
}
EMBEDDING = {"model.embed_tokens.weight": ("BF16", [100, 64])}
LAYER = {"model.layers.0.mlp.up_proj.weight": ("BF16", [128, 64])}
FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
INDEXED = {
    "metadata": {"total_size": 29_184},
    "weight_map": {next(iter(EMBEDDING)): FIRST, next(iter(LAYER)): SECOND},
}
BOTH = {FIRST: EMBEDDING, SECOND: LAYER}
SLOW_S = 10
"""Far more than any of these may take, on a busy machine too."""

Shapes = Mapping[str, tuple[str, Sequence[int]]]


def entries(shapes: Shapes) -> dict[str, Any]:
    """A true header: tensors side by side."""
    made, end = {}, 0
    for name, (dtype, shape) in shapes.items():
        start, end = end, end + math.prod(shape) * BITS[dtype] // 8
        made[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}
    return made


def a_file(path: Path, text: bytes, data: int, length: int | None = None) -> Path:
    """A safetensors file of any header and so many bytes of data, as a hole."""
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text) if length is None else length) + text)
        file.truncate(8 + len(text) + data)
    return path


def a_shard(path: Path, shapes: Shapes) -> Path:
    made = entries(shapes)
    data = max((entry["data_offsets"][1] for entry in made.values()), default=0)
    return a_file(path, json.dumps({"__metadata__": {"format": "pt"}, **made}).encode(), data)


def a_folder(
    folder: Path, shards: Mapping[str, Shapes] | None = None, index: Any = None, **config: Any
) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**LLAMA, **config}))
    for name, shapes in (shards or {}).items():
        a_shard(folder / name, shapes)
    if index is not None:
        (folder / INDEX).write_text(json.dumps(index))
    return folder


def weighed(folder: Path) -> dict[str, int]:
    weights = read_checkpoint(str(folder)).weights
    assert weights is not None
    return {str(part): size for part, size in weights.parts.items()}


def refused(model: Path) -> str:
    """The one sentence."""
    with pytest.raises(InputError) as raised:
        read_checkpoint(str(model))
    said = str(raised.value)
    assert "\n" not in said
    assert len(said) < 700
    return said


def outcome(call: Callable[[], Any]) -> Any:
    """What it returns, or what it refuses with; any other exception is a fault."""
    try:
        return call()
    except InputError as error:
        return str(error)
