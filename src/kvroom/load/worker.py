"""The load loop in a process of its own, so that neither progress display nor parsing delays it."""

import contextlib
import gc
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection

import msgspec

from kvroom.errors import KvroomError
from kvroom.load.drive import Outgoing, Patience, Progress, RawRound, Target, drive

END_S = 5.0


class _Order(msgspec.Struct, frozen=True):
    target: Target
    requests: Sequence[Outgoing]
    patience: Patience


class _Heard(msgspec.Struct, frozen=True):
    events: int
    answers: int


class _Driven(msgspec.Struct, frozen=True):
    round: RawRound
    cpu_s: float


class Loader:
    """Drives rounds in the worker process."""

    def __init__(self, connection: "Connection[object, object]") -> None:
        self._connection = connection

    def drive(
        self,
        target: Target,
        requests: Sequence[Outgoing],
        patience: Patience,
        progress: Progress,
    ) -> tuple[RawRound, float]:
        """The driven round, and the CPU seconds the loop took for it."""
        self._connection.send(_Order(target, requests, patience))
        while True:
            try:
                said = self._connection.recv()
            except (EOFError, OSError):
                raise KvroomError("the load worker ended in the middle of a round") from None
            if isinstance(said, _Driven):
                return said.round, said.cpu_s
            assert isinstance(said, _Heard)
            progress(said.events, said.answers)


@contextlib.contextmanager
def loader() -> Iterator[Loader]:
    """A worker process for as long as it is needed."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=_serve, args=(theirs,), daemon=True, name="kvroom-load")
    process.start()
    theirs.close()
    try:
        yield Loader(ours)
    finally:
        ours.close()
        process.terminate()
        process.join(END_S)


def _serve(connection: "Connection[object, object]") -> None:
    """Drive what is ordered until nobody orders any more; Ctrl-C is for the parent to handle."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _go_first()
    gc.disable()
    parent = os.getppid()
    while True:
        try:
            order = connection.recv()
        except (EOFError, OSError):
            return
        assert isinstance(order, _Order)
        began = time.process_time()
        driven = drive(order.target, order.requests, order.patience, _hear(connection, parent))
        connection.send(_Driven(driven, time.process_time() - began))
        gc.collect()


def _go_first() -> None:
    """Where the system allows it, the loop runs before the engine it measures; it needs little.

    Each request sent wakes the server, which would otherwise take the processor from us before the
    next one is out: a wave of 16 then takes 20 ms to leave instead of 0.3.
    """
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))


def _hear(connection: "Connection[object, object]", parent: int) -> Progress:
    """Progress to the parent; without a parent there is no reason to go on."""

    def progress(events: int, answers: int) -> None:
        if os.getppid() != parent:
            os._exit(1)
        connection.send(_Heard(events, answers))

    return progress
