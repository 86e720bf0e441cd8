"""What a configuration leaves out because its class says so.

Files are written without what equals the default of the family's class, above all inside a wrapper;
a key that is missing there is no licence to conclude it from the others.
"""

from typing import Any

from kvroom.checkpoint.config import Config

LEFT_OUT: dict[str, dict[Any, str]] = {
    "num_key_value_heads": {
        2: "ernie4_5 gemma3n glm glm4 qwen3_next qwen3_5_moe starcoder2",
        4: "gemma2 gemma3 gemma4 qwen3_5 qwen3_moe smollm3",
        8: "bamba falcon_h1 glm4_moe gpt_oss jamba lfm2 lfm2_moe llama4 minimax_m2 ministral "
        "ministral3 mistral mixtral mllama nemotron_h phimoe qwen2_vl qwen2_5_vl",
        16: "gemma qwen2_moe qwen3_vl_moe",
        32: "exaone4 qwen2 qwen3 qwen3_vl stablelm",
    },
    "head_dim": {
        64: "gpt_oss",
        128: "ernie4_5 glm glm4 llama4 minimax_m2 ministral3 nemotron_h qwen3 qwen3_vl",
        256: "gemma gemma2 gemma3 gemma3n gemma4 qwen3_next qwen3_5 qwen3_5_moe",
    },
    "global_head_dim": {512: "gemma4"},
    "attention_k_eq_v": {False: "gemma4"},
    "num_kv_shared_layers": {15: "gemma3n"},
    "sliding_window": {
        128: "gpt_oss",
        512: "gemma3n gemma4",
        4096: "cohere2 exaone4 gemma2 gemma3 ministral mistral olmo3 qwen2 qwen2_vl "
        "qwen2_5_vl qwen3 qwen3_moe",
    },
    "use_sliding_window": {
        False: "qwen2 qwen2_moe qwen2_vl qwen2_5_vl qwen3 qwen3_moe smollm3",
    },
    "max_window_layers": {28: "qwen2 qwen3", 80: "qwen2_vl qwen2_5_vl"},
    "multi_query": {True: "falcon"},
    "index_head_dim": {128: "deepseek_v32 glm_moe_dsa"},
    "mamba_head_dim": {64: "nemotron_h"},
    "mamba_d_ssm": {1024: "falcon_h1"},
    "n_groups": {8: "mamba2 nemotron_h"},
}
"""By key and value, the families whose class has it."""

INSIDE: dict[str, dict[str, int]] = {
    "gemma3": {"hidden_size": 2304, "num_attention_heads": 8, "num_hidden_layers": 26,
               "vocab_size": 262_208, "max_position_embeddings": 131_072},
    "llama": {"hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32,
              "vocab_size": 32_000, "max_position_embeddings": 2048},
    "mistral": {"hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32,
                "vocab_size": 32_000, "max_position_embeddings": 131_072},
    "qwen2": {"hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32,
              "vocab_size": 151_936, "max_position_embeddings": 32_768},
}  # fmt: skip
"""Text parts that published wrappers shorten this far; on its own a file says its whole shape."""


def completed(config: Config, family: str) -> Config:
    """The configuration with what its family's class adds; what it says itself, null too, stays."""
    known = INSIDE.get(family, {}) if config.level else {}
    added = {
        key: value
        for key, by_value in LEFT_OUT.items()
        for value, families in by_value.items()
        if family in families.split()
    }
    return Config({**known, **added, **config.values}, config.file, config.level)
