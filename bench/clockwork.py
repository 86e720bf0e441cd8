"""A server of known timing: its first token and each further one leave when the clock says so.

    python clockwork.py FIRST_MS STEP_MS TOKENS

It prints its port, answers any POST with a stream of events shaped like vLLM's, and after each
request keeps what it did. ``GET /truth`` gives that as JSON: for each request the moment it was
read, and the moments just before each send, in monotonic ns. One thread, epoll, no dependencies.
"""

import heapq
import json
import select
import socket
import sys
import time

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENT = (
    '{"id":"cmpl-00000000000000000000000000000000","object":"text_completion","created":1796110305,'
    '"model":"clockwork","choices":[{"index":0,"text":" token","logprobs":null,"finish_reason":%s,'
    '"stop_reason":null,"token_ids":[42]}],"usage":null}'
)


def chunk(data: str) -> bytes:
    body = f"data: {data}\n\n".encode()
    return b"%x\r\n%b\r\n" % (len(body), body)


class Clockwork:
    def __init__(self, first_ms: float, step_ms: float, tokens: int) -> None:
        self.first_ns, self.step_ns, self.tokens = int(first_ms * 1e6), int(step_ms * 1e6), tokens
        self.token, self.last = chunk(EVENT % "null"), chunk(EVENT % '"length"')
        usage = json.dumps(
            {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": tokens}}
        )
        self.end = chunk(usage) + chunk("[DONE]") + b"0\r\n\r\n"
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self.poll = select.epoll()
        self.poll.register(self.listener, select.EPOLLIN)
        self.connections: dict[int, socket.socket] = {}
        self.inbox: dict[int, bytes] = {}
        self.agenda: list[tuple[int, int, int]] = []
        self.truth: list[dict[str, list[int] | int]] = []
        self.current: dict[int, dict[str, list[int] | int]] = {}

    def run(self) -> None:
        print(self.listener.getsockname()[1], flush=True)
        while True:
            wait = -1.0
            if self.agenda:
                wait = max(0.0, (self.agenda[0][0] - time.monotonic_ns()) / 1e9)
            for fd, _ in self.poll.poll(wait if wait < 0 or wait > 0.001 else 0):
                self.accept() if fd == self.listener.fileno() else self.read(fd)
            self.send_due()

    def accept(self) -> None:
        connection, _ = self.listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connections[connection.fileno()] = connection
        self.inbox[connection.fileno()] = b""
        self.poll.register(connection, select.EPOLLIN)

    def read(self, fd: int) -> None:
        try:
            data = self.connections[fd].recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            return self.close(fd)
        self.inbox[fd] += data
        head, found, body = self.inbox[fd].partition(b"\r\n\r\n")
        if found and len(body) >= length_of(head):
            self.inbox[fd] = b""
            self.begin(fd, head)
        return None

    def begin(self, fd: int, head: bytes) -> None:
        if head.startswith(b"GET /truth"):
            body = json.dumps(self.truth).encode()
            self.truth = []
            reply = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
            self.connections[fd].setblocking(True)
            self.connections[fd].sendall(reply)
            return
        now = time.monotonic_ns()
        self.current[fd] = {"read": now, "sent": []}
        heapq.heappush(self.agenda, (now + self.first_ns, fd, 1))

    def send_due(self) -> None:
        while self.agenda and self.agenda[0][0] <= time.monotonic_ns():
            due, fd, number = heapq.heappop(self.agenda)
            if fd not in self.current:
                continue
            data = HEAD + self.token if number == 1 else self.token
            if number == self.tokens:
                data = self.last + self.end
            sent = self.current[fd]["sent"]
            assert isinstance(sent, list)
            sent.append(time.monotonic_ns())
            try:
                self.connections[fd].sendall(data)
            except OSError:
                self.close(fd)
                continue
            if number < self.tokens:
                heapq.heappush(self.agenda, (due + self.step_ns, fd, number + 1))
            else:
                self.truth.append(self.current.pop(fd))

    def close(self, fd: int) -> None:
        self.poll.unregister(fd)
        self.connections.pop(fd).close()
        self.current.pop(fd, None)


def length_of(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


if __name__ == "__main__":
    first, step, count = sys.argv[1:]
    Clockwork(float(first), float(step), int(count)).run()
