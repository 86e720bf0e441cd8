"""A Llama-shaped GGUF file -> the folder that safetensors engines load, so both serve one model.

The quantised weights are dequantised and rounded to bfloat16; no weight is trained, pruned or
re-quantised. Tensor names and the order of the rotary halves in Q and K follow the Hugging Face
Llama layout (transformers, ``LlamaForCausalLM``); GGUF stores them interleaved.
"""

import json
import math
import re
import struct
from collections.abc import Collection
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from kvroom.checkpoint.gguf_file import DAMAGED, GgufFile
from kvroom.errors import InputError

Tensor = NDArray[np.float32]

_OUTER = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_INNER = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
_BLOCK = re.compile(r"blk\.(\d+)\.(\w+)\.weight")
_CONTROL_TOKEN = 3
"""``LLAMA_TOKEN_TYPE_CONTROL`` in llama.cpp's llama.h."""

_SPLIT_DIGITS = {"type": "Digits", "individual_digits": True}
_PRE_TOKENIZERS: dict[str, list[dict[str, Any]]] = {"smollm": [_SPLIT_DIGITS], "gpt-2": []}


def convert(path: Path, folder: Path) -> None:
    """Write config, tokenizer and bf16 weights of a GGUF file into a folder.

    Raises InputError if the file is damaged, or of a shape or tokenizer that is not Llama's.
    """
    try:
        _convert(GgufFile(path), folder)
    except DAMAGED as error:
        raise InputError(f"{path} cannot be read as GGUF: {error}") from None


def _convert(file: GgufFile, folder: Path) -> None:
    _expect(file, "general.architecture", ["llama"])
    _expect(file, "tokenizer.ggml.model", ["gpt2"])
    named = {_name(file, tensor): tensor for tensor in file.reader.tensors}
    _write_weights(folder / "model.safetensors", file, named)
    _write(folder / "config.json", _config(file, tied="lm_head.weight" not in named))
    _write(folder / "generation_config.json", _special_ids(file))
    _write(folder / "tokenizer.json", _tokenizer(file))
    _write(folder / "tokenizer_config.json", _tokenizer_config(file))


def _expect(file: GgufFile, key: str, known: Collection[str]) -> str:
    """The value of a key that must be one of the known ones."""
    value = str(file.get(key))
    if value not in known:
        raise InputError(
            f"{file.path}: {key} is {value!r}; only {', '.join(known)} can be converted",
            "give the model as a safetensors folder",
        )
    return value


def _name(file: GgufFile, tensor: gguf.ReaderTensor) -> str:
    match = _BLOCK.fullmatch(tensor.name)
    if match is not None and match[2] in _INNER:
        return f"model.layers.{match[1]}.{_INNER[match[2]]}.weight"
    if tensor.name not in _OUTER:
        raise InputError(f"{file.path}: cannot place the tensor {tensor.name!r}")
    return _OUTER[tensor.name]


def _shape(tensor: gguf.ReaderTensor) -> list[int]:
    """GGUF lists dimensions fastest first."""
    return [int(size) for size in reversed(tensor.shape)]


def _write_weights(path: Path, file: GgufFile, named: dict[str, gguf.ReaderTensor]) -> None:
    """Header length, JSON header, data (the safetensors format), one tensor in memory at a time."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt", "source": file.path.name}}
    end = 0
    for name, tensor in named.items():
        start, end = end, end + 2 * math.prod(_shape(tensor))
        header[name] = {"dtype": "BF16", "shape": _shape(tensor), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for tensor in named.values():
            out.write(_bf16(_values(file, tensor)))


def _values(file: GgufFile, tensor: gguf.ReaderTensor) -> Tensor:
    values = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
    values = values.reshape(_shape(tensor))
    if tensor.name.endswith("attn_q.weight"):
        return _halves(values, int(file.get("llama.attention.head_count")))
    if tensor.name.endswith("attn_k.weight"):
        return _halves(values, int(file.get("llama.attention.head_count_kv")))
    return values


def _halves(values: Tensor, heads: int) -> Tensor:
    """Rows of each head from interleaved rotary pairs to two halves."""
    rows, columns = values.shape
    pairs = values.reshape(heads, rows // heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)


def _bf16(values: Tensor) -> bytes:
    """Rounded to the nearest bfloat16, ties to even."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded = (bits + (((bits >> 16) & 1) + np.uint32(0x7FFF))) >> 16
    return rounded.astype(np.uint16).tobytes()


def _special_ids(file: GgufFile) -> dict[str, int]:
    bos, eos = (int(file.get(f"tokenizer.ggml.{name}_token_id")) for name in ("bos", "eos"))
    return {
        "bos_token_id": bos,
        "eos_token_id": eos,
        "pad_token_id": int(file.get("tokenizer.ggml.padding_token_id", eos)),
    }


def _config(file: GgufFile, *, tied: bool) -> dict[str, Any]:
    heads, hidden = int(file.get("llama.attention.head_count")), file.get("llama.embedding_length")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": file.get("llama.feed_forward_length"),
        "num_hidden_layers": file.get("llama.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": file.get("llama.attention.head_count_kv"),
        "head_dim": file.get("llama.attention.key_length", hidden // heads),
        "max_position_embeddings": file.get("llama.context_length"),
        "rms_norm_eps": round(float(file.get("llama.attention.layer_norm_rms_epsilon")), 12),
        "rope_theta": file.get("llama.rope.freq_base", 10_000.0),
        "vocab_size": len(file.get("tokenizer.ggml.tokens")),
        "tie_word_embeddings": tied,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "torch_dtype": "bfloat16",
        **_special_ids(file),
    }


def _tokenizer(file: GgufFile) -> dict[str, Any]:
    tokens, kinds = file.get("tokenizer.ggml.tokens"), file.get("tokenizer.ggml.token_type")
    split = _PRE_TOKENIZERS[_expect(file, "tokenizer.ggml.pre", _PRE_TOKENIZERS)]
    space = bool(file.get("tokenizer.ggml.add_space_prefix", False))
    bytes_to_text = {"type": "ByteLevel", "add_prefix_space": space, "trim_offsets": True}
    special = [i for i, kind in enumerate(kinds) if kind == _CONTROL_TOKEN]
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": i, "content": tokens[i], "special": True, **plain} for i in special
        ],
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [*split, {**bytes_to_text, "use_regex": True}],
        },
        "decoder": {**bytes_to_text, "use_regex": True},
        "model": {
            "type": "BPE",
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in file.get("tokenizer.ggml.merges")],
        },
    }


def _tokenizer_config(file: GgufFile) -> dict[str, Any]:
    tokens, ids = file.get("tokenizer.ggml.tokens"), _special_ids(file)
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokens[ids["bos_token_id"]],
        "eos_token": tokens[ids["eos_token_id"]],
        "pad_token": tokens[ids["pad_token_id"]],
        "unk_token": tokens[int(file.get("tokenizer.ggml.unknown_token_id", 0))],
        "clean_up_tokenization_spaces": False,
        "model_max_length": file.get("llama.context_length"),
        "chat_template": file.get("tokenizer.chat_template", ""),
    }


def _write(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1), encoding="utf-8")
