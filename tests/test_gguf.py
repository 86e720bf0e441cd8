"""GGUF files: llama.cpp's keys, split files, and what strangers may put there."""

import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkpoints import (
    SLOW_S,
    outcome,
    refused,
)
from kvroom.checkpoint import gguf_file, tensors
from kvroom.checkpoint.architecture import Architecture, Attention, State
from kvroom.checkpoint.config import MAX_CONFIG_BYTES
from kvroom.checkpoint.read import Checkpoint, read_checkpoint
from kvroom.errors import InputError

GGUF_LLAMA: dict[str, Any] = {
    "block_count": 2,
    "context_length": 1024,
    "embedding_length": 64,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
}


def a_gguf(path: Path, family: str = "llama", **keys: Any) -> Path:
    """A small file of a family; keys with two underscores for a dot, None to leave one out."""
    writer = gguf.GGUFWriter(path, family)
    own = {**GGUF_LLAMA, **{key.replace("__", "."): value for key, value in keys.items()}}
    for key, value in own.items():
        if isinstance(value, list):
            writer.add_array(f"{family}.{key}", value)
        elif value is not None:
            writer.add_uint32(f"{family}.{key}", value)
    writer.add_array("tokenizer.ggml.tokens", [f"t{number}" for number in range(100)])
    writer.add_tensor("token_embd.weight", np.zeros((100, 64), np.float32))
    q8 = np.zeros((64, 68), np.uint8)
    writer.add_tensor("blk.0.attn_q.weight", q8, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def architecture(path: Path, family: str, **keys: Any) -> Architecture:
    return read_checkpoint(str(a_gguf(path / "m.gguf", family, **keys))).architecture


def full(layers: int, kv_heads: int, key: int, value: int | None = None) -> Attention:
    return Attention(
        kind="full", layers=layers, kv_heads=kv_heads, key_dim=key, value_dim=value or key
    )


def sliding(layers: int, kv_heads: int, key: int, window: int) -> Attention:
    return Attention(
        kind="sliding", layers=layers, kv_heads=kv_heads, key_dim=key, value_dim=key, window=window
    )


SSM = {"ssm__conv_kernel": 4, "ssm__inner_size": 128, "ssm__state_size": 16}
MAMBA2 = {**SSM, "ssm__group_count": 2, "ssm__time_step_rank": 4}


def mamba2(layers: int) -> State:
    return State(kind="mamba2", layers=layers, conv_channels=192, conv_columns=3, recurrent=2048)


def test_a_gguf_tells_weights_and_vocabulary(tmp_path: Path) -> None:
    found = read_checkpoint(str(a_gguf(tmp_path / "m.gguf")))

    assert found.weights is not None
    assert found.weights.parts == {"embeddings": 25_600, "layers": 64 * 68}
    assert found.weights.dtypes == {"F32": 25_600, "Q8_0": 64 * 68}
    assert (found.architecture.vocab, found.architecture.max_len) == (100, 1024)
    assert found.architecture.attention == (full(2, 2, 16),)


@pytest.mark.parametrize(
    ("family", "keys", "attention"),
    [
        ("qwen3moe", {"attention__key_length": 32, "attention__value_length": 32},
         (full(2, 2, 32),)),
        # a head of values has its own size, the width over the heads unless it is given
        ("llama", {"attention__key_length": 24}, (full(2, 2, 24, 16),)),
        ("llama", {"attention__sliding_window": 512}, (full(2, 2, 16),)),
        ("phi3", {"attention__sliding_window": 512}, (full(2, 2, 16),)),
        ("gemma3", {"block_count": 12, "attention__sliding_window": 512},
         (full(2, 2, 16), sliding(10, 2, 16, 512))),
        ("gemma3", {"block_count": 12, "attention__sliding_window": 512,
                    "attention__sliding_window_pattern": 3},
         (full(4, 2, 16), sliding(8, 2, 16, 512))),
        ("gemma2", {"block_count": 3, "attention__sliding_window": 512},
         (full(1, 2, 16), sliding(2, 2, 16, 512))),
        ("gemma3n", {"block_count": 30, "attention__sliding_window": 512},
         (full(4, 2, 16), sliding(16, 2, 16, 512))),
        ("gemma4", {"block_count": 4, "attention__sliding_window": 512,
                    "attention__sliding_window_pattern": [True, True, True, False],
                    "attention__head_count_kv": [2, 2, 2, 1], "attention__key_length": 32,
                    "attention__value_length": 32, "attention__key_length_swa": 16,
                    "attention__value_length_swa": 16, "attention__shared_kv_layers": 0},
         (full(1, 1, 32), sliding(3, 2, 16, 512))),
        ("gpt-oss", {"block_count": 4, "attention__sliding_window": 128},
         (full(2, 2, 16), sliding(2, 2, 16, 128))),
        ("smallthinker", {"block_count": 5, "attention__sliding_window": 128},
         (full(2, 2, 16), sliding(3, 2, 16, 128))),
        ("llama4", {"block_count": 4},
         (full(1, 2, 16), Attention(kind="chunked", layers=3, kv_heads=2, key_dim=16,
                                    value_dim=16, window=8192))),
        # DeepSeek-V2 and V3: one latent vector, or heads in files from before llama.cpp knew MLA
        ("deepseek2", {"attention__kv_lora_rank": 512, "rope__dimension_count": 64,
                       "attention__key_length_mla": 192, "attention__head_count_kv": 1},
         (Attention(kind="mla", layers=2, kv_heads=1, key_dim=576, value_dim=0),)),
        ("deepseek2", {"attention__kv_lora_rank": 512, "attention__key_length": 192,
                       "attention__value_length": 128, "attention__head_count_kv": 4},
         (full(2, 4, 192, 128),)),
        # Nemotron: some layers have fewer heads, some no attention
        ("deci", {"block_count": 4, "attention__head_count_kv": [2, 0, 2, 1],
                  "attention__head_count": [4, 0, 4, 4]},
         (full(2, 2, 16), full(1, 1, 16))),
    ],
)  # fmt: skip
def test_attention_by_the_keys_of_llamacpp(
    family: str, keys: dict[str, Any], attention: tuple[Attention, ...], tmp_path: Path
) -> None:
    found = architecture(tmp_path, family, **keys)

    assert found.attention == attention
    assert found.states == ()


@pytest.mark.parametrize(
    ("family", "keys", "attention", "states"),
    [
        ("mamba2", {**MAMBA2, "attention__head_count": 0, "attention__head_count_kv": None},
         (), (mamba2(2),)),
        ("mamba", {**SSM, "attention__head_count": 0, "attention__head_count_kv": None},
         (), (State(kind="mamba1", layers=2, conv_channels=128, conv_columns=3, recurrent=2048),)),
        ("jamba", {**SSM, "attention__head_count_kv": [0, 2]}, (full(1, 2, 16),),
         (State(kind="mamba1", layers=1, conv_channels=128, conv_columns=3, recurrent=2048),)),
        ("granitehybrid", {**MAMBA2, "attention__head_count_kv": [0, 2]},
         (full(1, 2, 16),), (mamba2(1),)),
        ("falcon-h1", MAMBA2, (full(2, 2, 16),), (mamba2(2),)),
        # layers of Nemotron-H that are only feed-forward keep nothing
        ("nemotron_h", {**MAMBA2, "block_count": 4, "attention__head_count_kv": [0, 0, 2, 0],
                        "feed_forward_length": [0, 128, 0, 128]},
         (full(1, 2, 16),), (mamba2(1),)),
        ("lfm2", {"block_count": 3, "attention__head_count_kv": [0, 0, 2],
                  "shortconv__l_cache": 3},
         (full(1, 2, 16),),
         (State(kind="short_conv", layers=2, conv_channels=64, conv_columns=2, recurrent=0),)),
        ("kimi-linear", {"block_count": 4, "attention__head_count_kv": [0, 0, 0, 1],
                         "attention__key_length_mla": 192, "attention__kv_lora_rank": 512,
                         "rope__dimension_count": 64, "kda__head_dim": 16, "ssm__conv_kernel": 4},
         (Attention(kind="mla", layers=1, kv_heads=1, key_dim=576, value_dim=0),),
         (State(kind="kda", layers=3, conv_channels=192, conv_columns=3, recurrent=1024),)),
    ],
)  # fmt: skip
def test_states_by_the_keys_of_llamacpp(
    family: str,
    keys: dict[str, Any],
    attention: tuple[Attention, ...],
    states: tuple[State, ...],
    tmp_path: Path,
) -> None:
    found = architecture(tmp_path, family, **keys)

    assert (found.attention, found.states) == (attention, states)


QWEN_CONFIG = Path(__file__).parent.parent / "examples" / "rtx5090-hybrid" / "model"


@pytest.mark.parametrize("interval", [4, None])
def test_the_same_model_as_gguf_and_as_config(interval: int | None, tmp_path: Path) -> None:
    """Qwen3.5 27B; llama.cpp takes every fourth layer as full where the file does not say."""
    found = architecture(
        tmp_path, "qwen35", block_count=65, nextn_predict_layers=1, embedding_length=5120,
        attention__head_count=24, attention__head_count_kv=4, attention__key_length=256,
        attention__value_length=256, full_attention_interval=interval, ssm__conv_kernel=4,
        ssm__inner_size=6144, ssm__state_size=128, ssm__group_count=16, ssm__time_step_rank=48,
    )  # fmt: skip
    config = read_checkpoint(str(QWEN_CONFIG)).architecture

    assert found.attention == config.attention
    assert found.states == config.states
    assert found.draft == config.draft


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"block_count": None}, "has no metadata key 'llama.block_count'"),
        ({"context_length": None}, "has no metadata key 'llama.context_length'"),
        ({"attention__head_count": None}, "has no metadata key 'llama.attention.head_count'"),
        ({"block_count": 0}, "llama.block_count: 0 is out of all bounds"),
        ({"block_count": 4_000_000_000}, "llama.block_count: 4000000000 is out of all bounds"),
        ({"block_count": 1_000_000}, "llama.block_count: 1000000 layers"),
        ({"nextn_predict_layers": 2}, "llama.block_count: 2 layers, 2 of them drafts"),
        ({"attention__head_count": 0}, "attention.key_length: a head without elements"),
        ({"attention__key_length": 0}, "attention.key_length: a head without elements"),
        ({"attention__head_count_kv": 0}, "no layer of the family 'llama' keeps what kvroom knows"),
        ({"attention__head_count_kv": [-1, 2]}, "attention.head_count_kv: -1 is out of all bounds"),
        ({"attention__head_count_kv": [2]}, "attention.head_count_kv: 1 values for 2 layers"),
        ({"attention__head_count_kv": [0.5, 2.0]}, "head_count_kv: 0.5 is not a whole number"),
        ({"attention__head_count_kv": ["a", "b"]}, "head_count_kv: <2 elements> is not"),
        ({"attention__key_length_mla": 9}, "has no metadata key 'llama.attention.kv_lora_rank'"),
        ({"attention__head_count_kv": [0, 2], "ssm__inner_size": 9}, "'llama.ssm.state_size'"),
    ],
)
def test_a_gguf_whose_keys_make_no_model(
    keys: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    assert sentence in refused(a_gguf(tmp_path / "m.gguf", **keys))


def test_a_family_whose_states_are_not_known_is_refused(tmp_path: Path) -> None:
    path = a_gguf(
        tmp_path / "m.gguf", "rwkv7", attention__head_count=0, attention__head_count_kv=None
    )

    assert "no layer of the family 'rwkv7' keeps what kvroom knows" in refused(path)


def raw_gguf(*fields: bytes, tensors: int = 0, count: int | None = None) -> bytes:
    number = len(fields) if count is None else count
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, number) + b"".join(fields)


def a_field(kind: int, value: bytes, key: bytes = b"k") -> bytes:
    return struct.pack("<Q", len(key)) + key + struct.pack("<I", kind) + value


def an_array(kind: int, length: int) -> bytes:
    return a_field(9, struct.pack("<IQ", kind, length))


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        (b"", "it ends within its metadata"),
        (b"GGUF", "it ends within its metadata"),
        (b"GGML" + bytes(100), "it does not begin with GGUF"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "its version is 50331648"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "its version is 1; 2 and 3 are known"),
        (raw_gguf(count=1 << 60), "no room for the 1152921504606846976 metadata keys"),
        (raw_gguf(tensors=1 << 60), "no room for the 1152921504606846976 tensors"),
        (raw_gguf(struct.pack("<Q", 1 << 62) + bytes(99)), "a name of 4611686018427387904 bytes"),
        (raw_gguf(a_field(8, struct.pack("<Q", 1 << 62))), "it ends within its metadata"),
        (raw_gguf(an_array(0, 1 << 62)), "'k' lists 4611686018427387904 values, which is absurd"),
        (raw_gguf(an_array(8, 1 << 40)), "'k' lists 1099511627776 values, which is absurd"),
        (raw_gguf(an_array(9, 1)), "'k' lists the unknown type 9"),
        (raw_gguf(a_field(99, b"")), "'k' has the unknown type 99"),
        (raw_gguf(a_field(0, b"\1"), a_field(0, b"\1")), "the key 'k' is there twice"),
        (raw_gguf(a_field(4, bytes(4), b"general.alignment")), "0 is no power of two"),
        (raw_gguf(), "has no metadata key 'general.architecture'"),
        (
            raw_gguf(a_field(8, struct.pack("<Q", 4) + b"\x1b[2J", b"general.architecture")),
            r"general.architecture: '\x1b[2J' is no name of a family",
        ),
    ],
)
def test_a_gguf_that_cannot_be_true(raw: bytes, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(raw)

    assert sentence in refused(path)


@pytest.mark.parametrize(
    "field", [an_array(0, 1 << 32), an_array(8, 1 << 32), a_field(8, struct.pack("<Q", 1 << 38))]
)
def test_a_sparse_gguf_costs_neither_time_nor_memory(field: bytes, tmp_path: Path) -> None:
    """The file has room for what it counts, as holes; still it is no head of a model."""
    path = tmp_path / "m.gguf"
    path.write_bytes(raw_gguf(field))
    os.truncate(path, 1 << 40)

    began = time.monotonic()
    assert "cannot be read as GGUF" in refused(path)
    assert time.monotonic() - began < SLOW_S


def test_a_truncated_gguf_names_the_tensor_that_is_cut(tmp_path: Path) -> None:
    path = a_gguf(tmp_path / "m.gguf")
    os.truncate(path, path.stat().st_size - 64)

    assert "the tensor 'blk.0.attn_q.weight' reaches beyond the end of the file" in refused(path)


@given(data=st.data())
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_gguf_is_read_or_refused(data: st.DataObject, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    raw = bytearray(path.read_bytes() if path.exists() else a_gguf(path).read_bytes())
    head = 2500
    for at in data.draw(st.lists(st.integers(0, head), min_size=1, max_size=4)):
        raw[at] = data.draw(st.integers(0, 255))
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(raw)

    told = outcome(lambda: read_checkpoint(str(damaged)))
    assert isinstance(told, Checkpoint) or str(damaged) in str(told)


def a_split(tmp_path: Path) -> Iterator[Path]:
    """A model in two files; the second has tensors and nothing else."""
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama", split_max_tensors=1, use_temp_file=False)
    for key, value in GGUF_LLAMA.items():
        writer.add_uint32(f"llama.{key}", value)
    writer.add_tensor("token_embd.weight", np.zeros((100, 64), np.float32))
    writer.add_tensor("blk.0.attn_q.weight", np.zeros((64, 64), np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    yield from sorted(tmp_path.glob("m-*.gguf"))


def test_a_split_gguf_is_weighed_whole(tmp_path: Path) -> None:
    first, second = a_split(tmp_path)
    weights = read_checkpoint(str(first)).weights

    assert weights is not None
    assert weights.parts == {"embeddings": 25_600, "layers": 8192}
    with pytest.raises(InputError, match=r"general\.architecture") as raised:
        read_checkpoint(str(second))
    assert raised.value.hint == "give the first file of a split model"

    second.unlink()
    assert f"{second} is missing (1 of 2 files of the model are)" in refused(first)


def test_every_type_of_gguf_has_a_size() -> None:
    """Of the gguf package that is installed, so a new type needs only a new package."""
    known = [kind for kind in gguf.GGMLQuantizationType if kind in gguf.GGML_QUANT_SIZES]

    for kind in known:
        block, size = gguf.GGML_QUANT_SIZES[kind]
        assert gguf_file._tensor("t", (block, 3), kind.value).size == 3 * size


def test_limits_leave_room_for_large_models() -> None:
    """384 experts of three matrices with a scale each in 61 layers, all in one file; a vocabulary
    of 262,144 with scores, types and twice as many merges."""
    assert MAX_CONFIG_BYTES > 1 << 20
    assert tensors.MAX_VALUES > 5 * (384 * 3 * 2 * 61)
    assert tensors.MAX_HEADER_BYTES > 150 * (384 * 3 * 2 * 61)
    assert gguf_file.MAX_ITEMS > 262_144 * 5
