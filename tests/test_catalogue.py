"""Options held against the lists of their versions: slips, failures, what an engine cannot."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from conftest import HERE, Kvroom
from kvroom import engines
from kvroom.catalogue import Complaint, catalogue, complaints, is_version
from kvroom.options import Options

LISTED = [name for name in engines.names() if catalogue(name)]

SLIPS: dict[str, tuple[str, dict[str, Any], str]] = {
    "vllm": ("0.31.0", {"flags": ["--max-num-sequences", 8]}, "'--max-num-seqs'"),
    "sglang": ("0.5.23", {"flags": ["--max-runing-requests", 8]}, "'--max-running-requests'"),
    "llamacpp": ("2026.10.11549", {"flags": ["--paralel", 8]}, "'--parallel'"),
    "openvino": ("2026.4.1.0", {"flags": ["--num_kv_block", 8]}, "'--num_kv_blocks'"),
    "ollama": ("0.33.0", {"env": {"OLLAMA_NUM_PARALEL": "8"}}, "'OLLAMA_NUM_PARALLEL'"),
    "transformers": ("5.24.0", {"flags": ["--cb-num-block", 64]}, "'--cb-num-blocks'"),
    "trtllm": (
        "1.3.0rc29",
        {"config": {"kv_cache_config": {"enable_blok_reuse": False}}},
        "'kv_cache_config.enable_block_reuse'",
    ),
}
PROVIDED = {"llamacpp": {"pip": ["xllamacpp==2026.10.11549"]}, "openvino": {"pip": ["openvino"]}}


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program of every name; nothing is started in these tests."""
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    program = tmp_path / "program"
    program.write_text("")
    program.chmod(0o755)
    return program


def write(folder: Path, contenders: list[dict[str, Any]], model: str = "model.gguf") -> None:
    work = {"prompt_tokens": 8, "output_tokens": 8, "concurrency": [1]}
    matchup = {"name": "m", "model": model, "workload": work, "contenders": contenders}
    (folder / "m.yaml").write_text(json.dumps(matchup))


def contender(engine: str, program: Path, **more: Any) -> dict[str, Any]:
    provide = PROVIDED.get(engine, {"path": str(program)})
    return {"name": engine, "engine": engine, "provide": provide, **more}


def test_every_slip_is_known_to_this_test() -> None:
    assert sorted(SLIPS) == LISTED


def test_a_misspelt_option_of_each_engine_is_refused_with_the_right_one(
    programs: Path, kvroom: Kvroom, tmp_path: Path
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    for engine, (version, wrong, right) in SLIPS.items():
        gguf = engine in ("llamacpp", "openvino")
        contenders = [contender(engine, programs, version=version, **wrong)]
        write(tmp_path, contenders, "model.gguf" if gguf else "model")

        done = kvroom("engines", "--check", "m.yaml")

        assert done.returncode == 2, (engine, done.stdout, done.stderr)
        assert f"m.yaml: {engine}: wrong" in done.stdout
        assert f"did you mean {right}?" in done.stdout, engine
        run = kvroom("run", "m.yaml")
        assert run.returncode == 2, engine
        assert f"hint: did you mean {right}?" in run.stderr


def test_all_that_is_wrong_is_told_at_once(programs: Path, kvroom: Kvroom, tmp_path: Path) -> None:
    flags = ["--paralel", 8, "--ctx-sizes", 9]
    first = contender("llamacpp", programs, version="2026.10.11549", flags=flags)
    write(tmp_path, [first, first | {"name": "b", "settings": {"state_dtype": "f16"}, "flags": []}])

    done = kvroom("engines", "--check", "m.yaml", "--json")

    found = {one["contender"]: one["complaints"] for one in json.loads(done.stdout)}
    assert [len(complaints) for complaints in found.values()] == [2, 1]
    assert "recurrent states are always float32" in found["b"][0]["what"]


def test_a_matchup_without_mistakes_says_what_would_be_started(
    programs: Path, kvroom: Kvroom, tmp_path: Path
) -> None:
    write(tmp_path, [contender("llamacpp", programs, settings={"slots": 4})])

    done = kvroom("engines", "--check", "m.yaml")

    assert done.returncode == 0
    assert "m.yaml: llamacpp: ok" in done.stdout
    assert "--port PORT --metrics -lv 4 -np 4" in done.stdout


def said(engine: str, version: str | None, *words: str, **more: Any) -> list[Complaint]:
    options = Options(arguments=words, **more)
    return complaints(engines.engine(engine), version, options)


def test_the_founding_failure_is_known_with_its_remedy() -> None:
    (known,) = said("trtllm", "1.3.0rc29", config={"disable_mm_encoder": True})

    assert known.fatal
    assert "'NoneType' object has no attribute 'load_weights'" in known.what
    assert known.hint.startswith("leave it out (text_only: false)")
    assert said("trtllm", "1.3.0rc29", config={"disable_mm_encoder": False}) == []
    (elsewhere,) = said("trtllm", "1.4.0", config={"disable_mm_encoder": True})
    assert not elsewhere.fatal


def test_text_only_of_that_release_is_refused_before_anything_starts(
    programs: Path, kvroom: Kvroom, tmp_path: Path
) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    one = contender("trtllm", programs, version="1.3.0rc29", settings={"text_only": True})
    write(tmp_path, [one], "model")

    done = kvroom("run", "m.yaml")

    assert done.returncode == 2
    assert "disable_mm_encoder is known to fail in trtllm 1.3.0rc29" in done.stderr


def test_ollama_says_that_it_has_one_slot_for_some_families(
    programs: Path, kvroom: Kvroom, tmp_path: Path
) -> None:
    hybrid = HERE.parent / "examples" / "rtx5090-hybrid" / "model"
    write(tmp_path, [contender("ollama", programs, settings={"slots": 8})], str(hybrid))

    done = kvroom("engines", "--check", "m.yaml")

    assert "note: Ollama runs qwen3_5 with one slot, not the 8 that are asked for" in done.stdout


@pytest.mark.parametrize(
    "words",
    [
        ("--max_num_seqs", "8"),  # underscores
        ("--kv-cache-memory", "8"),  # a beginning that only one option has
        ("-tp", "2"),
        ("-O3",),
        ("--compilation-config.mode", "3"),
        ("--no-enable-prefix-caching",),
        ("--port=8000",),
        ("--seed", "-1"),
    ],
)
def test_every_spelling_that_vllm_takes_is_taken(words: tuple[str, ...]) -> None:
    assert said("vllm", "0.31.0", *words) == []


def test_a_value_that_is_no_choice_is_answered_with_the_nearest() -> None:
    (wrong,) = said("vllm", "0.31.0", "--kv-cache-dtype", "fp8_e4m4")

    assert wrong.fatal
    assert wrong.hint == "did you mean 'fp8_e4m3'?"


def test_an_option_nobody_knows_is_refused_only_where_the_version_is_known() -> None:
    assert said("llamacpp", "b11434", "--something-else")[0].fatal
    assert not said("llamacpp", None, "--something-else")[0].fatal
    assert not said("llamacpp", "b99999", "--paralel", "8")[0].fatal
    assert said("llamacpp", None, "--paralel", "8")[0].fatal


def test_keys_of_a_part_that_is_not_listed_are_left_to_the_engine() -> None:
    free = {"speculative_config": {"decoding_type": "MTP"}, "env_overrides": {"A": "1"}}

    assert said("trtllm", "1.3.0rc29", config=free) == []


def test_what_is_deprecated_is_said() -> None:
    (old,) = said("sglang", "0.5.23", "--disable-cuda-graph")

    assert "says --disable-cuda-graph is deprecated: use --disable-decode" in old.what
    assert not old.fatal


@pytest.mark.parametrize(
    ("asked", "version", "same"),
    [
        ("0.31", "0.31.0", True),
        ("v0.31.0", "0.31.0", True),
        ("0.31.0", "0.31.0+cpu", True),
        ("0.3", "0.31.0", False),
        ("1.3.0rc2", "1.3.0rc29", False),
    ],
)
def test_versions(asked: str, version: str, same: bool) -> None:
    assert is_version(asked, version) is same


@pytest.mark.parametrize("name", LISTED)
def test_lists_say_where_they_are_from_and_name_each_option_once(name: str) -> None:
    listed = catalogue(name)
    assert listed is not None
    assert listed.source
    for options in listed.versions.values():
        spellings = [s for key, option in options.items() for s in (key, *option.aliases)]
        assert len(spellings) == len(set(spellings)), name


@pytest.mark.vllm
def test_the_list_of_vllm_is_what_its_own_parser_has(vllm_python: Path) -> None:
    script = HERE / "oracles" / "vllm_options.py"
    done = subprocess.run(
        [vllm_python, script], capture_output=True, text=True, check=True, timeout=300
    )
    its_own = json.loads(done.stdout)
    listed = catalogue("vllm")
    assert listed is not None
    ours = listed.versions["0.31.0"]

    def spelt(options: dict[str, Any]) -> dict[str, set[str]]:
        aliases = ((n, o.get("aliases", [])) for n, o in options.items())
        return {spelling: {n, *more} for n, more in aliases for spelling in (n, *more)}

    assert spelt(its_own) == {
        spelling: {name, *option.aliases}
        for name, option in ours.items()
        for spelling in (name, *option.aliases)
    }
    for name, option in ours.items():
        theirs = its_own.get(name) or its_own[option.aliases[0]]
        assert list(option.choices) == theirs.get("choices", [])
        assert option.default == theirs["default"] or theirs["default"] is None, name


def test_engines_are_listed_for_people_and_for_programs(kvroom: Kvroom) -> None:
    table = kvroom("engines").stdout
    listed = {one["name"]: one for one in json.loads(kvroom("engines", "--json").stdout)}

    assert all(name in table for name in engines.names())
    assert listed["trtllm"]["settings"]["kv_cache_dtype"] == ["kv_cache_config.dtype"]
    assert listed["trtllm"]["known_failures"][0]["option"] == "disable_mm_encoder"


def test_one_engine_is_listed_with_its_options(kvroom: Kvroom) -> None:
    done = kvroom("engines", "vllm", "--version", "0.31")
    told = json.loads(kvroom("engines", "vllm", "--version", "0.31", "--json").stdout)

    assert "Options of vllm 0.31.0\n" in done.stdout.replace("  ", "")
    assert told["version"] == "0.31.0"
    assert told["options"]["--kv-cache-dtype"]["default"] == "auto"
    assert "the nearest known to 0.99" in kvroom("engines", "vllm", "--version", "0.99").stdout


def test_an_engine_nobody_knows_is_answered_with_the_nearest(kvroom: Kvroom) -> None:
    done = kvroom("engines", "vlm")

    assert done.returncode == 2
    assert "hint: did you mean 'vllm'?" in done.stderr
