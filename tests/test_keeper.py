"""The keeper: nothing outlives it, and every line of the log has its moment."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kvroom import keeper
from kvroom.launch import shown_argv, shown_env

GRACE_S = "0.5"


class Kept:
    """A program under a keeper."""

    def __init__(self, folder: Path, script: str) -> None:
        self.log, self.times = folder / "engine.log", folder / "engine.times"
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", keeper.__file__, self.log, self.times, GRACE_S, "[]",
             "/bin/sh", "-c", script],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self.began = self.answer()

    def answer(self) -> dict[str, object]:
        assert self.process.stdout is not None
        return dict(json.loads(self.process.stdout.readline()))

    def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def wait_for_line(self, text: str) -> str:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            for line in self.log.read_text().splitlines():
                if line.startswith(text):
                    return line
            time.sleep(0.01)
        raise AssertionError(f"{text!r} never came: {self.log.read_text()!r}")


Keep = Callable[[str], Kept]


@pytest.fixture
def keep(tmp_path: Path) -> Iterator[Keep]:
    """Starts shell scripts under keepers, and closes what they opened."""
    with contextlib.ExitStack() as stack:

        def start(script: str) -> Kept:
            kept = Kept(tmp_path, script)
            stack.enter_context(kept.process)
            return kept

        yield start


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def test_the_log_is_kept_byte_by_byte_with_a_time_for_each_line(keep: Keep) -> None:
    kept = keep("printf 'a\\n'; sleep 0.3; printf 'b\\rc\\n\\377\\n' >&2; printf end")
    assert kept.answer() == {"exit": 0}
    kept.process.wait(10)

    assert kept.log.read_bytes() == b"a\nb\rc\n\xff\nend"
    times = [int(line) / 1e9 for line in kept.times.read_text().splitlines()]
    assert len(times) == 3
    assert times[1] - times[0] == pytest.approx(0.3, abs=0.15)


def test_its_own_exit_is_told_as_it_was(keep: Keep) -> None:
    assert keep("exit 7").answer() == {"exit": 7}
    assert keep("kill -SEGV $$").answer() == {"exit": -signal.SIGSEGV}


FAMILY = (
    "sleep 3600 & echo child $!; "
    "(setsid sleep 3600 & echo far $!; exec setsid sh -c 'sleep 3600 & echo orphan $!'); "
    "trap '' TERM; echo self $$; sleep 3600; sleep 3600"
)


@pytest.mark.parametrize("how", ["input closed", "keeper gets TERM"])
def test_everything_is_ended_however_far_it_went(how: str, keep: Keep) -> None:
    kept = keep(FAMILY)
    pids = [int(kept.wait_for_line(n).split()[1]) for n in ("child", "far", "orphan", "self")]
    assert all(map(alive, pids))

    if how == "input closed":
        kept.stop()
    else:
        kept.process.send_signal(signal.SIGTERM)
    kept.process.wait(20)

    assert not any(map(alive, pids))


def test_an_engine_whose_keeper_is_killed_dies_too(keep: Keep) -> None:
    kept = keep("echo self $$; exec sleep 3600")
    pid = int(kept.wait_for_line("self").split()[1])

    kept.process.kill()
    kept.process.wait(10)

    deadline = time.monotonic() + 5
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not alive(pid)


def test_orphans_of_an_engine_that_died_are_ended(keep: Keep) -> None:
    kept = keep("(setsid sleep 3600 & echo orphan $!); exit 3")
    pid = int(kept.wait_for_line("orphan").split()[1])
    assert kept.answer() == {"exit": 3}
    kept.process.wait(10)

    assert not alive(pid)


def test_a_program_that_is_not_there_is_said(tmp_path: Path) -> None:
    process = subprocess.run(
        [sys.executable, "-I", "-S", keeper.__file__,
         tmp_path / "l", tmp_path / "t", "1", "[]", "/nowhere"],
        stdin=subprocess.DEVNULL, capture_output=True, check=False,
    )  # fmt: skip

    assert json.loads(process.stdout) == {"error": "No such file or directory: /nowhere"}


def test_a_log_that_cannot_be_written_does_not_stop_the_engine(keep: Keep, tmp_path: Path) -> None:
    (tmp_path / "engine.log").symlink_to("/dev/full")
    kept = keep("yes | head -c 300000; exit 5")

    assert kept.answer() == {"log_error": "No space left on device"}
    assert kept.answer() == {"exit": 5}, "the error is said once"


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (["x", "--api-key", "s3cret"], ["x", "--api-key", "***"]),
        (["x", "--hf-token=s3cret", "-m", "m"], ["x", "--hf-token=***", "-m", "m"]),
        (["x", "--max-num-batched-tokens", "512"], ["x", "--max-num-batched-tokens", "512"]),
        (["x", "https://me:pw@host/y"], ["x", "https://***@host/y"]),
    ],
)
def test_secrets_do_not_reach_the_record_of_arguments(argv: list[str], shown: list[str]) -> None:
    assert shown_argv(argv) == shown


def test_secrets_do_not_reach_the_record_of_the_environment() -> None:
    env = {
        "HF_TOKEN": "s3cret",
        "VLLM_API_KEY": "s3cret",
        "VLLM_LOG_STATS_INTERVAL": "1",
        "MY_DATABASE": "s3cret",
        "MINE": "ok",
        "MY_PASSWORD": "s3cret",
        "HF_ENDPOINT": "https://me:s3cret@host",
        "PATH": os.defpath,
    }
    shown = shown_env(env, {"MINE": "ok", "MY_PASSWORD": "s3cret"})

    assert "s3cret" not in json.dumps(shown)
    assert shown["VLLM_LOG_STATS_INTERVAL"] == "1"
    assert shown["MINE"] == "ok"
    assert "MY_DATABASE" not in shown
