"""Weights by part, from the names of tensors: what an engine loads and what it may leave out."""

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Literal

import msgspec

from kvroom.checkpoint.tensors import Tensor

Part = Literal["layers", "experts", "embeddings", "head", "encoder", "draft", "other"]

_PARTS: tuple[tuple[Part, re.Pattern[str]], ...] = (
    ("draft", re.compile(r"(^|\.)(mtp|mtp_layers|nextn|eagle|medusa)[._]")),
    (
        "encoder",
        re.compile(
            r"(^|\.)(visual|vision_\w+|vision|audio_\w+|audio|image_\w+|multi_modal_projector|"
            r"mm_projector|mlp1|aligner)\."
        ),
    ),
    ("head", re.compile(r"(^|\.)lm_head\.")),
    ("embeddings", re.compile(r"(^|\.)(embed_tokens|wte|word_embeddings|embeddings|token_embd)\b")),
    ("experts", re.compile(r"\.experts\.")),
    ("layers", re.compile(r"(^|\.)(layers|blk|h)\.\d+\.")),
)
_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of a checkpoint by part, and by storage dtype."""

    parts: dict[Part, int]
    dtypes: dict[str, int]

    @property
    def total(self) -> int:
        """Bytes of everything."""
        return sum(self.parts.values())

    def loaded(self, *, encoder: bool, draft: bool) -> int:
        """Bytes an engine holds, with or without the encoder and the draft head."""
        left_out = (0 if encoder else self.parts.get("encoder", 0)) + (
            0 if draft else self.parts.get("draft", 0)
        )
        return self.total - left_out


def weights_of(tensors: Iterable[Tensor], depth: int | None = None) -> Weights:
    """The parts of these tensors. Layers beyond ``depth`` belong to a draft head."""
    parts: defaultdict[Part, int] = defaultdict(int)
    dtypes: defaultdict[str, int] = defaultdict(int)
    for tensor in tensors:
        parts[part_of(tensor.name, depth)] += tensor.size
        dtypes[tensor.dtype] += tensor.size
    return Weights(parts=dict(parts), dtypes=dict(dtypes))


def part_of(name: str, depth: int | None = None) -> Part:
    """Which part a tensor belongs to, by its name."""
    layer = _LAYER.search(name)
    if depth is not None and layer is not None and int(layer[1]) >= depth:
        return "draft"
    return next((part for part, pattern in _PARTS if pattern.search(name)), "other")
