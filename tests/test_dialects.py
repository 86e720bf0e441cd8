"""How engines are asked and what answers mean: chats, Ollama's lines, what cannot be forced."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import Kvroom
from kvroom.launch import free_port
from kvroom.load.completion import Said, read_completion
from kvroom.load.wire import Event, read_answer
from kvroom.store import Run

HERE = Path(__file__).parent
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson; charset=utf-8\r\n\r\n"

Serve = Callable[[str], str]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """A server of somebody else, in one of the stub's modes; gives its address."""
    processes = []

    def start(mode: str) -> str:
        port = free_port()
        words = [sys.executable, str(HERE / "stub_server.py"), "--port", str(port)]
        processes.append(
            subprocess.Popen(words, env={"STUB_MODE": mode}, stdout=subprocess.DEVNULL)
        )
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.02)
        return f"http://127.0.0.1:{port}"

    yield start
    for process in processes:
        process.kill()
        process.wait()


def attach(folder: Path, url: str, **more: Any) -> None:
    contender = {"name": "there", "engine": "openai", "url": url, **more}
    work = {"prompt_tokens": 24, "output_tokens": 8, "concurrency": [2], "rounds": 1}
    matchup = {"name": "attach", "workload": work, "contenders": [contender]}
    (folder / "m.yaml").write_text(json.dumps(matchup))


def outcome(kvroom: Kvroom) -> dict[str, Any]:
    done = kvroom("run", "m.yaml", "-o", "r", "--json")
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout)["contenders"][0])


def test_a_chat_is_asked_and_its_thinking_counts_as_text(
    serve: Serve, kvroom: Kvroom, tmp_path: Path
) -> None:
    """The words of the prompt and what the template adds are exactly as many as asked for."""
    import polars as pl

    attach(tmp_path, serve("well"), endpoint="chat")

    level = outcome(kvroom)["levels"][0]
    frame = pl.read_parquet(tmp_path / "r/there/rounds/c002-1.parquet")

    assert (level["completed"], level["failed"]) == (2, 0)
    assert set(frame["prompt_tokens_reported"]) == {24}
    assert set(frame["token_source"]) == {"usage"}
    assert frame["event_ns"].list.len().to_list() == [8, 8]
    assert frame["text"][0].startswith("t0 t1 t2")


def test_a_field_that_is_refused_is_left_out_and_said(
    serve: Serve, kvroom: Kvroom, tmp_path: Path
) -> None:
    attach(tmp_path, serve("refuses a field"))

    there = outcome(kvroom)

    assert there["start"]["left_out"] == ["ignore_eos"]
    assert there["start"]["length_forced"] is False
    assert there["levels"][0]["completed"] == 2
    report = kvroom("report", "r").stdout
    assert "there: asked without ignore_eos, which it refuses." in report
    assert "there: the engine cannot be made to write a given number of tokens." in report


def test_a_field_that_is_given_is_not_left_out(
    serve: Serve, kvroom: Kvroom, tmp_path: Path
) -> None:
    attach(tmp_path, serve("refuses a field"), body={"ignore_eos": True})

    done = kvroom("run", "m.yaml", "-o", "r")

    assert done.returncode == 3
    assert "answered 400: " in done.stderr
    assert "unknown field ignore_eos" in done.stderr


def test_a_stream_needs_no_done_mark(serve: Serve, kvroom: Kvroom, tmp_path: Path) -> None:
    attach(tmp_path, serve("never says done"))

    assert outcome(kvroom)["levels"][0]["completed"] == 2


@pytest.fixture
def ollama(tmp_path: Path) -> Path:
    program = tmp_path / "ollama"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{HERE}/stub_ollama.py" "$@"\n')
    program.chmod(0o755)
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    return program


def write_ollama(tmp_path: Path, program: Path, **env: str) -> None:
    (tmp_path / "m.yaml").write_text(
        "name: o\nmodel: model.gguf\n"
        "workload: {prompt_tokens: 24, output_tokens: 8, concurrency: [1, 2], rounds: 1}\n"
        "contenders:\n"
        f"  - {{name: o, engine: ollama, provide: {{path: {program}}}, env: {json.dumps(env)},\n"
        "     settings: {slots: 2, max_len: 64, kv_cache_dtype: q8_0}}\n"
    )


def test_ollama_is_set_by_variables_given_its_model_and_asked_for_lines(
    ollama: Path, kvroom: Kvroom, tmp_path: Path
) -> None:
    write_ollama(tmp_path, ollama)

    told = outcome(kvroom)

    assert told["version"] == "0.33.0"
    assert [level["completed"] for level in told["levels"]] == [1, 2]
    env = told["start"]["env"]
    assert env["OLLAMA_NUM_PARALLEL"] == "2"
    assert env["OLLAMA_KV_CACHE_TYPE"] == "q8_0"
    assert env["OLLAMA_FLASH_ATTENTION"] == "1"
    assert (tmp_path / "r/o/Modelfile").read_text() == f"FROM {tmp_path}/model.gguf\n"
    assert "models in" in (tmp_path / "r/o/engine.log").read_text()
    assert Run.open(tmp_path / "r").start("o").length_forced is False  # type: ignore[union-attr]


def test_answers_shorter_than_asked_are_not_ranked_where_length_cannot_be_forced(
    ollama: Path, kvroom: Kvroom, tmp_path: Path
) -> None:
    write_ollama(tmp_path, ollama, STUB_STOPS_AFTER="5")

    done = kvroom("run", "m.yaml", "-o", "r", "--json")
    levels = json.loads(done.stdout)["contenders"][0]["levels"]

    assert done.returncode == 4, done.stderr
    assert levels[0]["void"] == (
        "answers had 5 to 5 tokens instead of 8, and the engine cannot be made to write more: "
        "not comparable"
    )


def lines(*objects: dict[str, Any]) -> Said:
    body = b"".join(json.dumps(one).encode() + b"\n" for one in objects)
    return read_completion(read_answer(HEAD + body, closed=True).events)


def test_lines_of_json_are_events_with_their_place() -> None:
    answer = read_answer(HEAD + b'{"response":"a"}\n\n{"response":"b"}\nrest', closed=True)

    assert [event.data for event in answer.events] == [b'{"response":"a"}', b'{"response":"b"}']
    assert answer.events[0].complete_at == len(HEAD) + len(b'{"response":"a"}')


def test_ollamas_counts_are_usage() -> None:
    said = lines(
        {"response": "one ", "done": False},
        {"thinking": "hm ", "response": "", "done": False},
        {"response": "", "done": True, "done_reason": "length", "prompt_eval_count": 3,
         "eval_count": 2},
    )  # fmt: skip

    assert said.token_events == [0, 1]
    assert said.text == "one hm "
    assert said.finished
    assert said.usage is not None
    assert (said.usage.prompt_tokens, said.usage.completion_tokens) == (3, 2)


def test_a_stream_of_ollama_that_ends_without_an_object_is_not_finished() -> None:
    assert not lines({"response": "a", "done": False}).finished


def test_an_error_of_ollama_is_an_error() -> None:
    assert lines({"error": "prediction aborted"}).error == "prediction aborted"


@pytest.mark.parametrize(
    "first",
    [
        '{"choices": []}',
        '{"choices": [{"delta": {"role": "assistant"}}]}',
        '{"choices": [{"delta": {"role": "assistant", "content": ""}}]}',
        '{"choices": [{"delta": {"content": null}}]}',
        '{"choices": [{"text": ""}]}',
        '{"id": "x"}',
    ],
)
def test_an_empty_first_event_is_no_token(first: str) -> None:
    events = [first, '{"choices": [{"delta": {"reasoning": "so "}}]}',
              '{"choices": [{"delta": {"tool_calls": [{"index": 0}]}}]}', "[DONE]"]  # fmt: skip
    said = read_completion([Event(b"", text.encode(), 0) for text in events])

    assert said.token_events == [1, 2]
    assert said.finished
