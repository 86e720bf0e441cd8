"""From a configuration to an architecture: families, and the way each lays out its layers.

A family that is not listed is read by its layer types or as a plain transformer, and says so.
"""

from collections.abc import Sequence

import msgspec

from kvroom.checkpoint import attention_layouts, hybrid_layouts
from kvroom.checkpoint.architecture import Architecture, Attention
from kvroom.checkpoint.attention_layouts import alternating, deepseek, dense
from kvroom.checkpoint.config import Config
from kvroom.checkpoint.defaults import completed
from kvroom.checkpoint.hybrid_layouts import bamba, qwen_hybrid
from kvroom.checkpoint.layer_types import KNOWN, LINEAR, Reader, by_types, listed

LENGTHS = ("max_position_embeddings", "seq_length", "model_max_length")
"""Where the longest request stands; ChatGLM and Kimi Linear have words of their own for it."""


def architecture(outer: Config) -> Architecture:
    """The architecture that a configuration describes."""
    family = outer.text.word("model_type") or outer.word("model_type") or "unknown"
    name = family.removesuffix("_model").removesuffix("_text")
    config = completed(outer.text, name)
    reader = FAMILIES.get(name)
    guesses: tuple[str, ...] = ()
    if reader is None:
        reader = _likely(config)
        guesses = (f"the family {family!r} is not known; read {GUESSES[reader]}",)
    attention, states = reader(config)
    return Architecture(
        family=family,
        attention=tuple(a for a in attention if a.layers),
        states=tuple(s for s in states if s.layers),
        dtype=_dtype(config) or _dtype(outer) or "bfloat16",
        ssm_dtype=config.word("mamba_ssm_dtype") or config.word("mamba_ssm_cache_dtype"),
        ssm_dtype_outside=outer.word("mamba_ssm_dtype") or outer.word("mamba_ssm_cache_dtype"),
        kv_quant=_kv_quant(outer),
        max_len=config.count(*LENGTHS, default=0) or None,
        hidden=config.count("hidden_size", "d_model", "n_embd", default=1),
        vocab=config.count("vocab_size", "padded_vocab_size", default=1),
        draft=_draft(config, attention),
        guesses=(*guesses, *_strange(config, reader)),
    )


def _likely(config: Config) -> Reader:
    """How to read a family that is not known: latent attention shows in its keys."""
    words = listed(config) or ()
    if config.has("kv_lora_rank") and not set(words).intersection(LINEAR):
        return deepseek
    return by_types if words else dense


def _strange(config: Config, reader: Reader) -> Sequence[str]:
    """A sentence for each kind of layer that a list names and nobody here knows."""
    if reader in UNLISTED:
        return ()
    return [
        f"layers of type {name!r} are not known; taken for full attention"
        for name in sorted(set(listed(config) or ()) - KNOWN)
    ]


def _dtype(config: Config) -> str | None:
    name = config.word("dtype") or config.word("torch_dtype")
    return name.removeprefix("torch.") if name else None


def _kv_quant(outer: Config) -> str | None:
    """ModelOpt and compressed-tensors write it in different places."""
    for level in (outer, outer.text):
        quant = level.inner("quantization_config")
        for place in (quant, quant.inner("quantization")):
            algorithm = place.word("kv_cache_quant_algo")
            if algorithm:
                return algorithm.lower()
        scheme = quant.inner("kv_cache_scheme")
        if scheme.has("num_bits"):
            return {8: "fp8", 4: "nvfp4"}.get(scheme.count("num_bits"))
    return None


def _draft(config: Config, attention: Sequence[Attention]) -> Attention | None:
    keys = ("mtp_num_hidden_layers", "num_nextn_predict_layers")
    layers = next((config.count(k) for k in keys if config.has(k) and config.values[k]), 0)
    main = next((a for a in attention if a.kind in ("full", "mla")), None)
    if not layers or main is None:
        return None
    return msgspec.structs.replace(main, layers=layers)


GUESSES: dict[Reader, str] = {
    by_types: "by its layer_types",
    dense: "as a plain transformer with grouped-query attention in every layer",
    deepseek: "as latent attention in every layer",
}

UNLISTED: tuple[Reader, ...] = (
    deepseek,
    attention_layouts.mllama,
    hybrid_layouts.kimi_linear,
    hybrid_layouts.jamba,
    hybrid_layouts.falcon_h1,
    hybrid_layouts.pure_mamba1,
    hybrid_layouts.pure_mamba2,
)
"""These read other keys than a list of layer types, whatever such a list says."""

FAMILIES: dict[str, Reader] = {
    **dict.fromkeys(
        ("llama", "mistral", "qwen2", "qwen3", "qwen2_moe", "qwen3_moe", "qwen2_vl", "qwen2_5_vl",
         "phi", "phi3", "phi4",
         "phimoe", "glm", "glm4", "glm4_moe", "mixtral", "mistral3", "ministral", "ministral3",
         "starcoder2", "granite", "granitemoe", "olmo2", "stablelm", "qwen3_vl",
         "qwen3_vl_moe", "minimax_m2", "hunyuan_v1_dense", "ernie4_5", "smollm3",
         "falcon", "chatglm"),
        dense,
    ),
    **dict.fromkeys(
        ("deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "glm4_moe_lite", "glm_moe_dsa",
         "glm5"),
        deepseek,
    ),
    "gemma": dense,
    "gemma2": alternating(2),
    "gemma3": alternating(6, "sliding_window_pattern"),
    "gemma3n": alternating(5),
    "gemma4": attention_layouts.gemma4,
    "gpt_oss": alternating(2),
    "cohere2": alternating(4, "sliding_window_pattern"),
    "exaone4": alternating(4, "sliding_window_pattern"),
    "olmo3": alternating(4),
    "llama4": attention_layouts.llama4,
    "mllama": attention_layouts.mllama,
    **dict.fromkeys(
        ("qwen3_next", "qwen3_5", "qwen3_5_moe", "qwen3_6", "qwen3_6_moe", "qwen3_8",
         "qwen3_8_moe"),
        qwen_hybrid,
    ),
    "kimi_linear": hybrid_layouts.kimi_linear,
    "nemotron_h": hybrid_layouts.nemotron_h,
    "jamba": hybrid_layouts.jamba,
    "bamba": bamba,
    "granitemoehybrid": bamba,
    "falcon_h1": hybrid_layouts.falcon_h1,
    "mamba2": hybrid_layouts.pure_mamba2,
    "mamba": hybrid_layouts.pure_mamba1,
    "lfm2": hybrid_layouts.lfm2,
    "lfm2_moe": by_types,
}  # fmt: skip
