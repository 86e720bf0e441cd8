"""The socket loop: send each request when it is due, and only record what comes back.

Nothing is parsed while a round runs. Each read notes how many bytes there are, when our loop read
them, and when the kernel received the last of them (``SO_TIMESTAMPNS``, on Linux, without TLS).
"""

import contextlib
import select
import socket
import ssl
import struct
import sys
from array import array
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from kvroom.clock import now_ns, wall_offset_ns
from kvroom.records import Outcome
from kvroom.units import NS_PER_S

if TYPE_CHECKING:
    Stamps = array[int]
else:  # Python 3.11 has no array[int]
    Stamps = array

CONNECT_S = 10.0
LEAD_NS = 5_000_000
"""Between the last connection opened and the first request due."""
TICK_S = 0.25
MAX_ANSWER_BYTES = 256 << 20
CLOCK_STEP_NS = 100_000
"""A wall clock that moved by more than this during a round makes its kernel stamps worthless."""

SO_TIMESTAMPNS = 35
_STAMP = struct.Struct("qq")
_ANCILLARY = socket.CMSG_SPACE(_STAMP.size)
_CHUNKED_END = b"\r\n0\r\n\r\n"


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Where the requests go."""

    host: str
    port: int
    tls: bool = False


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """A request as bytes; ``due_ns`` counts from the start of the round."""

    due_ns: int
    data: bytes
    answer_bytes: int
    """How large the answer will be, roughly; the buffer is allocated before the round."""


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long a stream may be silent, before its first token and after."""

    first_token_s: float
    stall_s: float


class Exchange(msgspec.Struct, kw_only=True):
    """One request and everything that came back. Times are ns since the start of the round."""

    sent_ns: int | None
    ended_ns: int
    data: bytes
    ends: Stamps
    """Length of the data after each read."""
    read_ns: Stamps
    """When our loop made each read."""
    kernel_ns: Stamps
    """When the kernel had received each read's last byte; empty where it does not say."""
    closed: bool
    failure: tuple[Outcome, str] | None


class RawRound(msgspec.Struct, kw_only=True):
    """One driven round, unparsed."""

    started_ns: int
    started_wall_s: float
    exchanges: list[Exchange]


Progress = Callable[[int, int], None]
"""Called a few times a second with the events and the answers that are in."""


def drive(
    target: Target, requests: Sequence[Outgoing], patience: Patience, progress: Progress
) -> RawRound:
    """Send all requests when they are due and record until the last answer has ended."""
    streams = _open(target, requests)
    offset_ns = wall_offset_ns()
    started_ns = now_ns() + LEAD_NS
    loop = _Loop(streams, started_ns, patience, progress)
    loop.run()
    if abs(wall_offset_ns() - offset_ns) > CLOCK_STEP_NS:
        for stream in streams:
            del stream.kernel_ns[:]
    return RawRound(
        started_ns=started_ns,
        started_wall_s=(started_ns + offset_ns) / NS_PER_S,
        exchanges=[stream.exchange(started_ns, offset_ns) for stream in streams],
    )


class _Stream:
    """One connection with its request and the record of its answer."""

    def __init__(self, request: Outgoing) -> None:
        self.request = request
        self.unsent = memoryview(request.data)
        self.sock: socket.socket | None = None
        self.buffer = bytearray(request.answer_bytes)
        self.used = 0
        self.released = self.blocked = False
        self.body_at: int | None = None
        self.expected: int | None = None
        self.ends, self.read_ns, self.kernel_ns = array("q"), array("q"), array("q")
        self.sent_ns: int | None = None
        self.ended_ns = 0
        self.closed = False
        self.failure: tuple[Outcome, str] | None = None

    def fail(self, outcome: Outcome, reason: str) -> None:
        self.failure = (outcome, reason)

    def send(self) -> bool:
        """Send what is left of the request; True when all of it is out."""
        assert self.sock is not None
        if self.sent_ns is None:
            self.sent_ns = now_ns()
        while self.unsent:
            try:
                self.unsent = self.unsent[self.sock.send(self.unsent) :]
            except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
                self.blocked = True
                return False
        return True

    def receive(self) -> bool:
        """Record what has arrived; True when the answer has ended."""
        assert self.sock is not None
        at = now_ns()
        if isinstance(self.sock, ssl.SSLSocket):
            return self._receive_tls(self.sock)
        space = memoryview(self.buffer)[self.used :]
        count, ancillary, _, _ = self.sock.recvmsg_into([space], _ANCILLARY)
        space.release()
        if ancillary:
            seconds, ns = _STAMP.unpack(ancillary[0][2])
            self.kernel_ns.append(seconds * NS_PER_S + ns)
        return self._note(count, at)

    def _receive_tls(self, sock: ssl.SSLSocket) -> bool:
        while True:
            space = memoryview(self.buffer)[self.used :]
            try:
                count = sock.recv_into(space)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return False
            finally:
                space.release()
            if self._note(count, now_ns()):
                return True

    def _note(self, count: int, at: int) -> bool:
        if count == 0:
            self.closed = True
            return True
        self.used += count
        self.ends.append(self.used)
        self.read_ns.append(at)
        if self.body_at is None:
            self.body_at, self.expected = _read_head(self.buffer, self.used)
        if self.expected is not None and self.used >= self.expected:
            return True
        if self.buffer.endswith(_CHUNKED_END, self.used - len(_CHUNKED_END), self.used):
            return True
        return self._make_room()

    def _make_room(self) -> bool:
        if self.used < len(self.buffer):
            return False
        if self.used >= MAX_ANSWER_BYTES:
            self.fail("unreadable", f"the answer is larger than {MAX_ANSWER_BYTES >> 20} MiB")
            return True
        self.buffer.extend(bytes(len(self.buffer)))
        return False

    def check_silence(self, now: int, patience: Patience) -> None:
        """Fail if nothing has come for too long; a head without a body is not a token yet."""
        since = self.read_ns[-1] if self.read_ns else self.sent_ns
        talking = self.body_at is not None and self.used > self.body_at
        limit = patience.stall_s if talking else patience.first_token_s
        if since is not None and now - since > limit * NS_PER_S:
            self.fail("stalled", f"silent for {limit:g} s")

    def exchange(self, started_ns: int, wall_offset: int) -> Exchange:
        """The record, on the round's clock."""
        whole = len(self.kernel_ns) == len(self.ends)
        return Exchange(
            sent_ns=None if self.sent_ns is None else self.sent_ns - started_ns,
            ended_ns=max(0, self.ended_ns - started_ns),
            data=bytes(memoryview(self.buffer)[: self.used]),
            ends=self.ends,
            read_ns=_shifted(self.read_ns, started_ns),
            kernel_ns=_shifted(self.kernel_ns, started_ns + wall_offset) if whole else array("q"),
            closed=self.closed,
            failure=self.failure,
        )


def _shifted(times: Stamps, by: int) -> Stamps:
    return array("q", (at - by for at in times))


def _read_head(buffer: bytearray, used: int) -> tuple[int | None, int | None]:
    """Where the body starts and, where a length is given, where it ends; None while unknown."""
    head_end = buffer.find(b"\r\n\r\n", 0, used)
    if head_end < 0:
        return None, None
    body_at = head_end + 4
    for line in bytes(buffer[:head_end]).lower().split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name == b"content-length" and value.strip().isdigit():
            return body_at, body_at + int(value)
    return body_at, None


class _Loop:
    """One epoll loop over all streams of a round."""

    def __init__(
        self, streams: list[_Stream], started_ns: int, patience: Patience, progress: Progress
    ) -> None:
        self.streams = streams
        self.patience = patience
        self.progress = progress
        self.started_ns = started_ns
        self.poll = select.epoll()
        self.open = {s.sock.fileno(): s for s in streams if s.sock is not None}
        self.due = sorted(self.open, key=lambda fd: self.open[fd].request.due_ns, reverse=True)

    def run(self) -> None:
        with self.poll:
            for fd in self.open:
                self.poll.register(fd, select.EPOLLIN)
            next_tick = now_ns()
            while self.open:
                self.send_due()
                for fd, _ in self.poll.poll(self.wait_s()):
                    self.serve(self.open[fd], fd)
                if now_ns() >= next_tick:
                    next_tick = now_ns() + int(TICK_S * NS_PER_S)
                    self.tick()

    def wait_s(self) -> float:
        if not self.due:
            return TICK_S
        due = self.started_ns + self.open[self.due[-1]].request.due_ns
        return min(TICK_S, max(0.0, (due - now_ns()) / NS_PER_S))

    def send_due(self) -> None:
        while self.due:
            fd = self.due[-1]
            if self.started_ns + self.open[fd].request.due_ns > now_ns():
                return
            self.due.pop()
            self.open[fd].released = True
            self.serve(self.open[fd], fd)

    def serve(self, stream: _Stream, fd: int) -> None:
        """Send or receive, whichever this stream is at."""
        try:
            if stream.unsent and stream.released:
                if not stream.send():
                    self.poll.modify(fd, select.EPOLLIN | select.EPOLLOUT)
                elif stream.blocked:
                    self.poll.modify(fd, select.EPOLLIN)
            elif stream.receive():
                self.end(stream, fd)
        except BlockingIOError:
            pass
        except OSError as error:
            stream.fail("cut" if stream.sent_ns else "refused", str(error.strerror or error))
            stream.closed = True
            self.end(stream, fd)

    def end(self, stream: _Stream, fd: int) -> None:
        stream.ended_ns = now_ns()
        self.poll.unregister(fd)
        del self.open[fd]
        if fd in self.due:
            self.due.remove(fd)
        if stream.sock is not None:
            stream.sock.close()

    def tick(self) -> None:
        """A few times a second: give up on silent streams, say how far we are."""
        now = now_ns()
        for fd, stream in list(self.open.items()):
            stream.check_silence(now, self.patience)
            if stream.failure is not None:
                self.end(stream, fd)
        events = sum(len(stream.ends) for stream in self.streams)
        self.progress(events, len(self.streams) - len(self.open))


def _open(target: Target, requests: Sequence[Outgoing]) -> list[_Stream]:
    """A stream for each request, connected before the round begins."""
    streams = [_Stream(request) for request in requests]
    context = ssl.create_default_context() if target.tls else None
    for stream in streams:
        try:
            stream.sock = _connect(target, context)
        except OSError as error:
            stream.fail("refused", f"no connection to {target.host}:{target.port}: {error}")
    return streams


def _connect(target: Target, context: ssl.SSLContext | None) -> socket.socket:
    sock = socket.create_connection((target.host, target.port), CONNECT_S)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is not None:
            sock = context.wrap_socket(sock, server_hostname=target.host)
        elif sys.platform == "linux":
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock
