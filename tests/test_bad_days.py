"""What a user meets on a bad day: one sentence, the right exit code, nothing left running."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import Kvroom, processes_about
from kvroom.analyse.contender import measured
from kvroom.store import Run

pytestmark = pytest.mark.usefixtures("no_process_left")

WriteMatchup = Callable[..., Path]


@pytest.mark.parametrize(
    ("mode", "sentence"),
    [
        ("dies at start", "the engine exited with code 1"),
        ("refuses a flag", "the engine exited with code 1"),
        ("never ready", "not ready after 2 s: /health does not answer 200"),
        ("dies in a round", "the engine exited with code 7"),
        ("loses its worker", "sleep (pid "),
        ("hangs in a round", "the engine hangs"),
        ("errors in streams", "the warm-up request failed: Context size has been exceeded."),
        ("cuts streams", "the warm-up request failed: the stream ended without a finish"),
        ("refuses requests", "the warm-up request failed: HTTP 500: no room today"),
        (
            "truncates prompts",
            "the warm-up request failed: the server saw 11 prompt tokens, 16 were",
        ),
        ("stops early", "the warm-up request failed: 4 of 8 tokens"),
        ("counts nothing", "the warm-up request failed: the server reports neither usage nor"),
    ],
)
def test_a_contender_that_fails_is_recorded_and_the_next_one_runs(
    mode: str, sentence: str, write_matchup: WriteMatchup, kvroom: Kvroom, tmp_path: Path
) -> None:
    path = write_matchup({"bad": mode, "good": "well"}, timeouts={"ready_s": 2, "stall_s": 1})

    done = kvroom("run", path, "-o", "r")

    assert done.returncode == 3, done.stderr
    bad, good = measured(Run.open(tmp_path / "r"))
    assert bad.state == "failed"
    assert bad.ending is not None
    assert bad.ending.reason.startswith(sentence)
    assert good.state == "measured"
    assert f"! bad: failed: {sentence}"[:60] in done.stdout


def test_the_last_lines_of_a_dead_engine_are_kept(
    write_matchup: WriteMatchup, kvroom: Kvroom, tmp_path: Path
) -> None:
    kvroom("run", write_matchup({"bad": "dies in a round"}), "-o", "r")

    ending = Run.open(tmp_path / "r").ending("bad")

    assert ending is not None
    assert "out of room" in ending.last_lines[-1]


def test_rounds_before_a_death_are_kept_and_the_broken_one_does_not_count(
    write_matchup: WriteMatchup, kvroom: Kvroom, tmp_path: Path
) -> None:
    kvroom("run", write_matchup({"bad": "dies in a round"}), "-o", "r")

    files = sorted(f.name for f in (tmp_path / "r" / "bad" / "rounds").iterdir())

    assert files == ["c001-1.parquet", "c001-2.failed.parquet"]


def test_an_engine_that_ignores_term_is_killed(write_matchup: WriteMatchup, kvroom: Kvroom) -> None:
    done = kvroom("run", write_matchup({"stubborn": "ignores term"}), "-o", "r")

    assert done.returncode == 0, done.stderr


def test_grandchildren_are_ended_even_in_a_session_of_their_own(
    write_matchup: WriteMatchup, kvroom: Kvroom, tmp_path: Path
) -> None:
    done = kvroom("run", write_matchup({"parent": "has grandchildren"}), "-o", "r")

    assert done.returncode == 0, done.stderr
    log = (tmp_path / "r" / "parent" / "engine.log").read_text()
    children = [line.split()[1] for line in log.splitlines() if line.startswith("child")]
    assert len(children) == 2
    assert not any(Path("/proc", pid).exists() for pid in children)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGKILL, -9)]
)
def test_a_run_that_is_stopped_can_be_resumed(
    number: signal.Signals, code: int, write_matchup: WriteMatchup, kvroom: Kvroom, tmp_path: Path
) -> None:
    path = write_matchup({"a": "well", "b": "well"}, workload={"output_tokens": 200})
    with _started(path, tmp_path) as process:
        _wait_for(tmp_path / "r" / "a" / "rounds" / "c002-1.parquet", process)
        process.send_signal(number)
        assert process.wait(30) == code
    _wait_until_nothing_runs(tmp_path)
    before = {f: f.stat().st_mtime_ns for f in (tmp_path / "r").rglob("rounds/*.parquet")}

    done = kvroom("run", "--resume", "r")

    assert done.returncode == 0, done.stderr
    after = {f: f.stat().st_mtime_ns for f in (tmp_path / "r").rglob("rounds/*.parquet")}
    assert len(after) == 8
    assert before.items() <= after.items(), "a finished round was measured again"


def test_a_finished_run_has_nothing_to_resume(write_matchup: WriteMatchup, kvroom: Kvroom) -> None:
    kvroom("run", write_matchup({"a": "well"}), "-o", "r")

    done = kvroom("run", "--resume", "r")

    assert done.returncode == 0
    assert "0 rounds to measure" in done.stderr
    assert "starting" not in done.stderr


def test_two_kvrooms_do_not_write_to_one_run(
    write_matchup: WriteMatchup, kvroom: Kvroom, tmp_path: Path
) -> None:
    path = write_matchup({"a": "well"}, workload={"output_tokens": 200})
    with _started(path, tmp_path) as process:
        _wait_for(tmp_path / "r" / "a" / "rounds" / "c001-1.parquet", process)

        done = kvroom("run", "--resume", "r")

        assert done.returncode == 2
        assert "another kvroom is measuring into r" in done.stderr
        process.send_signal(signal.SIGINT)


def _started(path: Path, folder: Path) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", "kvroom", "run", str(path), "-o", "r"],
        cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def _wait_for(file: Path, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + 60
    while not file.exists():
        assert process.poll() is None, f"kvroom ended before {file}"
        assert time.monotonic() < deadline, f"{file} never came"
        time.sleep(0.01)


def _wait_until_nothing_runs(folder: Path) -> None:
    deadline = time.monotonic() + 30
    while processes_about(folder):
        assert time.monotonic() < deadline, processes_about(folder)
        time.sleep(0.05)
