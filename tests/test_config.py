"""config.json and the paths to it: what cannot be read is refused in one sentence."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkpoints import (
    EMBEDDING,
    LLAMA,
    a_folder,
    outcome,
    refused,
)
from conftest import Kvroom
from kvroom.checkpoint.read import Checkpoint, read_checkpoint
from kvroom.errors import InputError

# config.json


def a_config(tmp_path: Path, text: bytes) -> Path:
    (tmp_path / "config.json").write_bytes(text)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"", "config.json is not JSON"),
        (b"{", "config.json is not JSON"),
        (b"\xff\xfe", "config.json is not JSON"),
        (b"[" * 1_000_000, "config.json is not JSON"),
        (b"5", "config.json does not hold an object"),
        (b"[]", "config.json does not hold an object"),
        (b" " * (50 << 20), "config.json is larger than 8 MiB"),
        (b"{}", "config.json has no num_hidden_layers"),
        (b'{"text_config": {}}', "config.json has no text_config.num_hidden_layers"),
        (b'{"text_config": []}', "text_config: it is not an object"),
        (b'{"text_config":' * 500 + b"{}" + b"}" * 500, "text_config: it lies absurdly deep"),
        (b'{"model_type": 5}', "model_type: 5 is not a text"),
        (b'{"model_type": "\\u001b[2J"}', r"model_type: '\x1b[2J' is not a word"),
    ],
)
def test_a_config_that_cannot_be_read(text: bytes, sentence: str, tmp_path: Path) -> None:
    assert sentence in refused(a_config(tmp_path, text))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"num_hidden_layers": 0}, "num_hidden_layers: 0 is not a positive whole number"),
        ({"num_hidden_layers": -1}, "num_hidden_layers: -1 is not"),
        ({"num_hidden_layers": 10**30}, "num_hidden_layers: 1000"),
        ({"num_hidden_layers": 2.5}, "num_hidden_layers: 2.5 is not"),
        ({"num_hidden_layers": True}, "num_hidden_layers: True is not"),
        ({"num_hidden_layers": "2"}, "num_hidden_layers: '2' is not"),
        ({"num_hidden_layers": [1] * 100_000}, "num_hidden_layers: [1, 1"),
        ({"num_attention_heads": 5}, "hidden_size: 64 is no multiple of 5 attention heads"),
        ({"num_key_value_heads": 3}, "num_key_value_heads: 3 does not divide 4 heads"),
        ({"head_dim": 1 << 40}, "head_dim: 1099511627776 is absurdly large"),
        ({"hidden_size": None}, "has no hidden_size"),
        ({"vocab_size": -5}, "vocab_size: -5 is not"),
        (
            {"layer_types": ["full_attention", "sliding_attention", "x"], "sliding_window": 9},
            "layer_types: 3 types for 2 layers",
        ),
        ({"model_type": "x", "layer_types": "full"}, "layer_types: it is not a list of texts"),
    ],
)
def test_a_config_that_contradicts_itself(
    change: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    said = refused(a_folder(tmp_path / "m", **change))

    assert sentence in said
    assert str(tmp_path / "m" / "config.json") in said


@given(data=st.data())
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_value_under_any_key_is_read_or_refused(data: st.DataObject, tmp_path: Path) -> None:
    values = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
    key = data.draw(st.sampled_from(sorted(LLAMA)))
    value = data.draw(values | st.lists(values, max_size=3) | st.dictionaries(st.text(), values))
    folder = a_folder(tmp_path / "m")
    (folder / "config.json").write_text(json.dumps({**LLAMA, key: value}))

    told = outcome(lambda: read_checkpoint(str(folder)))
    assert isinstance(told, Checkpoint) or str(folder) in str(told)


def test_the_command_says_one_sentence_and_what_to_do(tmp_path: Path, kvroom: Kvroom) -> None:
    folder = a_folder(tmp_path / "m", {"model.safetensors": EMBEDDING})
    os.truncate(folder / "model.safetensors", 20)
    done = kvroom("plan", folder, "--engine", "vllm", "--available", "1GiB")

    assert done.returncode == 2
    error, hint = done.stderr.splitlines()
    assert error.startswith(f"error: {folder}/model.safetensors: the header says")
    assert hint == "hint: the file is damaged or incomplete: fetch it again"


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        ("~nobody-of-that-name/x", "cannot be found"),
        ("a" * 10_000, "cannot be read: file name too long"),
        ("a\0b", "does not exist"),
        ("./nowhere", "does not exist"),
        ("/dev/null", "neither a model folder nor a .gguf file"),
    ],
)
def test_a_path_that_leads_nowhere(model: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        read_checkpoint(model)


def test_a_folder_that_may_not_be_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may list anything, so the refusal is played."""

    def forbidden(_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.scandir", forbidden)

    assert "cannot be read: permission denied" in refused(a_folder(tmp_path / "m"))


def test_a_folder_of_gguf_files_is_told_to_give_the_file(tmp_path: Path) -> None:
    (tmp_path / "tiny.gguf").write_bytes(b"")
    with pytest.raises(InputError, match=r"has no config\.json") as raised:
        read_checkpoint(str(tmp_path))

    assert raised.value.hint == f"give the file itself, such as {tmp_path}/tiny.gguf"
