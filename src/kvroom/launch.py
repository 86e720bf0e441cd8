"""Start an engine, wait until it serves, end it with all its children."""

import contextlib
import json
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvroom import keeper
from kvroom.errors import EngineError, InputError
from kvroom.store import StartFiles

LOOPBACK = "127.0.0.1"
GRACE_S = 10.0
START_S = 30.0
RETURN_S = 20.0
MEMORY_SLACK = 0.05
LAST_LINES = 15
TAIL_BYTES = 1 << 16

_SECRET = re.compile(
    r"(?:^|[-_])(?:api)?(?:key|token|secret|password|passwd|credentials?)$", re.IGNORECASE
)
_LOGIN = re.compile(r"://[^/@\s]+@")
_SHOWN_ENV = re.compile(
    r"PATH|HOME|LANG|TZ|(LD|DYLD|PYTHON|PIP|CUDA|NVIDIA|HIP|ROCR|HF|HUGGINGFACE|TORCH|TRITON|VLLM|"
    r"SGLANG|TRTLLM|TLLM|GGML|LLAMA|OLLAMA|OPENVINO|OV|OMP|KMP|MKL|OPENBLAS|NCCL|NUMEXPR|MALLOC)_\w+"
)


@dataclass(frozen=True, kw_only=True)
class Command:
    """What to start, with the whole environment it gets."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: Path
    after: Sequence[str] = ()
    """A command to run when all is ended, such as the removal of a container."""


@dataclass(kw_only=True)
class Server:
    """A running engine."""

    keeper: "subprocess.Popen[bytes]"
    pid: int
    started_ns: int
    log: Path
    warnings: list[str]
    """What a reader should know, such as memory that did not come back."""
    exit: int | None = None

    def check(self) -> None:
        """EngineError with the last lines if the engine is gone."""
        assert self.keeper.stdout is not None
        while self.exit is None and select.select([self.keeper.stdout], [], [], 0)[0]:
            said = _answer(self.keeper)
            if "log_error" in said:
                self.warnings.append(f"the log is not complete: {said['log_error']}")
            else:
                self.exit = said.get("exit", -1)
        if self.exit is not None:
            raise EngineError(f"{_ended(self.exit)}", last_lines=last_lines(self.log))


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def check_port(port: int) -> None:
    """InputError, naming the holder where it can be seen, if the port is taken."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            raise InputError(
                f"port {port} is in use{_holder(port)}",
                "choose another 'port', or leave it out and a free one is taken",
            ) from None


def _holder(port: int) -> str:
    import psutil

    with contextlib.suppress(psutil.Error, OSError):
        for connection in psutil.net_connections("tcp"):
            if connection.laddr and connection.laddr.port == port and connection.pid:
                return f" by {psutil.Process(connection.pid).name()} (pid {connection.pid})"
    return ""


def find_program(program: str) -> str:
    """The full path of a program; InputError if it is not there."""
    found = shutil.which(program)
    if found is None:
        raise InputError(
            f"the program {program!r} is not on the PATH",
            "install it, or let kvroom do it: provide: {pip: [...]}",
        )
    return found


@contextlib.contextmanager
def launched(command: Command, port: int, files: StartFiles) -> Iterator[Server]:
    """The engine while it lives; afterwards its children, its port and its memory are back.

    Raises EngineError if the program cannot be started. What did not come back is a warning of the
    server, since what was measured is still true.
    """
    import psutil

    free_before = psutil.virtual_memory().available
    process = subprocess.Popen(
        [
            *(sys.executable, "-I", "-S", keeper.__file__),
            *(str(files.log.resolve()), str(files.times.resolve()), str(GRACE_S)),
            json.dumps(list(command.after)),
            *command.argv,
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=dict(command.env),
        cwd=command.cwd,
        start_new_session=True,
    )
    warnings: list[str] = []
    try:
        began = _answer(process)
        if "error" in began:
            raise EngineError(f"cannot start {command.argv[0]}: {began['error']}")
        yield Server(
            keeper=process,
            pid=began["pid"],
            started_ns=began["started_ns"],
            log=files.log,
            warnings=warnings,
        )
    finally:
        _end(process)
        warnings += _not_returned(port, free_before)


def run_beside(command: Command, timeout_s: float) -> None:
    """Run a command to its end, beside an engine that it sets up; EngineError if it fails."""
    shown = " ".join(shown_argv(command.argv))[:200]
    try:
        done = subprocess.run(
            list(command.argv), env=dict(command.env), cwd=command.cwd, capture_output=True,
            text=True, timeout=timeout_s, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineError(f"{shown} failed: {error}") from None
    if done.returncode != 0:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise EngineError(f"{shown} failed", last_lines=tuple(lines[-LAST_LINES:]))


def _answer(process: "subprocess.Popen[bytes]") -> dict[str, Any]:
    assert process.stdout is not None
    if not select.select([process.stdout], [], [], START_S)[0]:
        return {"error": "the keeper does not answer"}
    line = process.stdout.readline()
    return dict(json.loads(line)) if line else {"error": "the keeper ended", "exit": -1}


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Close the keeper's input and wait until it has ended everything."""
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(OSError):
        process.stdin.close()
    try:
        process.wait(GRACE_S + keeper.LEFTOVER_S + keeper.KILL_S + keeper.CLEAR_S + RETURN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()


def _not_returned(port: int, free_before: int) -> list[str]:
    """Wait for port and memory; say what is still missing in the end."""
    import psutil

    slack = MEMORY_SLACK * psutil.virtual_memory().total
    deadline = time.monotonic() + RETURN_S
    while True:
        missing = free_before - psutil.virtual_memory().available
        warnings = []
        if _answers(port):
            warnings.append(f"port {port} still answers after the engine was ended")
        if missing > slack:
            warnings.append(f"{missing / 2**20:.0f} MiB of memory did not come back")
        if not warnings or time.monotonic() > deadline:
            return warnings
        time.sleep(0.2)


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((LOOPBACK, port)) == 0


def _ended(code: int) -> str:
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"the engine was ended by {signal.Signals(-code).name}"
    return f"the engine exited with code {code}"


def last_lines(log: Path, count: int = LAST_LINES) -> tuple[str, ...]:
    """The last lines of a log that say something."""
    if not log.exists():
        return ()
    with log.open("rb") as file:
        file.seek(0, 2)
        file.seek(max(0, file.tell() - TAIL_BYTES))
        text = file.read().decode("utf-8", errors="replace")
    lines = [line.rpartition("\r")[2].rstrip() for line in text.splitlines()]
    return tuple([line[:500] for line in lines if line][-count:])


def shown_argv(argv: Sequence[str]) -> list[str]:
    """The arguments for the record, values of secret options blotted out."""
    shown: list[str] = []
    option = ""
    for word in argv:
        name, equals, _ = word.partition("=")
        if _SECRET.search(option) and not word.startswith("-"):
            shown.append("***")
        elif word.startswith("-") and equals and _SECRET.search(name):
            shown.append(f"{name}=***")
        else:
            shown.append(_LOGIN.sub("://***@", word))
        option = word if word.startswith("-") and not equals else ""
    return shown


def has_secret(argv: Sequence[str], env: Mapping[str, str]) -> bool:
    """Whether arguments or environment hold what must not be kept in a run."""
    return shown_argv(argv) != list(argv) or "***" in shown_env(env, env).values()


def shown_env(env: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """The environment for the record: what engines read and what was set, secrets blotted out."""
    return {
        name: "***" if _SECRET.search(name) else _LOGIN.sub("://***@", value)
        for name, value in sorted(env.items())
        if name in given or _SHOWN_ENV.fullmatch(name)
    }
