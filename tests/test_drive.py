"""The socket loop against real sockets: what arrives is recorded, and every ending has a name."""

import contextlib
import datetime
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from kvroom.load import drive as driving
from kvroom.load.drive import Exchange, Outgoing, Patience, RawRound, Target, drive
from kvroom.load.worker import loader
from test_wire import STREAM, chunked

PATIENT = Patience(first_token_s=10, stall_s=10)
MS = 1_000_000
Script = Callable[[socket.socket], None]


@contextlib.contextmanager
def a_server(script: Script, backlog: int = 512) -> Iterator[Target]:
    """Answers every connection with the script, each in a thread of its own."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(backlog)

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    threading.Thread(target=answer, args=(connection,), daemon=True).start()

        def answer(connection: socket.socket) -> None:
            with connection, contextlib.suppress(OSError):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                script(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield Target(host="127.0.0.1", port=listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


def requests(count: int, due_ms: Sequence[float] = (), answer_bytes: int = 4096) -> list[Outgoing]:
    due = [*due_ms, *[0.0] * (count - len(due_ms))]
    return [
        Outgoing(due_ns=round(ms * MS), data=b"POST / HTTP/1.1\r\n\r\n", answer_bytes=answer_bytes)
        for ms in due
    ]


def driven(
    script: Script, count: int = 1, patience: Patience = PATIENT, **more: object
) -> list[Exchange]:
    return driven_round(script, count, patience, **more).exchanges


def driven_round(
    script: Script, count: int = 1, patience: Patience = PATIENT, **more: object
) -> RawRound:
    with a_server(script) as target:
        return drive(target, requests(count, **more), patience, lambda *_: None)  # type: ignore[arg-type]


def pieces(*parts: bytes | float) -> Script:
    """Reads the request, then sends bytes and pauses (in seconds) as listed."""

    def script(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        for part in parts:
            if isinstance(part, bytes):
                connection.sendall(part)
            else:
                time.sleep(part)

    return script


WHOLE = chunked(STREAM)


def test_the_bytes_are_kept_as_they_came() -> None:
    (exchange,) = driven(pieces(WHOLE[:100], 0.01, WHOLE[100:]))

    assert exchange.data == WHOLE
    assert exchange.failure is None
    assert exchange.ends[-1] == len(WHOLE)


def test_kernel_stamps_lie_between_the_servers_send_and_our_read() -> None:
    sent: list[int] = []

    def script(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        for i in range(0, len(WHOLE), 40):
            sent.append(time.monotonic_ns())
            connection.sendall(WHOLE[i : i + 40])
            time.sleep(0.003)

    made = driven_round(script)
    (exchange,) = made.exchanges

    assert len(exchange.kernel_ns) == len(exchange.ends) == len(sent)
    for send, kernel, read in zip(sent, exchange.kernel_ns, exchange.read_ns, strict=True):
        slack = 50_000  # of relating two clocks
        assert send - made.started_ns - slack <= kernel <= read + slack


def test_requests_are_sent_when_they_are_due_and_not_before() -> None:
    exchanges = driven(pieces(WHOLE), 3, due_ms=(0, 120, 60))

    for exchange, due_ms in zip(exchanges, (0, 120, 60), strict=True):
        assert exchange.sent_ns is not None
        assert due_ms * MS <= exchange.sent_ns < (due_ms + 50) * MS


def test_a_wave_is_released_together() -> None:
    exchanges = driven(pieces(0.05, WHOLE), 64)

    sent = [exchange.sent_ns for exchange in exchanges]
    assert max(s for s in sent if s is not None) < 50 * MS
    assert all(exchange.data == WHOLE for exchange in exchanges)


def test_an_answer_larger_than_foreseen_is_kept_whole() -> None:
    body = chunked(STREAM * 500, 1000)
    (exchange,) = driven(pieces(body), answer_bytes=100)

    assert exchange.data == body


def test_an_endless_answer_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driving, "MAX_ANSWER_BYTES", 1 << 20)

    def script(connection: socket.socket) -> None:
        while True:
            connection.sendall(b"x" * 65536)

    (exchange,) = driven(script)

    assert exchange.failure == ("unreadable", "the answer is larger than 1 MiB")


@pytest.mark.parametrize(
    ("parts", "closed"),
    [
        ((WHOLE, 5.0), False),
        ((b"HTTP/1.1 500 No\r\nContent-Length: 4\r\n\r\nfull", 5.0), False),
        ((b"HTTP/1.1 200 OK\r\n\r\nuntil the end",), True),
    ],
    ids=["last chunk", "content-length", "close"],
)
def test_an_answer_ends_where_http_says(parts: tuple[bytes | float, ...], closed: bool) -> None:
    began = time.monotonic()
    (exchange,) = driven(pieces(*parts))

    assert time.monotonic() - began < 4, "waited for a connection that stays open"
    assert exchange.closed is closed
    assert exchange.failure is None


def test_a_reset_is_a_cut_with_what_had_arrived() -> None:
    def script(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        connection.sendall(WHOLE[:90])
        time.sleep(0.05)
        linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)

    (exchange,) = driven(script)

    assert exchange.failure == ("cut", "Connection reset by peer")
    assert exchange.data == WHOLE[:90]


def test_silence_in_a_stream_is_a_stall() -> None:
    patience = Patience(first_token_s=5, stall_s=0.3)
    (exchange,) = driven(pieces(WHOLE[:200], 5.0), patience=patience)

    assert exchange.failure == ("stalled", "silent for 0.3 s")


def test_waiting_for_the_first_token_is_not_a_stall() -> None:
    head = WHOLE.index(b"\r\n\r\n") + 4
    patience = Patience(first_token_s=5, stall_s=0.3)
    (exchange,) = driven(pieces(WHOLE[:head], 0.9, WHOLE[head:]), patience=patience)

    assert exchange.failure is None
    assert exchange.data == WHOLE


def test_nobody_there_is_refused() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        target = Target(host="127.0.0.1", port=closed.getsockname()[1])
        (exchange,) = drive(target, requests(1), PATIENT, lambda *_: None).exchanges

    assert exchange.failure is not None
    assert exchange.failure[0] == "refused"
    assert exchange.sent_ns is None


def test_progress_counts_events_and_answers() -> None:
    heard: list[tuple[int, int]] = []
    with a_server(pieces(WHOLE[:90], 0.4, WHOLE[90:])) as target:
        drive(target, requests(2), PATIENT, lambda events, answers: heard.append((events, answers)))

    assert (2, 0) in heard


def test_a_wall_clock_that_steps_makes_kernel_stamps_worthless(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    offsets = iter([0, 10**9])
    monkeypatch.setattr(driving, "wall_offset_ns", lambda: next(offsets))

    (exchange,) = driven(pieces(WHOLE))

    assert not exchange.kernel_ns
    assert len(exchange.read_ns) == len(exchange.ends)


def test_the_worker_process_drives_like_the_loop_itself() -> None:
    with a_server(pieces(WHOLE)) as target, loader() as load:
        for _ in range(2):
            made, cpu_s = load.drive(target, requests(3), PATIENT, lambda *_: None)
            assert [exchange.data for exchange in made.exchanges] == [WHOLE] * 3
            assert 0 < cpu_s < 5


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("tls") / "server.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
         "-keyout", str(file), "-out", str(file.with_suffix(".crt"))],
        check=True, capture_output=True,
    )  # fmt: skip
    return file


def tls(script: Script, certificate: Path) -> Script:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.with_suffix(".crt"), certificate)

    def wrapped(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as secure:
            script(secure)

    return wrapped


def test_tls_with_a_certificate_that_is_trusted(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.with_suffix(".crt")))
    body = chunked(STREAM * 300, 700)
    with a_server(tls(pieces(body[:5000], 0.01, body[5000:]), certificate)) as plain:
        target = Target(host="localhost", port=plain.port, tls=True)
        (exchange,) = drive(target, requests(1), PATIENT, lambda *_: None).exchanges

    assert exchange.failure is None
    assert exchange.data == body
    assert not exchange.kernel_ns, "the kernel cannot stamp what is inside TLS"


def test_tls_with_a_certificate_nobody_trusts_is_refused(certificate: Path) -> None:
    with a_server(tls(pieces(WHOLE), certificate)) as plain:
        target = Target(host="localhost", port=plain.port, tls=True)
        (exchange,) = drive(target, requests(1), PATIENT, lambda *_: None).exchanges

    assert exchange.failure is not None
    assert exchange.failure[0] == "refused"
    assert "certificate verify failed" in exchange.failure[1]


def test_the_rounds_wall_clock_is_the_wall_clock() -> None:
    made = driven_round(pieces(WHOLE))

    now = datetime.datetime.now(datetime.UTC).timestamp()
    assert abs(made.started_wall_s - now) < 5
