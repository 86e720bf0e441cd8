"""Weights by part and dtype, from the names that real checkpoints give their tensors."""

from pathlib import Path

import pytest

from checkpoints import Shapes, a_folder
from kvroom.checkpoint.read import read_checkpoint
from kvroom.checkpoint.weights import part_of

# weights by part


@pytest.mark.parametrize(
    ("name", "depth", "part"),
    [
        # Qwen3.5 and 3.6, with their vision wrapper
        ("model.language_model.layers.3.linear_attn.in_proj_qkvz.weight", 64, "layers"),
        ("model.language_model.layers.3.mlp.experts.gate_up_proj", 64, "experts"),
        ("model.language_model.layers.3.mlp.shared_expert.up_proj.weight", 64, "layers"),
        ("model.language_model.embed_tokens.weight", 64, "embeddings"),
        ("model.visual.blocks.26.attn.qkv.weight", 16, "encoder"),
        ("model.visual.merger.linear_fc1.weight", 64, "encoder"),
        ("mtp.layers.0.mlp.experts.7.up_proj.weight", 64, "draft"),
        ("mtp.fc.weight", 64, "draft"),
        # Qwen3-MoE
        ("model.layers.0.mlp.experts.127.down_proj.weight", 48, "experts"),
        ("model.layers.0.mlp.gate.weight", 48, "layers"),
        # DeepSeek-V3: the layer after the last is the draft head, with embeddings of its own
        ("model.layers.60.mlp.experts.255.down_proj.weight_scale_inv", 61, "experts"),
        ("model.layers.60.mlp.shared_experts.down_proj.weight", 61, "layers"),
        ("model.layers.60.self_attn.kv_b_proj.weight", 61, "layers"),
        ("model.layers.61.mlp.experts.0.down_proj.weight", 61, "draft"),
        ("model.layers.61.embed_tokens.weight", 61, "draft"),
        ("model.layers.61.shared_head.head.weight", 61, "draft"),
        ("lm_head.weight", 61, "head"),
        # gpt-oss: a layer's experts in one tensor, MXFP4 blocks and scales
        ("model.layers.0.mlp.experts.gate_up_proj_blocks", 36, "experts"),
        ("model.layers.0.mlp.experts.gate_up_proj_scales", 36, "experts"),
        ("model.layers.0.mlp.experts.down_proj_bias", 36, "experts"),
        ("model.layers.0.mlp.router.weight", 36, "layers"),
        ("model.layers.0.self_attn.sinks", 36, "layers"),
        # Gemma 3: more layers in the encoder than some text models have; the head is tied
        ("vision_tower.vision_model.encoder.layers.26.mlp.fc1.weight", 26, "encoder"),
        ("vision_tower.vision_model.embeddings.patch_embedding.weight", 34, "encoder"),
        ("multi_modal_projector.mm_input_projection_weight", 34, "encoder"),
        ("language_model.model.embed_tokens.weight", 34, "embeddings"),
        ("language_model.model.norm.weight", 34, "other"),
        # Gemma 3n: embeddings for each layer, billions of them
        ("model.language_model.embed_tokens_per_layer.weight", 30, "embeddings"),
        ("model.embed_audio.embedding.weight", 30, "encoder"),
        # Llama 4
        ("language_model.model.layers.0.feed_forward.experts.gate_up_proj", 48, "experts"),
        ("language_model.model.layers.0.feed_forward.shared_expert.up_proj.weight", 48, "layers"),
        ("vision_model.model.layers.33.self_attn.q_proj.weight", 32, "encoder"),
        # Phi-4-multimodal: an adapter for vision lies in the layers of the language model
        ("model.embed_tokens_extend.audio_embed.encoder.encoders.0.conv.weight", 32, "encoder"),
        ("model.embed_tokens_extend.image_embed.img_processor.encoder.layers.0.w", 32, "encoder"),
        ("model.layers.0.self_attn.qkv_proj.lora_A.vision.weight", 32, "layers"),
        ("model.embed_tokens.weight", 32, "embeddings"),
        # LFM2: short convolutions, and a norm that is called after the embeddings
        ("model.layers.0.conv.conv.weight", 16, "layers"),
        ("model.layers.3.feed_forward.experts.31.w1.weight", 24, "experts"),
        ("model.embedding_norm.weight", 16, "other"),
        # Mamba 2
        ("backbone.layers.0.mixer.A_log", 48, "layers"),
        ("backbone.embeddings.weight", 48, "embeddings"),
        ("backbone.norm_f.weight", 48, "other"),
        # NVFP4, compressed-tensors, AWQ: packed weights and scales go where the weight goes
        ("model.layers.0.mlp.experts.9.up_proj.weight_packed", 48, "experts"),
        ("model.layers.0.mlp.experts.9.up_proj.weight_scale_2", 48, "experts"),
        ("model.layers.0.mlp.up_proj.weight_scale", 48, "layers"),
        ("model.layers.0.self_attn.q_proj.qweight", 48, "layers"),
        # Granite's and Mixtral's experts, Kimi's and InternVL's projectors, GPT-2, GPT-NeoX
        ("model.layers.0.block_sparse_moe.input_linear.weight", 24, "experts"),
        ("model.layers.0.block_sparse_moe.experts.7.w1.weight", 32, "experts"),
        ("mm_projector.linear_1.weight", 61, "encoder"),
        ("mlp1.1.weight", 32, "encoder"),
        ("transformer.h.0.attn.c_attn.weight", None, "layers"),
        ("transformer.wte.weight", None, "embeddings"),
        ("embed_out.weight", None, "head"),
        # GGUF
        ("blk.0.ffn_gate_exps.weight", 48, "experts"),
        ("blk.0.ffn_up_shexp.weight", 48, "layers"),
        ("blk.0.ffn_gate.7.weight", 32, "experts"),
        ("blk.0.attn_output.weight", 48, "layers"),
        ("blk.46.nextn.eh_proj.weight", 46, "draft"),
        ("token_embd.weight", 48, "embeddings"),
        ("output.weight", 48, "head"),
        ("output_norm.weight", 48, "other"),
        ("v.blk.26.attn_q.weight", 24, "encoder"),
        ("mm.0.weight", 48, "encoder"),
    ],
)
def test_where_a_tensor_belongs(name: str, depth: int | None, part: str) -> None:
    assert part_of(name, depth) == part


def test_dtypes_are_those_that_are_stored(tmp_path: Path) -> None:
    """NVFP4 keeps two values in a byte that it calls U8; the scales are float8."""
    nvfp4: Shapes = {
        "model.layers.0.mlp.up_proj.weight_packed": ("U8", [128, 32]),
        "model.layers.0.mlp.up_proj.weight_scale": ("F8_E4M3", [128, 4]),
        "model.layers.0.mlp.up_proj.weight_scale_2": ("F32", []),
        "model.layers.1.mlp.up_proj.weight": ("F4", [128, 64]),
        "model.layers.1.mlp.gate_proj.weight": ("F6_E2M3", [128, 64]),
    }
    weights = read_checkpoint(str(a_folder(tmp_path / "m", {"model.safetensors": nvfp4}))).weights

    assert weights is not None
    assert weights.dtypes == {"U8": 4096, "F8_E4M3": 512, "F32": 4, "F4": 4096, "F6_E2M3": 6144}
