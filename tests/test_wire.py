"""Answers as they are in the wild, taken apart the same way however the bytes arrive."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvroom.load.completion import read_completion, refusal
from kvroom.load.wire import Cut, Unreadable, read_answer

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"


def chunked(body: bytes, size: int = 1 << 20) -> bytes:
    pieces = [body[i : i + size] for i in range(0, len(body), size)]
    framed = b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in pieces)
    return HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + framed + b"0\r\n\r\n"


def closing(body: bytes) -> bytes:
    return HEAD + b"\r\n" + body


def token(text: str, **more: object) -> bytes:
    return json.dumps({"choices": [{"text": text, **more}]}, ensure_ascii=False).encode()


STREAM = b"".join(b"data: " + token(word) + b"\n\n" for word in ("Grüße", " 北", " 👋🏽")) + (
    b'data: {"choices":[{"text":"","finish_reason":"length"}],'
    b'"usage":{"prompt_tokens":4,"completion_tokens":3}}\n\ndata: [DONE]\n\n'
)


def texts(raw: bytes) -> str:
    return read_completion(read_answer(raw, closed=True).events).text


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
def test_all_three_line_endings(end: bytes) -> None:
    assert texts(closing(STREAM.replace(b"\n", end))) == "Grüße 北 👋🏽"


@given(size=st.integers(1, 400))
def test_chunks_may_be_cut_anywhere_even_inside_a_character(size: int) -> None:
    answer = read_answer(chunked(STREAM, size), closed=False)

    assert answer.complete
    assert read_completion(answer.events).text == "Grüße 北 👋🏽"


@given(size=st.integers(1, 400))
def test_an_event_is_complete_at_the_last_byte_of_its_data(size: int) -> None:
    raw = chunked(STREAM, size)
    for event in read_answer(raw, closed=False).events:
        line = event.data + b"\n"
        assert raw[event.complete_at : event.complete_at + 1] == b"\n"
        assert body_so_far(raw[: event.complete_at + 1]).endswith(line)
        assert not body_so_far(raw[: event.complete_at]).endswith(line)


def body_so_far(raw: bytes) -> bytes:
    """The body in the bytes so far, by a reader that shares nothing with ours."""
    body, rest = b"", raw.partition(b"\r\n\r\n")[2]
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        length = int(size or b"0", 16)
        body += rest[:length]
        rest = rest[length + 2 :]
    return body


@pytest.mark.parametrize("cut", range(0, len(chunked(STREAM, 50)), 7))
def test_whatever_comes_last_is_never_read_as_more_than_it_is(cut: int) -> None:
    raw = chunked(STREAM, 50)[:cut]
    try:
        answer = read_answer(raw, closed=True)
    except Cut:
        return
    assert not answer.complete
    assert "Grüße 北 👋🏽".startswith(read_completion(answer.events).text)


@given(st.binary(max_size=300))
def test_any_bytes_are_an_answer_or_one_of_two_errors(raw: bytes) -> None:
    for whole in (raw, HEAD + b"\r\n" + raw, HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + raw):
        with contextlib.suppress(Cut, Unreadable):
            read_completion(read_answer(whole, closed=True).events)


@pytest.mark.parametrize(
    "body",
    [
        b": keep-alive\n\n" + STREAM,
        STREAM.replace(b"\n\n", b"\n\n: ping\n\n"),
        b"\xef\xbb\xbf" + STREAM,
        b"retry: 3\nid: 7\n\n" + STREAM,
        STREAM.replace(b"data: ", b"data:"),
        b"data:\n\n" + STREAM,
    ],
    ids=[
        "comment first",
        "comments between",
        "byte order mark",
        "fields",
        "no space",
        "blank data",
    ],
)
def test_what_carries_no_data_is_skipped(body: bytes) -> None:
    assert texts(closing(body)) == "Grüße 北 👋🏽"


def test_line_separators_of_unicode_do_not_end_a_line() -> None:
    assert texts(closing(b"data: " + token("a\u2028b\u0085c") + b"\n\n")) == "a\u2028b\u0085c"


def test_data_over_several_lines_is_joined() -> None:
    text = json.dumps({"choices": [{"text": "x"}]}, indent=1)
    body = "".join(f"data: {line}\n" for line in text.split("\n")) + "\n"

    assert texts(closing(body.encode())) == "x"


@pytest.mark.parametrize(
    ("event", "tokens", "finished"),
    [
        ({"choices": [{"text": ""}]}, [], False),
        ({"choices": [{"delta": {"role": "assistant", "content": ""}}]}, [], False),
        ({"choices": [{"delta": {"content": "x"}}]}, [0], False),
        ({"choices": [{"delta": {"reasoning": "x"}}]}, [0], False),
        ({"choices": [{"delta": {"reasoning_content": "x"}}]}, [0], False),
        ({"choices": [{"delta": {"tool_calls": [{"id": "1"}]}}]}, [0], False),
        ({"choices": [{"text": "", "token_ids": [5, 6]}]}, [2], False),
        ({"choices": [{"text": "", "finish_reason": "stop"}]}, [], True),
        ({"choices": [], "usage": {"completion_tokens": 3}}, [], False),
        ({"choices": None, "usage": None}, [], False),
    ],
)
def test_which_events_carry_tokens(
    event: dict[str, object], tokens: list[int], finished: bool
) -> None:
    body = b"data: " + json.dumps(event).encode() + b"\n\n"

    said = read_completion(read_answer(closing(body), closed=True).events)

    assert (said.token_ids, said.finished) == (tokens, finished)


@pytest.mark.parametrize(
    "body",
    [
        b'data: {"error": {"message": "out of room", "code": 500}}\n\n',
        b'data: {"error": "out of room"}\n\n',
        b"event: error\ndata: out of room\n\n",
    ],
)
def test_an_error_inside_a_stream_is_an_error(body: bytes) -> None:
    said = read_completion(read_answer(closing(STREAM[:40] + b"\n\n" + body), closed=True).events)

    assert said.error is not None
    assert "out of room" in said.error


@pytest.mark.parametrize(
    ("raw", "what"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "not an HTTP answer"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n\x1f\x8b",
            "a compressed answer (gzip)",
        ),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", "a broken chunk length"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\nabcd\r\n", "a chunk longer than it says"),
        (HEAD + b"Content-Length: x\r\n\r\n", "a content-length that is no number"),
        (closing(b"data: {nonsense\n\n"), "an event that cannot be read"),
        (closing(b'data: {"choices": 7}\n\n'), "an event that cannot be read"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * (1 << 17), "not an HTTP answer"),
    ],
)
def test_what_is_not_an_answer_is_named(raw: bytes, what: str) -> None:
    with pytest.raises(Unreadable, match=what.replace("(", r"\(").replace(")", r"\)")):
        read_completion(read_answer(raw, closed=True).events)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"error": {"message": "too long"}}', "HTTP 400: too long"),
        (b'{"error": "too long"}', "HTTP 400: too long"),
        (b'{"detail": "Not Found"}', "HTTP 400: {'detail': 'Not Found'}"),
        (b"<html>Bad Gateway</html>", "HTTP 400: <html>Bad Gateway</html>"),
        (b"", "HTTP 400: Bad Request"),
    ],
)
def test_a_refusal_is_quoted(body: bytes, said: str) -> None:
    raw = b"HTTP/1.1 400 Bad Request\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)

    assert refusal(read_answer(raw, closed=False)) == said
