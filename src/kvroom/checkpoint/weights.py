"""Weights by part, from the names of tensors: what an engine loads and what it may leave out."""

import re
from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache
from typing import Literal

import msgspec

from kvroom.checkpoint.tensors import Tensor

Part = Literal["layers", "experts", "embeddings", "head", "encoder", "draft", "other"]

_LAYER = re.compile(r"(?:^|\.)(?:layers|blk|h|blocks)\.(\d+)\.")
_EXPERTS = re.compile(
    r"(?:^|\.)experts\.|block_sparse_moe\.(?:input|output)_linear\.|"
    r"(?:^|\.)ffn_\w+_exps\.|(?:^|\.)ffn_(?:gate|up|down)\.\d"
)
_PARTS: tuple[tuple[Part, re.Pattern[str]], ...] = (
    (
        "encoder",
        re.compile(
            r"^(?:v|a|mm)\.|"  # GGUF
            r"(?:^|\.)(?:visual\w*|vision\w*|audio\w*|image_\w+|embed_(?:vision|audio)|"
            r"embed_tokens_extend|\w*projector|mlp1|aligner|connector|resampler|vpm|apm|sam_model|"
            r"patch_merger|talker|token2wav|code2wav|tts)\."
        ),
    ),
    ("draft", re.compile(r"(?:^|\.)(?:mtp|nextn|eagle|medusa)[._]")),
    (
        "head",
        re.compile(r"(?:^|\.)(?:lm_head|embed_out|output_layer)\.|(?:^|language_model\.)output\."),
    ),
    (
        "embeddings",
        re.compile(
            r"(?:^|\.)(?:embed_tokens|embed_tokens_per_layer|tok_embeddings|wte|wpe|embed_in|"
            r"word_embeddings|embeddings?|token_embd|per_layer_token_embd)\."
        ),
    ),
)


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
    """Which part a tensor belongs to, by its name.

    What stands before the number of a layer says whose layer it is: an encoder has layers too.
    """
    layer = _LAYER.search(name)
    if layer is None:
        return _named(name)
    owner = _named(name[: layer.start() + 1])
    if owner in ("encoder", "draft"):
        return owner
    if depth is not None and int(layer[1]) >= depth:
        return "draft"
    return "experts" if _EXPERTS.search(name, layer.end() - 1) else "layers"


@lru_cache(maxsize=1024)
def _named(name: str) -> Part:
    return next((part for part, pattern in _PARTS if pattern.search(name)), "other")
