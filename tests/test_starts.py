"""Starts made on purpose, their first requests, and the settings that were in effect."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import Kvroom, a_record, an_info, steady
from kvroom.analyse.begin import begin
from kvroom.analyse.effective import Effective, effective
from kvroom.matchup import Contender
from kvroom.records import Fact, Source
from kvroom.settings import Settings, Speculative
from kvroom.store import Round, to_frame

WriteMatchup = Callable[..., Path]

TWICE = """\
name: twice
model: model.gguf
workload: {prompt_tokens: 16, output_tokens: 8, concurrency: [1], rounds: 1}
contenders:
  - {name: a, engine: llamacpp, provide: {path: "%s"}, starts: [first, warm]%s}
"""


@pytest.fixture
def twice(tmp_path: Path, stub_program: Path) -> Callable[[str], None]:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")

    def write(more: str = "") -> None:
        (tmp_path / "m.yaml").write_text(TWICE % (stub_program, more))

    return write


def test_a_first_and_a_warm_start_are_made_and_the_last_is_measured(
    twice: Callable[..., None], kvroom: Kvroom, tmp_path: Path
) -> None:
    twice()
    compiled = tmp_path / "cache" / "compiled" / "twice-a"
    compiled.mkdir(parents=True)
    (compiled / "of-an-earlier-run").write_text("")

    done = kvroom("run", "m.yaml", "-o", "r", "--json")

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)["contenders"][0]
    assert [start["kind"] for start in told["starts"]] == ["first", "warm"]
    assert all(start["time_to_ready_s"] > 0 for start in told["starts"])
    assert told["start"]["env"]["CUDA_CACHE_PATH"] == str(compiled / "cuda")
    assert not (compiled / "of-an-earlier-run").exists(), "a first start has empty caches"
    assert sorted(p.name for p in (tmp_path / "r" / "a").glob("*.parquet")) == [
        "warmup-2.parquet",
        "warmup.parquet",
    ]
    assert "a was ready after " in kvroom("report", "r").stdout
    assert "starting (first)" in done.stderr


def test_a_named_cache_is_kept_between_runs(
    twice: Callable[..., None], kvroom: Kvroom, tmp_path: Path
) -> None:
    twice(", cache: mine")
    text = (tmp_path / "m.yaml").read_text().replace("starts: [first, warm], ", "")
    (tmp_path / "m.yaml").write_text(text)
    kept = tmp_path / "cache" / "compiled" / "mine" / "kept"
    kept.parent.mkdir(parents=True)
    kept.write_text("")

    done = kvroom("run", "m.yaml", "-o", "r", "--json")

    assert done.returncode == 0, done.stderr
    assert kept.exists()
    start = json.loads(done.stdout)["contenders"][0]["start"]
    assert start["cache"] == str(kept.parent)


def test_a_start_that_was_timed_is_not_timed_again(
    twice: Callable[..., None], kvroom: Kvroom, tmp_path: Path
) -> None:
    twice()
    assert kvroom("run", "m.yaml", "-o", "r").returncode == 0
    (tmp_path / "r/a/rounds/c001-1.parquet").unlink()

    done = kvroom("run", "--resume", "r", "--json")

    kinds = [start["kind"] for start in json.loads(done.stdout)["contenders"][0]["starts"]]
    assert kinds == ["first", "warm", "warm"]


def test_a_draft_model_lies_beside_the_matchup(
    twice: Callable[..., None], kvroom: Kvroom, tmp_path: Path
) -> None:
    twice(", settings: {speculative: {tokens: 3, method: draft, model: small.gguf}}")
    (tmp_path / "small.gguf").write_bytes(b"GGUF")

    done = kvroom("run", "m.yaml", "--dry-run")

    assert f"--spec-draft-model {tmp_path}/small.gguf --spec-draft-n-max 3" in done.stdout


def a_round(*records: Any, concurrency: int = 1) -> Round:
    return Round(info=an_info(concurrency), frame=to_frame(records))


def test_the_first_request_and_the_way_to_steady_speed() -> None:
    slow = a_round(a_record(tokens_at_ms=steady(900, 50, 8)))
    usual = [a_round(a_record(tokens_at_ms=steady(60, 10, 8))) for _ in range(3)]

    told = begin(slow, usual)

    assert told is not None
    assert told.first_token_ms == 900
    assert told.usual_first_token_ms == 60
    assert told.slow_rounds == 1
    assert told.slow_s == pytest.approx((900 + 7 * 50 + 1) / 1000)


def test_rounds_after_the_warm_up_may_be_slow_too() -> None:
    slow = a_round(a_record(tokens_at_ms=steady(60, 50, 8)))
    usual = [a_round(a_record(tokens_at_ms=steady(60, 10, 8))) for _ in range(3)]

    told = begin(slow, [slow, *usual])

    assert told is not None
    assert told.slow_rounds == 2


def test_without_rounds_of_that_concurrency_steady_speed_cannot_be_told() -> None:
    warmup = a_round(a_record(tokens_at_ms=steady(60, 10, 8)))
    other = a_round(*[a_record(i) for i in range(4)], concurrency=4)

    told = begin(warmup, [other])

    assert told is not None
    assert (told.usual_first_token_ms, told.slow_rounds, told.slow_s) == (None, None, None)


def test_a_warm_up_that_failed_tells_nothing() -> None:
    assert begin(None, []) is None
    assert begin(a_round(a_record(tokens_at_ms=(), outcome="cut")), []) is None


def a_fact(name: str, value: Any) -> dict[str, Fact]:
    return {name: Fact(name=name, value=value, source=Source("a/engine.log", 7))}


def in_effect(
    engine: str, facts: dict[str, Fact] | None = None, **more: Any
) -> dict[str, Effective]:
    settings = more.pop("settings", Settings())
    contender = Contender(name="a", engine=engine, settings=settings, **more)
    return effective(contender, settings, facts or {}, more.get("version"))


def test_what_the_log_says_counts_before_what_was_asked() -> None:
    asked = Settings(slots=32)
    told = in_effect("llamacpp", a_fact("slots", 4.0), settings=asked)

    assert told["slots"] == Effective(value="4", how="logged", source="a/engine.log:7")
    assert in_effect("llamacpp", settings=asked)["slots"] == Effective(value="32", how="set")


def test_verbatim_options_count_before_settings() -> None:
    told = in_effect("vllm", settings=Settings(slots=32), flags=["--max-num-seqs", 8])

    assert told["slots"] == Effective(value="8", how="set")


def test_defaults_are_those_of_the_version() -> None:
    told = in_effect("vllm", version="0.31.0")

    assert told["memory_fraction"] == Effective(value="0.92", how="default")
    assert told["slots"].value == "its own choice"


def test_a_fact_that_tells_the_contrary_is_turned_around() -> None:
    told = in_effect("sglang", a_fact("prefix_cache_off", "True"))

    assert told["prefix_cache"].value == "off"
    assert told["prefix_cache"].how == "logged"


@pytest.mark.parametrize(
    ("settings", "setting", "shown"),
    [
        (Settings(prefix_cache=False), "prefix_cache", "off"),
        (Settings(kv_memory=20 << 20), "kv_memory", "20 MiB"),  # type: ignore[arg-type]
        (Settings(cuda_graphs=32), "cuda_graphs", "32"),
        (Settings(cuda_graphs=False), "cuda_graphs", "off"),
        (Settings(speculative=Speculative(tokens=2)), "speculative", "mtp, 2 tokens"),
        (Settings(memory_fraction=0.9), "memory_fraction", "0.9"),
    ],
)
def test_values_are_written_as_a_person_writes_them(
    settings: Settings, setting: str, shown: str
) -> None:
    assert in_effect("vllm", settings=settings)[setting] == Effective(value=shown, how="set")
