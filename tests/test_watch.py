"""A living engine under watch: over a real socket, by its metrics or by its log."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from conftest import Kvroom
from kvroom.errors import InputError
from kvroom.explain.case import Case
from kvroom.explain.now import Look, now
from kvroom.settings import Settings
from kvroom.watch import seconds


@contextmanager
def serving(*states: tuple[int, int, float]) -> Iterator[str]:
    """vLLM's metrics: running, waiting, usage, one state after the other, the last for ever."""
    left = list(states)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            running, waiting, usage = left.pop(0) if len(left) > 1 else left[0]
            body = (
                f'vllm:num_requests_running{{engine="0"}} {running}\n'
                f'vllm:num_requests_waiting{{engine="0"}} {waiting}\n'
                f'vllm:kv_cache_usage_perc{{engine="0"}} {usage}\n'
            ).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_it_ends_with_the_reason_as_soon_as_one_waits(kvroom: Kvroom) -> None:
    with serving(*[(4, 0, 0.1)] * 12, (31, 1, 0.976)) as url:
        done = kvroom("watch", url, "--until-waiting", "--every", "0.05")

    assert done.returncode == 0, done.stderr
    assert "1 request waiting: the pool is 97.6% full; 31 of these fit" in done.stdout


def test_for_a_time_as_data(kvroom: Kvroom) -> None:
    with serving((4, 0, 0.1)) as url:
        done = kvroom("watch", url, "--for", "1s", "--every", "0.1", "--json")

    told = json.loads(done.stdout)
    assert told["engine"] == "vllm"
    assert told["waited"] is False
    assert told["running_max"] == 4
    assert told["seconds"] >= 1
    assert len(told["moments"]) > 2


def test_an_engine_that_does_not_answer_is_said_to_be_gone(kvroom: Kvroom) -> None:
    with serving((4, 0, 0.1)) as url:
        pass
    done = kvroom("watch", url, "--engine", "vllm", "--every", "0.05")

    assert done.returncode == 3
    assert "does not answer any more" in done.stderr


def test_a_log_that_grows_is_enough_where_nothing_can_be_asked(
    kvroom: Kvroom, tmp_path: Path
) -> None:
    log = tmp_path / "engine.log"
    log.write_text(
        "INFO nothing yet\nRunning: 31 reqs, Waiting: 1 reqs, GPU KV cache usage: 97.6%\n"
    )

    done = kvroom("watch", "http://127.0.0.1:9", "--engine", "vllm", "--log", log,
                  "--until-waiting", "--every", "0.05")  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert "1 request waiting" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["http://127.0.0.1:9"], "tells no state that kvroom can read"),
        (["ftp://x"], "ftp://x"),
        (["http://127.0.0.1:9", "--engine", "vlm"], "did you mean 'vllm'"),
        (["http://127.0.0.1:9", "--for", "soon"], "--for 'soon' is not a time"),
    ],
)
def test_bad_input_is_one_sentence(words: list[str], said: str, kvroom: Kvroom) -> None:
    done = kvroom("watch", *words)

    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("text", "value"), [("60", 60), ("60s", 60), ("5m", 300), ("1.5h", 5400)])
def test_times(text: str, value: float) -> None:
    assert seconds(text) == value


def test_no_time_at_all_is_refused() -> None:
    with pytest.raises(InputError):
        seconds("0s")


@pytest.mark.parametrize(
    ("running", "waiting", "usage", "slots", "said"),
    [
        (8, 0, 0.99, None, ""),
        (8, 3, 0.2, 8, "3 requests waiting: 8 run, as many as there are slots"),
        (8, 1, 0.95, 32, "1 request waiting: the pool is 95.0% full; 8 of these fit"),
        (8, 1, 0.2, 32, "1 request waiting while the pool is 20% full"),
        (0, 2, 0.0, None, "2 requests waiting, none runs yet"),
        (5, 2, None, None, "2 requests waiting, 5 run"),
    ],
)
def test_what_a_moment_means(
    running: int, waiting: int, usage: float | None, slots: int | None, said: str
) -> None:
    moment = Look(at_s=1, running=running, waiting=waiting, kv_cache_usage=usage)
    case = Case(engine="vllm", settings=Settings(slots=slots))

    assert now(moment, None, case).startswith(said)
    assert bool(now(moment, None, case)) == bool(said)


def test_requests_that_are_pushed_out_are_said_at_once() -> None:
    before = Look(at_s=1, running=8, waiting=0, preempted=3)
    moment = Look(at_s=2, running=6, waiting=2, preempted=5, kv_cache_usage=1.0)

    assert now(moment, before, Case(engine="vllm")).startswith("2 requests were pushed out")
