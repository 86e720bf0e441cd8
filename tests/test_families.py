"""Layers of every family against transformers' own modules, and by the keys of published files."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import Oracle
from kvroom.checkpoint.architecture import Architecture, Attention
from kvroom.checkpoint.config import Config
from kvroom.checkpoint.defaults import LEFT_OUT
from kvroom.checkpoint.families import FAMILIES, architecture
from kvroom.errors import InputError

Values = dict[str, Any]
Kept = Counter[tuple[Any, ...]]


def without(values: Values, key: str) -> Values:
    return {other: value for other, value in values.items() if other != key}


PLAIN: Values = {
    "hidden_size": 192, "intermediate_size": 64, "num_hidden_layers": 6, "num_attention_heads": 12,
    "num_key_value_heads": 3, "vocab_size": 500, "max_position_embeddings": 2048,
    "pad_token_id": 0,
}  # fmt: skip
"""No size is a simple multiple of another, so that none can stand in for another."""
FALCON = without(PLAIN, "num_key_value_heads")
SIZED = PLAIN | {"head_dim": 24}
MOE: Values = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
ROUTED: Values = {
    "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_group": 1,
    "topk_group": 1,
}  # fmt: skip
LOCAL: Values = {"num_local_experts": 4, "num_experts_per_tok": 2}
GDN: Values = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16,
    "linear_value_head_dim": 24, "linear_conv_kernel_dim": 5,
}  # fmt: skip
MLA: Values = {
    "kv_lora_rank": 40, "q_lora_rank": 32, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16,
    "v_head_dim": 20,
}  # fmt: skip
INDEX: Values = {"index_n_heads": 2, "index_head_dim": 128, "index_topk": 8}
MAMBA2: Values = {
    "mamba_n_heads": 8, "mamba_d_head": 48, "mamba_d_state": 12, "mamba_n_groups": 2,
    "mamba_d_conv": 5,
}  # fmt: skip
CONV = ["conv", "full_attention", "conv", "conv", "full_attention", "conv"]
MAMBA = ["mamba", "attention", "mamba", "mamba", "attention", "mamba"]
WINDOW: Values = {"sliding_window": 64}
SWITCHED = WINDOW | {
    "use_sliding_window": True, "max_window_layers": 2, "num_hidden_layers": 82,
}  # fmt: skip
NEMOTRON_H: Values = {
    "mamba_num_heads": 6, "mamba_head_dim": 20, "ssm_state_size": 12, "n_groups": 2,
    "conv_kernel": 5, "n_routed_experts": 4, "moe_intermediate_size": 32, "num_experts_per_tok": 2,
}  # fmt: skip
GEMMA_3N: Values = {
    "num_hidden_layers": 20, "num_kv_shared_layers": 2, "intermediate_size": [64] * 20,
    "vocab_size_per_layer_input": 50, "hidden_size_per_layer_input": 16,
    "activation_sparsity_pattern": [0.0] * 20,
}  # fmt: skip
GEMMA_4: Values = {"num_hidden_layers": 12, "global_head_dim": 48}
LLAMA_4: Values = {
    "attention_chunk_size": 64, "num_hidden_layers": 8, "num_local_experts": 2,
    "intermediate_size_mlp": 64,
}  # fmt: skip

MODELS: dict[str, tuple[str, Values]] = {
    "Llama": ("llama", SIZED),
    "Llama, in a wrapper": ("llava", {"text_config": {"model_type": "llama"}}),
    "Mistral 7B v0.1": ("mistral", SIZED | {"sliding_window": 96}),
    "Mistral": ("mistral", SIZED | {"sliding_window": None}),
    "Mistral 3, with vision": ("mistral3", {"text_config": SIZED | {"model_type": "mistral"}}),
    "Mistral 3, all left out": ("mistral3", {"text_config": {"model_type": "mistral"}}),
    "Mistral 3, most left out": (
        "mistral3",
        {
            "text_config": {
                "model_type": "mistral", "head_dim": 24, "num_hidden_layers": 6,
                "sliding_window": None,
            },
        },
    ),
    "Ministral": ("ministral", SIZED | WINDOW),
    "Ministral 3": ("ministral3", SIZED),
    "Mixtral": ("mixtral", SIZED | {"num_local_experts": 4}),
    "Qwen2, its window switched off": ("qwen2", PLAIN | WINDOW | {"use_sliding_window": False}),
    "Qwen2, in a wrapper": ("llava_onevision", {"text_config": {"model_type": "qwen2"}}),
    "Qwen2, two full layers first": (
        "qwen2",
        PLAIN | SWITCHED,
    ),
    "Qwen2 MoE": ("qwen2_moe", PLAIN | MOE),
    "Qwen2 MoE, its window switched off": (
        "qwen2_moe", PLAIN | MOE | WINDOW | {"use_sliding_window": False},
    ),
    "Qwen2-VL": ("qwen2_vl", {"text_config": PLAIN}),
    "Qwen2-VL, its window in use": ("qwen2_vl", {"text_config": PLAIN | SWITCHED}),
    "Qwen2.5-VL": ("qwen2_5_vl", {"text_config": PLAIN}),
    "Qwen2.5-VL, its window in use": ("qwen2_5_vl", {"text_config": PLAIN | SWITCHED}),
    "Qwen3": ("qwen3", SIZED),
    "Qwen3, its window in use": ("qwen3", SIZED | SWITCHED),
    "Qwen3 MoE": ("qwen3_moe", SIZED | MOE),
    "Qwen3 MoE, its window in use": (
        "qwen3_moe", SIZED | MOE | WINDOW | {"use_sliding_window": True},
    ),
    "Qwen3-VL": ("qwen3_vl", {"text_config": SIZED}),
    "Qwen3-VL MoE": ("qwen3_vl_moe", {"text_config": SIZED | MOE}),
    "Qwen3-Next": ("qwen3_next", SIZED | MOE | GDN | {"full_attention_interval": 3}),
    "Qwen3.5": ("qwen3_5", {"text_config": SIZED | GDN | {"full_attention_interval": 3}}),
    "Qwen3.5 MoE": ("qwen3_5_moe", {"text_config": SIZED | GDN | MOE}),
    "DeepSeek V2": ("deepseek_v2", PLAIN | MLA | ROUTED),
    "DeepSeek V3": ("deepseek_v3", PLAIN | MLA | ROUTED),
    "Kimi K2.5": (
        "kimi_k25", {"text_config": PLAIN | MLA | ROUTED | {"model_type": "deepseek_v3"}},
    ),
    "DeepSeek V3.2": ("deepseek_v32", PLAIN | MLA | ROUTED | INDEX),
    "Gemma": ("gemma", SIZED),
    "Gemma 2": ("gemma2", SIZED | WINDOW),
    "Gemma 3, text": ("gemma3_text", SIZED | WINDOW),
    "Gemma 3": ("gemma3", {"text_config": SIZED | WINDOW | {"num_hidden_layers": 8}}),
    "Gemma 3, all left out": ("gemma3", {"text_config": {}}),
    "Gemma 3 12B": (
        "gemma3",
        {
            "text_config": {
                "hidden_size": 3840, "num_attention_heads": 16, "num_hidden_layers": 48,
                "num_key_value_heads": 8, "sliding_window": 1024,
            },
        },
    ),
    "Gemma 3 4B": (
        "gemma3",
        {"text_config": {"hidden_size": 2560, "num_hidden_layers": 34, "sliding_window": 1024}},
    ),
    "Gemma 3n, text": ("gemma3n_text", SIZED | WINDOW | GEMMA_3N),
    "Gemma 3n": ("gemma3n", {"text_config": SIZED | WINDOW | GEMMA_3N}),
    "Gemma 4, text": ("gemma4_text", SIZED | WINDOW | GEMMA_4),
    "Gemma 4": ("gemma4", {"text_config": SIZED | WINDOW | GEMMA_4 | {"num_hidden_layers": 13}}),
    "Gemma 4, values that are keys": (
        "gemma4_text",
        SIZED | WINDOW | GEMMA_4 | {"attention_k_eq_v": True, "num_global_key_value_heads": 2},
    ),
    "Gemma 4, shared layers": (
        "gemma4_text", SIZED | WINDOW | GEMMA_4 | {"num_kv_shared_layers": 4},
    ),
    "gpt-oss": ("gpt_oss", SIZED | WINDOW | LOCAL),
    "Phi 2": ("phi", PLAIN),
    "Phi 3": ("phi3", PLAIN | {"sliding_window": 77}),
    "Phi 4": ("phi3", PLAIN),
    "Phi 3.5 MoE": ("phimoe", PLAIN | LOCAL | {"sliding_window": 70}),
    "GLM 4": ("glm", SIZED),
    "GLM 4 0414": ("glm4", SIZED),
    "GLM 4.5": ("glm4_moe", SIZED | ROUTED),
    "GLM 4.7 Flash": ("glm4_moe_lite", PLAIN | MLA | ROUTED),
    "GLM 5": ("glm_moe_dsa", PLAIN | MLA | ROUTED | INDEX),
    "GLM 5, an index now and then": (
        "glm_moe_dsa",
        PLAIN | MLA | ROUTED | INDEX | {"index_topk_freq": 3, "index_skip_topk_offset": 3},
    ),
    "GLM 5, an index by pattern": (
        "glm_moe_dsa", PLAIN | MLA | ROUTED | INDEX | {"index_topk_pattern": "FSSFSS"},
    ),
    "Kimi Linear": (
        "kimi_linear",
        without(PLAIN, "max_position_embeddings") | MLA | {
            "linear_attn_config": {
                "num_heads": 4, "head_dim": 16, "short_conv_kernel_size": 5,
                "kda_layers": [1, 2, 4, 5], "full_attn_layers": [3, 6],
            },
            "num_experts": 4, "moe_intermediate_size": 32, "num_experts_per_token": 2,
            "model_max_length": 4096,
        },
    ),
    "Nemotron-H": (
        "nemotron_h", SIZED | NEMOTRON_H | {"hybrid_override_pattern": "MM*M-E"},
    ),
    "Nemotron-H, a word for each layer": (
        "nemotron_h",
        SIZED | NEMOTRON_H | {
            "layers_block_type": ["mamba", "moe", "attention", "mamba", "mlp", "moe"],
        },
    ),
    "Jamba": (
        "jamba",
        PLAIN | {
            "attn_layer_period": 3, "attn_layer_offset": 1, "mamba_d_state": 10, "mamba_d_conv": 5,
            "mamba_expand": 3, "num_experts": 2, "use_mamba_kernels": False,
        },
    ),
    "Jamba, period left out": (
        "jamba", PLAIN | {"num_hidden_layers": 29, "num_experts": 2, "use_mamba_kernels": False},
    ),
    "Bamba": ("bamba", PLAIN | MAMBA2 | {"attn_layer_indices": [1, 4]}),
    "Bamba, heads left to be divided": (
        "bamba",
        SIZED | MAMBA2 | {"mamba_d_head": "auto", "attn_layer_indices": [1, 4]},
    ),
    "Falcon 7B, one KV head": ("falcon", FALCON | {"multi_query": True}),
    "Falcon RW, one for each": ("falcon", FALCON | {"multi_query": False}),
    "Falcon 40B, groups": (
        "falcon",
        FALCON | {"multi_query": True, "new_decoder_architecture": True, "num_kv_heads": 3},
    ),
    "Falcon-H1": (
        "falcon_h1", SIZED | MAMBA2 | {"mamba_d_head": 16, "mamba_d_ssm": 128},
    ),
    "Falcon-H1, its inner size left out": (
        "falcon_h1", SIZED | MAMBA2 | {"mamba_d_head": "auto"},
    ),
    "Granite": ("granite", PLAIN),
    "Granite MoE": ("granitemoe", PLAIN | {"num_local_experts": 4}),
    "Granite 4 hybrid": ("granitemoehybrid", PLAIN | MAMBA2 | LOCAL | {"layer_types": MAMBA}),
    "Mamba 2": (
        "mamba2",
        {
            "hidden_size": 96, "num_heads": 8, "head_dim": 24, "state_size": 12, "n_groups": 2,
            "conv_kernel": 5, "expand": 2, "num_hidden_layers": 4, "vocab_size": 500,
        },
    ),
    "Mamba": (
        "mamba",
        {
            "hidden_size": 96, "state_size": 12, "conv_kernel": 5, "expand": 3,
            "num_hidden_layers": 4, "vocab_size": 500,
        },
    ),
    "LFM2": ("lfm2", PLAIN | {"layer_types": CONV, "conv_L_cache": 4}),
    "LFM2, only the layers with attention listed": (
        "lfm2", PLAIN | {"full_attn_idxs": [2, 5], "conv_L_cache": 4},
    ),
    "LFM2 MoE": (
        "lfm2_moe", PLAIN | MOE | {"layer_types": CONV, "conv_L_cache": 4, "num_dense_layers": 1},
    ),
    "Llama 4, text": ("llama4_text", SIZED | LLAMA_4),
    "Llama 4": ("llama4", {"text_config": SIZED | LLAMA_4 | {"no_rope_layer_interval": 3}}),
    "Llama 4, rotation listed": (
        "llama4_text", SIZED | LLAMA_4 | {"no_rope_layers": [1, 1, 0, 1, 0, 1, 1, 0]},
    ),
    "Llama 3.2 with vision, list left out": (
        "mllama", {"text_config": PLAIN | {"num_hidden_layers": 44}},
    ),
    "Llama 3.2 with vision": (
        "mllama", {"text_config": PLAIN | {"cross_attention_layers": [1, 4]}},
    ),
    "StarCoder 2": ("starcoder2", PLAIN | {"sliding_window": 40}),
    "OLMo 2": ("olmo2", PLAIN),
    "OLMo 3": ("olmo3", PLAIN | WINDOW),
    "StableLM": ("stablelm", PLAIN),
    "MiniMax M2": ("minimax_m2", SIZED | {"num_local_experts": 4}),
    "Hunyuan": ("hunyuan_v1_dense", SIZED),
    "ERNIE 4.5": ("ernie4_5", SIZED),
    "EXAONE 4": ("exaone4", SIZED | WINDOW),
    "SmolLM 3": ("smollm3", PLAIN),
    "SmolLM 3, its window switched off": (
        "smollm3", PLAIN | WINDOW | {"use_sliding_window": False},
    ),
    "Command R7B": ("cohere2", SIZED | WINDOW),
    "Command R7B, rows of three": ("cohere2", SIZED | WINDOW | {"sliding_window_pattern": 3}),
}  # fmt: skip


def read(values: Values) -> Architecture:
    return architecture(Config(values, "config.json"))


def kept(made: Architecture) -> Kept:
    """What each layer keeps, in the oracle's words."""
    found: Kept = Counter()
    for a in made.attention:
        found[told(a)] += a.layers
    for s in made.states:
        found[(s.kind, s.conv_channels, s.conv_columns, s.recurrent)] += s.layers
    return found


def shape(made: Architecture) -> tuple[Any, ...]:
    return made.hidden, made.vocab, made.max_len


def told(a: Attention) -> tuple[Any, ...]:
    if a.own_dtype is not None:
        return ("index", a.key_dim - a.key_dim // 132 * 4)
    return (a.kind, a.kv_heads, a.kv_heads * a.key_dim, a.kv_heads * a.value_dim, a.window)


# against transformers


@pytest.fixture(scope="module")
def oracle(vllm_python: Path) -> Iterator[Oracle]:
    with Oracle(vllm_python, "transformers_layers.py") as ask:
        yield ask


def truth(oracle: Oracle, model_type: str, overrides: Values) -> tuple[Values, Kept] | None:
    """What transformers would save and what it builds; None if it builds nothing."""
    told = oracle({"model_type": model_type, "overrides": overrides})
    if "error" in told:
        return None
    return told["config"], Counter(tuple(one.values()) for layer in told["layers"] for one in layer)


@pytest.mark.vllm
@pytest.mark.parametrize("name", MODELS)
def test_layers_are_those_that_transformers_builds(name: str, oracle: Oracle) -> None:
    """From the file as it is published, and as transformers saves it again."""
    model_type, overrides = MODELS[name]
    told = truth(oracle, model_type, overrides)
    assert told is not None
    saved, layers = told

    for values in ({"model_type": model_type, **overrides}, saved):
        made = read(values)
        assert kept(made) == layers
        assert made.guesses == ()
        assert shape(made) == shape(read(saved))


SILENT = set(LEFT_OUT) | {
    "full_attention_interval", "layer_types", "hybrid_override_pattern",
    "linear_attn_config", "attn_layer_period", "mamba_expand", "mamba_d_state", "mamba_d_conv",
    "mamba_d_head", "mamba_n_groups", "expand", "conv_kernel", "conv_L_cache", "full_attn_idxs",
    "attn_layer_indices", "attention_chunk_size", "no_rope_layer_interval", "index_topk_freq",
    "index_skip_topk_offset",
    "num_global_key_value_heads", "sliding_window_pattern", "cross_attention_layers", "state_size",
}  # fmt: skip
"""Keys without which a reader may still have an answer."""


def missed(answer: Kept | str) -> bool:
    return isinstance(answer, str) and "does not divide" not in answer


@pytest.mark.vllm
@pytest.mark.parametrize("name", MODELS)
def test_a_key_left_out_is_what_the_class_says_or_is_missed(name: str, oracle: Oracle) -> None:
    """A file need not say what equals its class's default: none may be concluded otherwise.

    Every default for KV heads divides 96 heads.
    """
    model_type, overrides = MODELS[name]
    text = overrides.get("text_config", overrides)
    for key in SILENT & set(text):
        less = without(text, key)
        if key == "num_key_value_heads":
            less["num_attention_heads"] = 96
        values = {"text_config": less} if "text_config" in overrides else less
        told = truth(oracle, model_type, values)
        if told is None:
            continue
        try:
            made: Kept | str = kept(read({"model_type": model_type, **values}))
        except InputError as error:
            made = str(error)
        assert made == told[1] or missed(made), key


def test_every_family_is_proven_or_worked_out_by_hand() -> None:
    proven = {model_type.removesuffix("_text") for model_type, _ in MODELS.values()}

    assert set(FAMILIES) - proven == {"phi4", "qwen3_6", "qwen3_6_moe", "qwen3_8", "qwen3_8_moe",
                                      "kimi_k2", "glm5", "chatglm"}  # fmt: skip


def test_defaults_belong_to_known_families() -> None:
    """A name that is misspelt there would never be looked up."""
    named = {f for by_value in LEFT_OUT.values() for fs in by_value.values() for f in fs.split()}

    assert named <= set(FAMILIES)


# by hand


def test_qwen_3_8_inside_its_vision_wrapper() -> None:
    """27B: every fourth of 64 layers is full; the state's dtype is told inside."""
    text: Values = {
        "model_type": "qwen3_8_text", "hidden_size": 5120, "num_hidden_layers": 64,
        "num_attention_heads": 24, "num_key_value_heads": 4, "head_dim": 256,
        "linear_num_key_heads": 16, "linear_num_value_heads": 48, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "vocab_size": 248_320,
        "mamba_ssm_dtype": "float32", "mtp_num_hidden_layers": 1, "torch_dtype": "bfloat16",
    }  # fmt: skip
    made = read({"model_type": "qwen3_8", "text_config": text, "vision_config": {"depth": 27}})

    assert kept(made) == {
        ("full", 4, 1024, 1024, None): 16,
        ("gated_delta_net", 10_240, 3, 786_432): 48,
    }
    assert (made.ssm_dtype, made.ssm_dtype_outside) == ("float32", None)
    assert made.draft is not None
    assert made.draft.layers == 1


def test_kimi_linear_lists_its_layers_from_one_on() -> None:
    """48B: 7 of 27 layers keep a latent of 512 and 64; the others three convolutions of 4096
    channels and a square of 128 for each of 32 heads."""
    full = [4, 8, 12, 16, 20, 24, 27]
    made = read({
        "model_type": "kimi_linear", "hidden_size": 2304, "num_hidden_layers": 27, "head_dim": 72,
        "num_attention_heads": 32, "num_key_value_heads": 32, "kv_lora_rank": 512,
        "q_lora_rank": None, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
        "linear_attn_config": {
            "full_attn_layers": full, "head_dim": 128, "num_heads": 32, "short_conv_kernel_size": 4,
            "kda_layers": [layer for layer in range(1, 28) if layer not in full],
        },
    })  # fmt: skip

    assert kept(made) == {("mla", 1, 576, 0, None): 7, ("kda", 12_288, 3, 524_288): 20}


def test_chatglm_tells_its_shape_under_names_of_its_own() -> None:
    """GLM-4 9B: 2 groups of heads; 4096 elements for 32 heads are 128 each."""
    made = read({
        "model_type": "chatglm", "hidden_size": 4096, "num_layers": 40, "num_attention_heads": 32,
        "multi_query_attention": True, "multi_query_group_num": 2, "padded_vocab_size": 151_552,
        "seq_length": 131_072, "torch_dtype": "bfloat16",
    })  # fmt: skip

    assert kept(made) == {("full", 2, 256, 256, None): 40}
    assert (made.vocab, made.max_len) == (151_552, 131_072)


def test_a_state_dtype_outside_the_text_part_is_told_apart() -> None:
    made = read(
        {"model_type": "qwen3_5", "mamba_ssm_dtype": "bfloat16", "text_config": SIZED | GDN}
    )

    assert (made.ssm_dtype, made.ssm_dtype_outside) == (None, "bfloat16")


def test_mllama_looks_at_pictures_in_some_layers() -> None:
    made = read({"model_type": "mllama", "text_config": PLAIN | {
        "model_type": "mllama_text_model", "cross_attention_layers": [1, 4]}})  # fmt: skip

    assert kept(made)[("cross", 3, 48, 48, None)] == 2
    assert kept(made)[("full", 3, 48, 48, None)] == 4


@pytest.mark.parametrize(
    ("keys", "indexed"),
    [
        ({}, 6),
        ({"index_topk_freq": 3}, 3),
        ({"index_topk_pattern": "FSSFSS"}, 2),
    ],
)
def test_some_layers_use_the_index_of_an_earlier_one(keys: Values, indexed: int) -> None:
    """Every third from the second on has its own, and the first: layers 0, 1 and 4 of 6."""
    made = read({"model_type": "glm_moe_dsa", **PLAIN, **MLA, **INDEX, **keys})

    assert kept(made)[("index", 128)] == indexed


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"model_type": "gemma2", **SIZED, "sliding_window": 64}, {"full": 3, "sliding": 3}),
        (
            {"model_type": "gemma3", "text_config": SIZED | WINDOW | {"num_hidden_layers": 13}},
            {"full": 2, "sliding": 11},
        ),
        (
            {"model_type": "gemma3_text", **SIZED, **WINDOW, "sliding_window_pattern": 3},
            {"full": 2, "sliding": 4},
        ),
        ({"model_type": "qwen2", **PLAIN, **WINDOW, "use_sliding_window": False}, {"full": 6}),
        ({"model_type": "qwen2", **PLAIN, **WINDOW}, {"full": 6}),
        ({"model_type": "phi3", **PLAIN, "sliding_window": 0}, {"full": 6}),
        ({"model_type": "phi3", **PLAIN, "sliding_window": 2047}, {"sliding": 6}),
        ({"model_type": "exaone4", **SIZED, "sliding_window": None}, {"full": 6}),
        (
            {
                "model_type": "exaone4",
                **SIZED,
                **WINDOW,
                "sliding_window_pattern": "LLLG",
                "layer_types": ["sliding_attention"] * 5 + ["full_attention"],
            },
            {"full": 1, "sliding": 5},
        ),
        ({"model_type": "mistral", **PLAIN, "sliding_window": None}, {"full": 6}),
    ],
)
def test_windows_in_files_without_a_list_of_layers(
    values: Values, expected: dict[str, int]
) -> None:
    assert {a.kind: a.layers for a in read(values).attention} == expected


@pytest.mark.parametrize(
    ("keys", "heads"),
    [
        ({"num_key_value_heads": None}, 12),
        ({"num_key_value_heads": None, "multi_query_group_num": 2}, 2),
        (
            {
                "num_key_value_heads": None,
                "multi_query_group_num": 2,
                "multi_query_attention": False,
            },
            12,
        ),
        ({"multi_query": True}, 1),
        ({"num_key_value_heads": 1}, 1),
    ],
)
def test_kv_heads_where_files_say_it_otherwise(keys: Values, heads: int) -> None:
    """As many as heads where nothing is said; ChatGLM's groups, if in use; one for all."""
    values = {"model_type": "llama", **PLAIN, **keys}

    assert read(values).attention[0].kv_heads == heads


@pytest.mark.parametrize(
    ("keys", "dtype"),
    [
        ({"torch_dtype": "float16"}, "float16"),
        ({"dtype": "torch.bfloat16"}, "bfloat16"),
        ({}, "bfloat16"),
    ],
)
def test_the_dtype_under_its_old_and_new_name(keys: Values, dtype: str) -> None:
    assert read({"model_type": "llama", **PLAIN, **keys}).dtype == dtype


@pytest.mark.parametrize(
    ("quantization", "expected"),
    [
        ({"quant_method": "modelopt", "kv_cache_quant_algo": "FP8"}, "fp8"),
        ({"quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "NVFP4"}}, "nvfp4"),
        ({"kv_cache_scheme": {"num_bits": 8, "type": "float"}}, "fp8"),
        ({"quant_method": "awq", "kv_cache_scheme": None}, None),
    ],
)
def test_a_cache_dtype_that_the_checkpoint_asks_for(
    quantization: Values, expected: str | None
) -> None:
    values = {"model_type": "llama", **PLAIN, "quantization_config": quantization}

    assert read(values).kv_quant == expected


def test_modelopt_may_write_it_into_a_file_of_its_own() -> None:
    own = Config({"quantization": {"kv_cache_quant_algo": "FP8"}}, "hf_quant_config.json")
    config = Config({"model_type": "llama", **PLAIN}, "config.json").with_quantization(own)

    assert architecture(config).kv_quant == "fp8"


# what is not known


def test_a_family_that_nobody_knows_is_read_and_marked() -> None:
    plain = read({"model_type": "novum", **SIZED})
    listed = read({"model_type": "novum", **PLAIN, **GDN,
                   "layer_types": ["linear_attention", "full_attention"] * 3})  # fmt: skip

    assert kept(plain) == {("full", 3, 72, 72, None): 6}
    assert plain.guesses == (
        "the family 'novum' is not known; read as a plain transformer with grouped-query "
        "attention in every layer",
    )
    assert {s.kind: s.layers for s in listed.states} == {"gated_delta_net": 3}
    assert listed.guesses == ("the family 'novum' is not known; read by its layer_types",)


def test_an_unknown_family_with_a_latent_keeps_only_that() -> None:
    made = read({"model_type": "novum", **PLAIN, **MLA})

    assert kept(made) == {("mla", 1, 48, 0, None): 6}
    assert made.guesses == (
        "the family 'novum' is not known; read as latent attention in every layer",
    )


def test_a_kind_of_layer_that_nobody_knows_counts_in_full_and_is_told() -> None:
    """Taking it for one that keeps nothing would promise room that is not there."""
    made = read({"model_type": "llama", **PLAIN, "layer_types": ["full_attention", "odd"] * 3})

    assert kept(made) == {("full", 3, 48, 48, None): 6}
    assert made.guesses == ("layers of type 'odd' are not known; taken for full attention",)


def test_layers_cannot_all_share_what_earlier_ones_keep() -> None:
    """The class's default of 15 in a model of 10 layers, as transformers takes it."""
    made = read({"model_type": "gemma3n_text", **SIZED, "num_hidden_layers": 10})

    assert {a.kind: a.layers for a in made.attention} == {"sliding": 8, "full": 2}


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (
            {"model_type": "lfm2", **PLAIN, "layer_types": CONV[:4]},
            "config.json: layer_types: 4 types for 6 layers",
        ),
        (
            {"model_type": "nemotron_h", **PLAIN, "hybrid_override_pattern": "M*"},
            "config.json: hybrid_override_pattern: it does not have a letter for each layer",
        ),
        ({"model_type": "deepseek_v3", **PLAIN}, "config.json has no kv_lora_rank"),
        ({"model_type": "qwen3_next", **PLAIN}, "config.json has no linear_num_key_heads"),
        ({"model_type": "lfm2_moe", **PLAIN}, "config.json: layer_types: it is missing"),
        (
            {"model_type": "kimi_linear", **PLAIN, **MLA},
            "config.json: linear_attn_config: it does not say which layers are linear",
        ),
    ],
)
def test_what_is_missing_is_named(values: Values, sentence: str) -> None:
    with pytest.raises(InputError) as raised:
        read(values)
    assert str(raised.value).startswith(sentence)
