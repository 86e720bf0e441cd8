"""A program that behaves like llama-server towards kvroom, well or in one named bad way.

It stands where the fault is the point of a test and no real engine would fail on request. It is
started as a program of its own, with real sockets, through ``provide: {path: ...}``.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODES = (
    "well",
    "dies at start",  # exits before it listens
    "refuses a flag",  # as argparse does
    "never ready",  # listens, but its probe never says 200
    "dies in a round",  # exits in the middle of the third answer
    "loses its worker",  # whose death only shows in broken streams and an unhealthy probe
    "hangs in a round",  # stops talking in the middle of the third answer
    "ignores term",  # only SIGKILL ends it
    "has grandchildren",  # one of them in a session of its own
    "errors in streams",  # an error event after HTTP 200
    "cuts streams",  # closes before the end
    "refuses requests",  # HTTP 500
    "truncates prompts",  # reports fewer prompt tokens than were sent
    "stops early",  # half of the tokens that were forced
    "counts nothing",  # no usage
    "refuses a field",  # HTTP 400 for ignore_eos, as some hosted endpoints do
    "never says done",  # a finish reason, and no [DONE]
)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--port", type=int, required=True)
    parser.set_defaults(
        mode=os.environ.get("STUB_MODE", "well"),
        token_s=float(os.environ.get("STUB_TOKEN_S", "0.002")),
    )
    return parser.parse_known_args()[0]


def log(text: str) -> None:
    print(text, flush=True)


TEMPLATE_TOKENS = 7


def seen(body: dict[str, Any]) -> int:
    """How many tokens a prompt has: of a text its words, of a chat those of its template too."""
    if "messages" in body:
        return TEMPLATE_TOKENS + len(body["messages"][0]["content"].split())
    prompt = body["prompt"]
    return len(prompt.split()) if isinstance(prompt, str) else len(prompt)


def said(body: dict[str, Any], number: int) -> dict[str, Any]:
    """A choice with one token; a chat thinks first."""
    if "messages" not in body:
        return {"text": f"t{number} ", "finish_reason": None}
    kind = "reasoning_content" if number < 2 else "content"
    return {"delta": {kind: f"t{number} "}, "finish_reason": None}


class Stub(ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True

    def __init__(self, given: argparse.Namespace) -> None:
        super().__init__(("127.0.0.1", given.port), Handler)
        self.mode: str = given.mode
        self.token_s: float = given.token_s
        self.healthy = True
        if self.mode == "loses its worker":
            self.worker = subprocess.Popen(["sleep", "3600"])
        self.served = 0
        self.lock = threading.Lock()

    def next_number(self) -> int:
        with self.lock:
            self.served += 1
            return self.served


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Stub

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        if self.path == "/metrics":
            self.plain(
                "# TYPE llamacpp:requests_processing gauge\nllamacpp:requests_processing 3\n"
            )
        elif self.path == "/health" and not self.server.healthy:
            self.answer(503, {"error": {"message": "the engine is dead"}})
        elif self.path == "/health" and self.server.mode == "never ready":
            self.answer(503, {"error": {"message": "Loading model"}})
        else:
            listed = [{"id": "model"}]
            self.answer(200, {"status": "ok", "build_info": "b4242-stub", "data": listed})

    def plain(self, text: str) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/tokenize":
            self.answer(200, {"tokens": list(range(100, 100 + len(body["content"].split())))})
        elif self.server.mode == "refuses requests":
            self.answer(500, {"error": {"message": "no room today"}})
        elif self.server.mode == "refuses a field" and "ignore_eos" in body:
            self.answer(400, {"error": {"message": "unknown field ignore_eos"}})
        elif not body.get("stream"):
            self.answer(200, {"usage": {"prompt_tokens": seen(body), "completion_tokens": 1}})
        else:
            self.complete(body)

    def complete(self, body: dict[str, Any]) -> None:
        mode, number, asked = self.server.mode, self.server.next_number(), body["max_tokens"]
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if "messages" in body:
            self.event({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
        for i in range(asked // 2 if mode == "stops early" else asked):
            time.sleep(self.server.token_s)
            if i == asked // 2:
                self.misbehave(mode, number)
                if self.close_connection:
                    return
            self.event({"choices": [said(body, i)]})
        self.end_stream(body, asked // 2 if mode == "stops early" else asked)

    def misbehave(self, mode: str, number: int) -> None:
        if mode == "dies in a round" and number >= 3:
            log("E the third answer was too much: RuntimeError: out of room")
            os._exit(7)
        if mode == "loses its worker" and number >= 3:
            self.server.worker.kill()
            self.server.worker.wait()
            self.server.healthy = False
            self.event({"error": {"message": "the worker is gone. See the stack trace above"}})
            self.close_connection = True
            return
        if mode == "hangs in a round" and number >= 3:
            time.sleep(3600)
        if mode == "errors in streams":
            self.event({"error": {"code": 500, "message": "Context size has been exceeded."}})
        self.close_connection = mode in ("errors in streams", "cuts streams")

    def end_stream(self, body: dict[str, Any], count: int) -> None:
        tokens = seen(body) - (5 if self.server.mode == "truncates prompts" else 0)
        end: dict[str, Any] = {"choices": [{"text": "", "finish_reason": "length"}]}
        if self.server.mode != "counts nothing":
            end["usage"] = {"prompt_tokens": tokens, "completion_tokens": count}
        self.event(end)
        if self.server.mode != "never says done":
            self.chunk(b"data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def event(self, value: dict[str, Any]) -> None:
        self.chunk(b"data: " + json.dumps(value).encode() + b"\n\n")

    def chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.flush()

    def answer(self, status: int, value: dict[str, Any]) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def main() -> None:
    given = arguments()
    if given.mode == "dies at start":
        sys.exit("RuntimeError: there is no such device")
    if given.mode == "refuses a flag":
        sys.exit("error: invalid argument: STUB_MODE")
    if given.mode == "ignores term":
        import signal

        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if given.mode == "has grandchildren":
        for new_session in (False, True):
            child = subprocess.Popen(["sleep", "3600"], start_new_session=new_session)
            log(f"child {child.pid}")
    log("0.00.1 I llama_context: constructing llama_context")
    log(
        "0.00.2 I llama_kv_cache: size =   22.50 MiB (   256 cells,  30 layers,  4/4 seqs), "
        "K (f16):   11.25 MiB, V (f16):   11.25 MiB"
    )
    server = Stub(given)
    log(f"0.00.3 I srv init: listening on http://127.0.0.1:{given.port}")
    server.serve_forever()


if __name__ == "__main__":
    main()
