"""What is set, in words that all engines share; an adapter translates each to its engine's own."""

from typing import Annotated, Any, Literal

import msgspec

from kvroom.units import Bytes

Count = Annotated[int, msgspec.Meta(ge=1, le=10_000_000)]
Share = Annotated[float, msgspec.Meta(gt=0, le=1)]


class Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a matchup file: a key that it does not know is a mistake."""


class Speculative(Strict, frozen=True):
    """Tokens guessed ahead and then checked in one step."""

    tokens: Annotated[int, msgspec.Meta(ge=1, le=64)]
    """How many are guessed at a time."""
    method: Literal["mtp", "ngram", "draft"] = "mtp"
    """Who guesses: the model's own multi-token head, its earlier text, or a smaller model."""
    model: str | None = None
    """The smaller model's path, for ``draft``."""

    def __post_init__(self) -> None:
        if (self.method == "draft") != (self.model is not None):
            raise ValueError("'method: draft' and 'model' belong together")


class Settings(Strict, frozen=True):
    """What is set, in our words; an adapter translates each to its engine's own or refuses it."""

    slots: Count | None = None
    """The most requests the engine runs at once."""
    max_len: Count | None = None
    """The most tokens of one request, prompt and output together."""
    kv_cache_dtype: str | None = None
    """Data type of the KV cache, in the engine's own spelling (auto, fp8, q8_0, u8, ...)."""
    kv_memory: Bytes | None = None
    """Memory for the KV cache, such as 20MiB."""
    memory_fraction: Share | None = None
    """Share of the device memory the engine may fill; each engine means another whole by it."""
    batch_tokens: Count | None = None
    """The most tokens the engine computes in one step."""
    prefix_cache: bool | None = None
    """Whether the engine may reuse the KV cache of equal prompt beginnings."""
    chunked_prefill: bool | None = None
    """Whether a long prompt may be computed in several steps."""
    text_only: bool | None = None
    """Leave the vision or audio part of the model out."""
    cuda_graphs: bool | Count | None = None
    """Whether steps are replayed from captured graphs; a number is the largest batch captured."""
    state_dtype: str | None = None
    """Data type of the recurrent states of Mamba and linear-attention layers."""
    speculative: Speculative | None = None
    """Tokens guessed ahead."""
    tensor_parallel: Count | None = None
    """Cards that share each layer."""
    threads: Count | None = None
    """CPU threads of the engine."""

    def given(self) -> dict[str, Any]:
        """The settings that were set, by name."""
        return {k: v for k, v in msgspec.structs.asdict(self).items() if v is not None}


class Limits(Strict, frozen=True):
    """Settings that all contenders share unless they set their own."""

    slots: Count | None = None
    """The most requests an engine runs at once."""
    max_len: Count | None = None
    """The most tokens of one request, prompt and output together."""

    def given(self) -> dict[str, Any]:
        """The limits that were set, by name."""
        return {k: v for k, v in msgspec.structs.asdict(self).items() if v is not None}


ASKED = ("slots", "max_len", "kv_cache_dtype", "memory_fraction", "batch_tokens", "prefix_cache",
         "tensor_parallel")  # fmt: skip
"""Settings that are options of commands which start nothing."""
