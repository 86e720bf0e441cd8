"""matchup.yaml: what it may say, and that its schema says the same."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kvroom import located
from kvroom.errors import InputError
from kvroom.matchup import (
    Contender,
    Matchup,
    Model,
    Workload,
    load_matchup,
    matchup_schema,
)
from kvroom.provide.model import model_of
from kvroom.settings import Limits, Settings
from kvroom.units import Bytes, parse_bytes, show_bytes, show_seconds

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.yaml"))
SCHEMA: dict[str, Any] = json.loads(json.dumps(matchup_schema()))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_are_matchups_and_fit_the_schema(path: Path) -> None:
    load_matchup(path)
    jsonschema.validate(yaml.safe_load(path.read_text()), SCHEMA)


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "x"},
        {"name": "x", "workload": {"prompt_tokens": 1, "output_tokens": 0}, "contenders": []},
        {
            "name": "x",
            "workload": {"prompt_tokens": 1, "output_tokens": 1},
            "contenders": [{"name": "a", "engine": "vllm", "settings": {"kv_memory": "20M"}}],
        },
        {
            "name": "x",
            "workload": {"prompt_tokens": 1, "output_tokens": 1},
            "contenders": [{"name": "a", "engine": "vllm", "seting": {}}],
        },
    ],
)
def test_the_schema_refuses_what_the_loader_refuses(wrong: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, SCHEMA)


def test_anchors_and_merge_keys_save_writing() -> None:
    text = """
name: m
workload: {prompt_tokens: 1, output_tokens: 1}
contenders:
  - &base {name: a, engine: vllm, settings: &s {slots: 4}, flags: [--x, 1, 0.5]}
  - {<<: *base, name: b, settings: {<<: *s, max_len: 9}}
"""
    a, b = located.parse(text, Matchup, "m.yaml").contenders

    assert (b.name, b.engine) == ("b", "vllm")
    assert b.settings == Settings(slots=4, max_len=9)
    assert a.words == b.words == ["--x", "1", "0.5"]


def test_limits_hold_for_all_and_yield_to_a_contenders_own() -> None:
    contender = Contender(name="a", engine="vllm", settings=Settings(slots=4))
    matchup = Matchup(
        name="m",
        workload=Workload(prompt_tokens=1, output_tokens=1),
        contenders=[contender],
        limits=Limits(slots=32, max_len=4096),
    )

    assert matchup.settings_of(contender) == Settings(slots=4, max_len=4096)


@pytest.mark.parametrize(
    ("text", "value"),
    [("20MiB", 20 << 20), ("1.5 GiB", 3 << 29), ("20 MB", 20_000_000), ("7", 7), (7, 7), ("0B", 0)],
)
def test_sizes(text: str | int, value: int) -> None:
    assert parse_bytes(text) == value


@pytest.mark.parametrize("text", ["20M", "20m", "-1", -1, "MiB", "1e9", "", "1 TiB", True])
def test_sizes_that_could_mean_two_things_are_refused(text: str | int) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_bytes(text)


@given(st.integers(0, 1 << 50))
def test_a_shown_size_is_close_to_the_size(count: int) -> None:
    assert parse_bytes(show_bytes(count)) == pytest.approx(count, rel=0.006, abs=0.5)


def test_sizes_and_times_as_people_read_them() -> None:
    assert show_bytes(22.5 * 2**20) == "22.5 MiB"
    assert repr(Bytes(1 << 30)) == "1 GiB"
    assert [show_seconds(s) for s in (0.5612, 12.3, 185)] == ["0.56 s", "12 s", "3 min 05 s"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("model: {hub: a/b, path: c}", "a model needs exactly one of 'path', 'hub' and 'wheel'"),
        ("model: {wheel: a==1}", "a 'wheel' needs a 'file' inside it"),
        ("model: {path: a, revision: b}", "a 'revision' belongs to 'hub'"),
        ("provide: {image: a, path: b}", "'provide' needs exactly one of 'path', 'env', 'pip' and"),
        ("provide: {path: a, gpus: all}", "'runtime' and 'gpus' belong to 'image'"),
        ("starts: [warm, first]", "'first' can only be the first of 'starts'"),
        ("starts: [cold]", "invalid enum value 'cold'"),
        ("cache: ../x", "the cache name '../x' names a folder too"),
        ("url: http://a, config: {b: 1}", "with 'url' nothing is started, so 'config' has no mean"),
        ("endpoint: chats", "invalid enum value 'chats'"),
        ("settings: {speculative: {tokens: 2, method: draft}}", "'method: draft' and 'model' bel"),
        ("settings: {speculative: {tokens: 0}}", "expected `int` >= 1"),
    ],
)
def test_what_cannot_be_meant_is_one_sentence(text: str, problem: str, tmp_path: Path) -> None:
    top = text if text.startswith("model") else "model: m"
    more = "" if text.startswith("model") else f", {text}"
    (tmp_path / "m.yaml").write_text(
        f"name: m\n{top}\nworkload: {{prompt_tokens: 1, output_tokens: 1}}\n"
        f"contenders: [{{name: a, engine: vllm{more}}}]\n"
    )

    with pytest.raises(InputError) as refused:
        load_matchup(tmp_path / "m.yaml")

    assert problem.replace("`", "'") in str(refused.value)


def test_a_model_is_a_path_if_there_is_one_else_a_name_on_the_hub(tmp_path: Path) -> None:
    (tmp_path / "Qwen" / "here").mkdir(parents=True)

    assert model_of("Qwen/here", tmp_path) == Model(path="Qwen/here")
    assert model_of("Qwen/Qwen3-8B", tmp_path) == Model(path="Qwen/Qwen3-8B"), "beside a folder"
    assert model_of("other/Qwen3-8B", tmp_path) == Model(hub="other/Qwen3-8B")
    assert model_of("other/m.gguf", tmp_path) == Model(path="other/m.gguf")
