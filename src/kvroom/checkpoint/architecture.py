"""The memory-relevant shape of a model: layers by kind, in elements. Engines make bytes of it."""

from typing import Literal

import msgspec

AttentionKind = Literal["full", "sliding", "chunked", "mla", "cross"]
StateKind = Literal["gated_delta_net", "kda", "mamba1", "mamba2", "short_conv"]


class Attention(msgspec.Struct, frozen=True, kw_only=True):
    """Layers that cache keys and values, alike among themselves."""

    kind: AttentionKind
    layers: int
    kv_heads: int
    """1 for MLA, which caches one latent vector."""
    key_dim: int
    """Elements of a head's key; for MLA the latent and the rotary part together."""
    value_dim: int
    """0 for MLA, whose values lie in the latent."""
    window: int | None = None
    """Tokens a sliding window or a chunk reaches back."""
    own_dtype: str | None = None
    """Dtype of what these layers keep, whatever the cache's is."""

    def elements(self, tensor_parallel: int = 1) -> int:
        """Elements per token and layer on one rank; heads are replicated when there are too few."""
        heads = self.kv_heads if self.kind == "mla" else max(1, self.kv_heads // tensor_parallel)
        return heads * (self.key_dim + self.value_dim)


class State(msgspec.Struct, frozen=True, kw_only=True):
    """Layers that keep a state of fixed size per request instead of keys and values."""

    kind: StateKind
    layers: int
    conv_channels: int
    conv_columns: int
    """Past inputs the convolution keeps: its kernel less one."""
    recurrent: int
    """Elements of the recurrent state; 0 for a short convolution."""

    def conv(self, tensor_parallel: int = 1, speculative: int = 0) -> int:
        """Elements of the convolution state per layer on one rank, with columns for drafts."""
        return self.conv_channels // tensor_parallel * (self.conv_columns + speculative)

    def ssm(self, tensor_parallel: int = 1) -> int:
        """Elements of the recurrent state per layer on one rank."""
        return self.recurrent // tensor_parallel


class Architecture(msgspec.Struct, frozen=True, kw_only=True):
    """A model's layers and the dtypes it declares."""

    family: str
    """``model_type`` of the configuration."""
    attention: tuple[Attention, ...] = ()
    states: tuple[State, ...] = ()
    dtype: str = "bfloat16"
    """Of activations, and of the cache unless something else is said."""
    ssm_dtype: str | None = None
    """Of the recurrent state, where the text part of the configuration declares it."""
    ssm_dtype_outside: str | None = None
    """The same, where the outermost level declares it; some engines look only there."""
    kv_quant: str | None = None
    """Quantisation of the cache that the checkpoint itself asks for: ``fp8`` or ``nvfp4``."""
    max_len: int | None = None
    hidden: int = 0
    vocab: int = 0
    draft: Attention | None = None
    """The attention of a multi-token-prediction head, used only with speculation."""
    guesses: tuple[str, ...] = ()
    """What could not be read and was assumed, one sentence each."""

    @property
    def full_layers(self) -> int:
        """Layers whose cache grows with every token."""
        return sum(a.layers for a in self.attention if a.kind in ("full", "mla"))
