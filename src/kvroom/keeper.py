"""Stands between kvroom and one engine: keeps its log, and ends it with all its children.

Run as a program with the standard library only:

    python -I -S keeper.py LOG TIMES GRACE_S AFTER PROGRAM ARGUMENT...

It starts the program in a session of its own and writes what the program prints to LOG as it comes,
and for each line the nanoseconds since the start to TIMES. It stops the program when its own
standard input says anything or closes, which also happens when kvroom is killed. It adopts orphaned
grandchildren, so nothing the program started outlives it. AFTER is a JSON list, the words of one
more command to run in the end: the removal of a container, whose processes are not children.

It answers on standard output with one JSON object a line: first ``{"pid", "started_ns"}`` or
``{"error"}``, then ``{"exit"}`` if the engine exits by itself, and ``{"log_error"}`` if the log
cannot be written any more.
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, NoReturn

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
POLL_S = 0.05
LEFTOVER_S = 2.0
KILL_S = 5.0
CLEAR_S = 30.0
READ_BYTES = 1 << 16


def prctl(option: int, value: int) -> None:
    """Linux process control."""
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def say(**message: object) -> None:
    """One line to kvroom, if it still listens."""
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(message).encode() + b"\n")


class Log:
    """The raw log and, beside it, when each line ended."""

    def __init__(self, log: Path, times: Path, started_ns: int) -> None:
        self.log: BinaryIO = log.open("wb", buffering=0)
        self.times: BinaryIO = times.open("wb", buffering=0)
        self.started_ns = started_ns
        self.broken = False

    def add(self, data: bytes) -> None:
        """Keep what came; a full disk must not block the engine, so it is dropped then."""
        stamp = b"%d\n" % (time.monotonic_ns() - self.started_ns)
        try:
            self.log.write(data)
            self.times.write(stamp * data.count(b"\n"))
        except OSError as error:
            if not self.broken:
                say(log_error=error.strerror)
            self.broken = True


class Keeper:
    """One engine, from start to the end of its last child."""

    def __init__(self, log: Path, times: Path, argv: list[str]) -> None:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        self.pipe, write_end = os.pipe()
        os.set_blocking(self.pipe, False)
        self.log = Log(log, times, time.monotonic_ns())
        self.child = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=write_end,
            stderr=write_end,
            start_new_session=True,
            preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGKILL),
        )
        os.close(write_end)
        self.exit: int | None = None
        self.stopping = False
        say(pid=self.child.pid, started_ns=self.log.started_ns)

    def stop(self, *_: object) -> None:
        """A signal asks for the end."""
        self.stopping = True

    def watch(self) -> None:
        """Until the engine exits or somebody says stop."""
        while self.exit is None and not self.stopping:
            ready, _, _ = select.select([0, self.pipe], [], [], POLL_S)
            if self.pipe in ready and not self.drain():
                time.sleep(POLL_S)
            self.reap()
            if 0 in ready:
                self.stop()

    def drain(self) -> bool:
        """Move what was printed into the log; False when nobody can print any more."""
        try:
            while data := os.read(self.pipe, READ_BYTES):
                self.log.add(data)
            return False
        except BlockingIOError:
            return True

    def reap(self) -> None:
        """Collect what has exited, adopted grandchildren too."""
        try:
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                if found[0] == self.child.pid:
                    self.exit = os.waitstatus_to_exitcode(found[1])
        except ChildProcessError:
            pass

    def end(self, grace_s: float) -> None:
        """Ask the engine to stop, then what it left behind; in the end nobody is asked."""
        self.tell(signal.SIGTERM, lambda: {self.child.pid} if self.exit is None else set(), grace_s)
        self.tell(signal.SIGTERM, lambda: descendants(os.getpid()), LEFTOVER_S)
        self.tell(signal.SIGKILL, lambda: descendants(os.getpid()), KILL_S)
        self.drain()
        self.reap()

    def tell(self, number: int, whom: Callable[[], set[int]], wait_s: float) -> None:
        """Signal some processes, each once, until there are none or the time is up."""
        told: set[int] = set()
        deadline = time.monotonic() + wait_s
        while (alive := whom()) and time.monotonic() < deadline:
            for pid in alive - told:
                kill(pid, number)
            told |= alive
            time.sleep(POLL_S)
            self.drain()
            self.reap()


def kill(pid: int, number: int) -> None:
    """Signal one process that may be gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def descendants(root: int) -> set[int]:
    """Living processes below one process."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
        except (OSError, ValueError):
            continue
        if state not in "ZX":
            children.setdefault(int(parent), []).append(int(folder.name))
    found: set[int] = set()
    frontier = [root]
    while frontier:
        frontier = [child for parent in frontier for child in children.get(parent, ())]
        found.update(frontier)
    return found


def clear(words: list[str]) -> None:
    """Run the last command, whatever it says."""
    if words:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run(words, capture_output=True, timeout=CLEAR_S, check=False)


def main() -> NoReturn:
    """Keep one engine."""
    log, times, grace_s, after, *argv = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        keeper = Keeper(Path(log), Path(times), argv)
    except OSError as error:
        say(error=f"{error.strerror or error}: {error.filename or argv[0]}")
        sys.exit(1)
    signal.signal(signal.SIGTERM, keeper.stop)
    keeper.watch()
    if keeper.exit is not None:
        say(exit=keeper.exit)
    keeper.end(float(grace_s))
    clear(json.loads(after))
    sys.exit(0)


if __name__ == "__main__":
    main()
