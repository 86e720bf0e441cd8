"""A thin OpenAI-shaped HTTP server over OpenVINO GenAI's ContinuousBatchingPipeline.

Runs inside a contender's environment and needs nothing of kvroom. The wheels of OpenVINO GenAI have
no HTTP server, so this one is ours: the scheduler, the paged KV cache and the kernels are
OpenVINO's, the HTTP in front is not. Reports say so.

One thread steps the pipeline; one thread per connection writes what its request produced.
"""

import argparse
import itertools
import json
import math
import queue
import signal
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import metadata
from typing import Any

import numpy as np
import openvino
import openvino_genai as genai

BLOCK_TOKENS = 32
"""Tokens in one KV block of the CPU plugin; checked when the server starts."""

MAX_BODY_BYTES = 16 << 20
LOG_EVERY_S = 1.0
SCHEDULER_FIELDS = {
    "num_kv_blocks": int,
    "cache_size": int,
    "max_num_seqs": int,
    "max_num_batched_tokens": int,
    "dynamic_split_fuse": bool,
    "enable_prefix_caching": bool,
}
PROPERTIES = {"KV_CACHE_PRECISION": str, "INFERENCE_NUM_THREADS": int, "PERFORMANCE_HINT": str}


def log(text: str) -> None:
    """One line of this server's log."""
    print(text, flush=True)


def on_or_off(word: str) -> bool:
    """The value of a boolean flag."""
    if word.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{word!r} is neither true nor false")
    return word.lower() == "true"


def arguments() -> argparse.Namespace:
    """Flags named as OpenVINO names its scheduler fields and device properties."""
    parser = argparse.ArgumentParser(prog="genai_server", allow_abbrev=False)
    parser.add_argument("--model", required=True)
    parser.add_argument("--name", default="model")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    for name, kind in {**SCHEDULER_FIELDS, **PROPERTIES}.items():
        parser.add_argument(f"--{name}", type=on_or_off if kind is bool else kind, default=None)
    return parser.parse_args()


class Job:
    """One request inside the pipeline: what it asks, and what came out so far."""

    def __init__(self, ids: list[int], body: dict[str, Any]) -> None:
        self.ids = ids
        self.config = genai.GenerationConfig()
        self.config.max_new_tokens = int(body.get("max_tokens", 16))
        self.config.ignore_eos = bool(body.get("ignore_eos", False))
        self.config.apply_chat_template = False
        temperature = float(body.get("temperature", 0))
        self.config.do_sample = temperature > 0
        if temperature > 0:
            self.config.temperature = temperature
        self.output: queue.SimpleQueue[list[int] | str] = queue.SimpleQueue()
        self.cancelled = False

    def results(self) -> Iterator[list[int] | str]:
        """Token ids as they come, then one word: how it ended."""
        while True:
            item = self.output.get()
            yield item
            if isinstance(item, str):
                return


class Engine:
    """The pipeline and the only thread that touches it."""

    def __init__(self, given: argparse.Namespace) -> None:
        config = genai.SchedulerConfig()
        for name in SCHEDULER_FIELDS:
            value = getattr(given, name)
            if value is not None:
                setattr(config, name, value)
        properties = {n: getattr(given, n) for n in PROPERTIES if getattr(given, n) is not None}
        log(" ".join(config.to_string().split()))
        log(f"device CPU, properties {properties}")
        started = time.monotonic()
        self.pipeline = genai.ContinuousBatchingPipeline(given.model, config, "CPU", properties)
        self.tokenizer = self.pipeline.get_tokenizer()
        log(f"model loaded in {time.monotonic() - started:.2f} s")
        self.numbers = itertools.count()
        self.arrivals: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self.active: dict[int, tuple[Any, Job]] = {}
        self.written = 0
        self.room = self.measure_room()

    def measure_room(self) -> dict[str, int]:
        """The size of the KV pool as the pipeline itself reports it while a prompt is inside."""
        one, two = (self.share_of_pool(tokens) for tokens in (BLOCK_TOKENS, BLOCK_TOKENS + 1))
        if not math.isclose(two, 2 * one, rel_tol=1e-3):
            log(f"WARNING a KV block does not hold {BLOCK_TOKENS} tokens: {one} and {two} % used")
        blocks = round(100 / one)
        size = self.pipeline.get_metrics().kv_cache_size_in_bytes
        log(
            f"KV cache: {blocks} blocks of {BLOCK_TOKENS} tokens, {blocks * BLOCK_TOKENS} tokens, "
            f"{size} bytes"
        )
        return {"blocks": blocks, "tokens": blocks * BLOCK_TOKENS}

    def share_of_pool(self, tokens: int) -> float:
        """Percent of the pool that a prompt of so many tokens takes."""
        job = Job([1] * tokens, {"max_tokens": 2, "ignore_eos": True})
        self.admit(job)
        share = 0.0
        while self.active:
            self.step()
            if not share:
                share = float(self.pipeline.get_metrics().cache_usage)
        return share

    def admit(self, job: Job) -> None:
        number = next(self.numbers)
        tensor = openvino.Tensor(np.array([job.ids], dtype=np.int64))
        self.active[number] = (self.pipeline.add_request(number, tensor, job.config), job)

    def run(self) -> None:
        """Step for ever; sleep while there is nothing to do."""
        logged = 0.0
        while True:
            if not self.active:
                self.try_admit(self.arrivals.get())
            while not self.arrivals.empty():
                self.try_admit(self.arrivals.get())
            if not self.active:
                continue
            try:
                self.step()
            except RuntimeError as error:
                self.fail_all(f"the pipeline failed: {error}")
            if time.monotonic() - logged >= LOG_EVERY_S:
                logged = time.monotonic()
                self.log_state()

    def try_admit(self, job: Job) -> None:
        try:
            self.admit(job)
        except RuntimeError as error:
            job.output.put(f"error: {error}")

    def fail_all(self, reason: str) -> None:
        log(f"ERROR {reason}")
        for _, job in self.active.values():
            job.output.put(f"error: {reason}")
        self.active.clear()

    def step(self) -> None:
        self.pipeline.step()
        for number, (handle, job) in list(self.active.items()):
            if job.cancelled:
                handle.cancel()
            while handle.can_read():
                for part in handle.read().values():
                    job.output.put(list(part.generated_ids))
                    self.written += len(part.generated_ids)
            status = handle.get_status()
            if status != genai.GenerationStatus.RUNNING:
                job.output.put(self.ending(status))
                del self.active[number]

    def ending(self, status: Any) -> str:
        if status == genai.GenerationStatus.FINISHED:
            return "finished"
        if status == genai.GenerationStatus.IGNORED:
            return f"error: the request does not fit into {self.room['tokens']} KV tokens"
        return f"error: the pipeline ended the request with {status.name}"

    def state(self) -> dict[str, float]:
        metrics = self.pipeline.get_metrics()
        running = int(metrics.scheduled_requests)
        waiting = max(0, len(self.active) - running) + self.arrivals.qsize()
        usage = round(float(metrics.cache_usage) / 100, 4)
        return {
            "running": running,
            "waiting": waiting,
            "kv_cache_usage": usage,
            "generation_tokens": self.written,
        }

    def log_state(self) -> None:
        now = self.state()
        log(
            f"running: {now['running']}, waiting: {now['waiting']}, "
            f"KV cache usage: {now['kv_cache_usage']:.1%}"
        )


class Detokenizer:
    """Token ids to text piece by piece, without breaking a character that spans tokens."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.window: list[int] = []
        self.shown = ""

    def add(self, ids: list[int]) -> str:
        """The new text, empty while a character is incomplete."""
        self.window += ids
        text = str(self.tokenizer.decode(self.window))
        if text.endswith("\N{REPLACEMENT CHARACTER}"):
            return ""
        piece = text.removeprefix(self.shown)
        self.window = self.window[-8:]
        self.shown = str(self.tokenizer.decode(self.window))
        return piece


class Server(ThreadingHTTPServer):
    """Listens on loopback and shares one engine among its connections."""

    request_queue_size = 1024
    daemon_threads = True

    def __init__(self, given: argparse.Namespace, engine: Engine) -> None:
        super().__init__((given.host, given.port), Handler)
        self.name = given.name
        self.engine = engine


class Handler(BaseHTTPRequestHandler):
    """The endpoints."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def log_message(self, *_: object) -> None:
        """Keep the log for the engine."""

    def do_GET(self) -> None:
        """Health, version, models and gauges."""
        gauges = self.server.engine.state()
        answers: dict[str, Any] = {
            "/health": {"status": "ok"},
            "/version": {"version": genai.__version__},
            "/v1/models": {"object": "list", "data": [{"id": self.server.name}]},
            "/metrics": "".join(f"{name} {value}\n" for name, value in gauges.items()),
        }
        if self.path in answers:
            self.answer(200, answers[self.path])
        else:
            self.answer(404, error(f"no such path: {self.path}"))

    def do_POST(self) -> None:
        """Tokenize, or complete a prompt."""
        try:
            body = self.read_body()
            if self.path == "/tokenize":
                self.answer(200, {"tokens": self.encode(str(body["prompt"]))})
            elif self.path == "/v1/completions":
                self.complete(body)
            else:
                self.answer(404, error(f"no such path: {self.path}"))
        except (ValueError, KeyError, TypeError, RuntimeError) as problem:
            self.answer(400, error(f"{type(problem).__name__}: {problem}"))
        except OSError:
            self.close_connection = True

    def read_body(self) -> dict[str, Any]:
        length = int(self.headers.get("Content-Length") or 0)
        if not 0 < length <= MAX_BODY_BYTES:
            raise ValueError(f"a body of 1 to {MAX_BODY_BYTES} bytes is needed")
        body = json.loads(self.rfile.read(length))
        if not isinstance(body, dict):
            raise ValueError("the body is not a JSON object")
        return body

    def encode(self, text: str) -> list[int]:
        tokens = self.server.engine.tokenizer.encode(text).input_ids.data
        return [int(i) for i in tokens[0]]

    def complete(self, body: dict[str, Any]) -> None:
        prompt = body["prompt"]
        ids = self.encode(prompt) if isinstance(prompt, str) else [int(i) for i in prompt]
        if not ids:
            raise ValueError("the prompt is empty")
        job = Job(ids, body)
        self.server.engine.arrivals.put(job)
        try:
            if body.get("stream"):
                self.stream(job, body)
            else:
                self.collect(job)
        finally:
            job.cancelled = True

    def collect(self, job: Job) -> None:
        ids: list[int] = []
        for item in job.results():
            if isinstance(item, list):
                ids += item
            elif item != "finished":
                self.answer(500, error(item))
                return
        text = str(self.server.engine.tokenizer.decode(ids))
        choice = {"index": 0, "text": text, "finish_reason": finish(job, len(ids))}
        self.answer(200, self.envelope([choice]) | {"usage": usage(job, len(ids))})

    def stream(self, job: Job, body: dict[str, Any]) -> None:
        results = job.results()
        first = next(results)
        if isinstance(first, str) and first != "finished":
            self.answer(400, error(first))
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.stream_events(job, body, itertools.chain([first], results))
        self.wfile.write(b"0\r\n\r\n")

    def stream_events(
        self, job: Job, body: dict[str, Any], results: Iterator[list[int] | str]
    ) -> None:
        words, count = Detokenizer(self.server.engine.tokenizer), 0
        for item in results:
            if isinstance(item, str):
                if item != "finished":
                    self.event(error(item))
                    return
                break
            count += len(item)
            done = finish(job, count) if count >= job.config.max_new_tokens else None
            choice: dict[str, Any] = {"index": 0, "text": words.add(item), "finish_reason": done}
            if body.get("return_token_ids"):
                choice["token_ids"] = item
            self.event(self.envelope([choice]))
        if count < job.config.max_new_tokens:
            self.event(self.envelope([{"index": 0, "text": "", "finish_reason": "stop"}]))
        if (body.get("stream_options") or {}).get("include_usage"):
            self.event(self.envelope([]) | {"usage": usage(job, count)})
        self.chunk(b"data: [DONE]\n\n")

    def envelope(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {"object": "text_completion", "model": self.server.name, "choices": choices}

    def event(self, value: dict[str, Any]) -> None:
        self.chunk(b"data: " + json.dumps(value).encode() + b"\n\n")

    def chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def answer(self, status: int, value: dict[str, Any] | str) -> None:
        data = value.encode() if isinstance(value, str) else json.dumps(value).encode()
        kind = "text/plain" if isinstance(value, str) else "application/json"
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def error(message: str) -> dict[str, Any]:
    """An error in the shape OpenAI clients know."""
    return {"error": {"message": message, "type": "genai_server"}}


def usage(job: Job, count: int) -> dict[str, int]:
    """Token counts of one finished request."""
    prompt = len(job.ids)
    return {"prompt_tokens": prompt, "completion_tokens": count, "total_tokens": prompt + count}


def finish(job: Job, count: int) -> str:
    """Why a request that produced so many tokens ended."""
    return "length" if count >= job.config.max_new_tokens else "stop"


def main() -> None:
    """Load, measure the KV pool, serve until a signal says stop."""
    given = arguments()
    signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    log(f"openvino_genai {metadata.version('openvino-genai')}")
    log(f"openvino {metadata.version('openvino')}")
    engine = Engine(given)
    server = Server(given, engine)
    threading.Thread(target=engine.run, daemon=True).start()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    log(f"serving on http://{given.host}:{server.server_port}")
    signal.sigwait(signals)
    server.shutdown()


if __name__ == "__main__":
    main()
