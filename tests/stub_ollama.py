"""Plays Ollama's command line and its own endpoint, which no registry here brings.

``serve`` listens and answers lines of JSON as docs of 0.33 describe; ``create`` registers a model
with the server, as the real one does, and refuses a Modelfile that names no file.
"""

import json
import os
import sys
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

HOST = os.environ["OLLAMA_HOST"]
STOPS_AFTER = int(os.environ.get("STUB_STOPS_AFTER", "1000"))
MODELS: dict[str, str] = {}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self.answer(200, {"version": "0.33.0"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/api/create":
            MODELS[body["model"]] = body["from"]
            self.answer(200, {"status": "success"})
        elif self.path != "/api/generate" or body["model"] not in MODELS:
            self.answer(404, {"error": f"model '{body['model']}' not found"})
        elif not body.get("prompt"):
            print('time=T level=INFO msg="llama-server started in 0.05 seconds"', flush=True)
            self.answer(200, {"done": True, "done_reason": "load"})
        else:
            self.generate(body)

    def generate(self, body: dict[str, Any]) -> None:
        assert body["raw"] is True
        assert body["truncate"] is False
        asked = body["options"]["num_predict"]
        count = min(asked, STOPS_AFTER)
        end = {
            "done": True,
            "done_reason": "length" if count == asked else "stop",
            "prompt_eval_count": 1 + len(body["prompt"].split()),
            "eval_count": count,
        }
        if not body["stream"]:
            self.answer(200, {"response": "t", **end})
            return
        self.send_response(200)
        self.send_header("Content-Type", "application/x-ndjson")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number in range(count):
            time.sleep(0.002)
            self.line({"model": body["model"], "response": f"t{number} ", "done": False})
        self.line({"model": body["model"], "response": "", **end})
        self.wfile.write(b"0\r\n\r\n")

    def line(self, value: dict[str, Any]) -> None:
        data = json.dumps(value).encode() + b"\n"
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.flush()

    def answer(self, status: int, value: dict[str, Any]) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def create(name: str, modelfile: Path) -> None:
    source = modelfile.read_text().removeprefix("FROM ").strip()
    if not Path(source).exists():
        sys.exit(f"Error: no such file: {source}")
    body = json.dumps({"model": name, "from": source}).encode()
    request = urllib.request.Request(f"http://{HOST}/api/create", body)
    urllib.request.urlopen(request).read()


def main() -> None:
    if sys.argv[1] == "create":
        create(sys.argv[2], Path(sys.argv[4]))
        return
    host, _, port = HOST.partition(":")
    print(f"Listening on {HOST} (version 0.33.0)", flush=True)
    print(f"models in {os.environ['OLLAMA_MODELS']}", flush=True)
    ThreadingHTTPServer((host, int(port)), Handler).serve_forever()


if __name__ == "__main__":
    main()
