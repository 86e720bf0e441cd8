"""An exchange becomes a record: tokens, times, and a name for whatever was wrong."""

from array import array
from typing import Any

import pytest

from kvroom.load.drive import Exchange
from kvroom.load.record import record
from kvroom.workload import PlannedRequest
from test_wire import HEAD, chunked, closing, token

PLANNED = PlannedRequest(ordinal=7, due_ns=1000, prompt_tokens=4, output_tokens=3)
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":4,"completion_tokens":%d}}\n\n'
END = b'data: {"choices":[{"text":"","finish_reason":"length"}]}\n\n'
DONE = b"data: [DONE]\n\n"


def event(text: str = "x", **more: object) -> bytes:
    return b"data: " + token(text, **more) + b"\n\n"


def exchange(*reads: bytes, kernel: bool = True, **changes: Any) -> Exchange:
    """An answer that came in these reads, a millisecond apart."""
    ends, total = [], 0
    for read in reads:
        total += len(read)
        ends.append(total)
    stamps = [(i + 1) * 1_000_000 for i in range(len(reads))]
    values: dict[str, Any] = {
        "sent_ns": 2000,
        "ended_ns": 99_000_000,
        "data": b"".join(reads),
        "ends": array("q", ends),
        "read_ns": array("q", (at + 500 for at in stamps)),
        "kernel_ns": array("q", stamps if kernel else []),
        "closed": True,
        "failure": None,
    }
    return Exchange(**(values | changes))


def outcome(raw: Exchange, *, length_forced: bool = True) -> tuple[str, str]:
    made = record(PLANNED, raw, length_forced=length_forced)
    return made.outcome, made.reason


def whole(*events: bytes) -> Exchange:
    return exchange(closing(b"".join(events)))


def test_each_event_has_the_time_of_the_read_that_completed_it() -> None:
    raw = exchange(
        HEAD + b"\r\n" + event()[:9], event()[9:] + event(), event(), END, USAGE % 3, DONE
    )

    made = record(PLANNED, raw, length_forced=True)

    assert made.outcome == "completed"
    assert made.event_ns == [2_000_000, 2_000_000, 3_000_000]
    assert made.event_read_ns == [2_000_500, 2_000_500, 3_000_500]
    assert made.first_byte_ns == 1_000_000
    assert made.clock == "kernel"


def test_without_kernel_stamps_the_clock_is_ours() -> None:
    made = record(PLANNED, exchange(closing(event()), kernel=False), length_forced=True)

    assert made.clock == "user"
    assert made.event_ns == made.event_read_ns == [1_000_500]


@pytest.mark.parametrize(
    ("events", "tokens", "source"),
    [
        ([event(token_ids=[1]), event(token_ids=[2, 3]), END, DONE], [1, 2], "token_ids"),
        ([event(), event(), event(), END, USAGE % 3, DONE], [1, 1, 1], "usage"),
        ([event(), event(), END, USAGE % 3, DONE], [1, 2], "usage_spread"),
        ([END, USAGE % 3, DONE], [], "usage_spread"),
        ([event(), END, DONE], [0], "none"),
        ([event(token_ids=[1, 2]), event(), END, USAGE % 3, DONE], [1, 2], "usage_spread"),
    ],
)
def test_how_tokens_are_counted(events: list[bytes], tokens: list[int], source: str) -> None:
    made = record(PLANNED, whole(*events), length_forced=True)

    assert (made.event_tokens, made.token_source) == (tokens, source)
    assert made.completion_tokens == (None if source == "none" else 3)


@pytest.mark.parametrize(
    ("raw", "name", "why"),
    [
        (whole(event(), event(), event(), END, USAGE % 3), "completed", ""),
        (whole(event(), event(), event(), USAGE % 3, DONE), "completed", ""),
        (whole(event(), END, USAGE % 1, DONE), "short", "1 of 3 tokens"),
        (whole(event(), END, USAGE % 9, DONE), "long", "9 tokens, 3 were asked for"),
        (whole(event(), END, DONE), "uncounted", "neither usage nor token ids"),
        (whole(event(token_ids=[1]), END, USAGE % 3, DONE), "uncounted", "1 token ids came"),
        (whole(event(), event(), USAGE % 3), "cut", "without a finish after 2 events"),
        (exchange(chunked(event())[:-5]), "cut", "without a finish after 1 events"),
        (exchange(b""), "cut", "closed before the answer began"),
        (exchange(b"", sent_ns=None), "refused", "closed before the request was sent"),
        (whole(event(), b'data: {"error": "full"}\n\n'), "stream_error", "full"),
        (exchange(b"HTTP/1.1 503 Busy\r\n\r\n"), "http_error", "HTTP 503: Busy"),
        (exchange(b"HTTP/1.1 200 OK\r\n\r\n{}"), "unreadable", "not a stream of events"),
        (exchange(b"220 mail ESMTP\r\n"), "unreadable", "not an HTTP answer"),
        (
            exchange(closing(event()), failure=("stalled", "silent for 1 s")),
            "stalled",
            "silent for 1 s",
        ),
    ],
)
def test_outcomes(raw: Exchange, name: str, why: str) -> None:
    found, reason = outcome(raw)

    assert found == name
    assert why in reason


def test_a_prompt_of_another_length_is_not_this_load() -> None:
    usage = b'data: {"choices":[],"usage":{"prompt_tokens":2,"completion_tokens":3}}\n\n'
    raw = whole(event(), event(), event(), END, usage, DONE)

    assert outcome(raw) == ("wrong_prompt", "the server saw 2 prompt tokens, 4 were sent")


def test_token_ids_that_contradict_the_usage_are_not_counted() -> None:
    raw = whole(event(token_ids=[1]), event(token_ids=[2]), END, USAGE % 2, DONE)
    assert outcome(raw)[0] == "short"

    raw = whole(event(token_ids=[1]), event(token_ids=[2]), END, USAGE % 3, DONE)
    assert outcome(raw) == ("uncounted", "2 token ids came, but the usage says 3")


def test_a_shorter_answer_is_fine_where_the_length_is_not_forced() -> None:
    assert outcome(whole(event(), END, USAGE % 1, DONE), length_forced=False)[0] == "completed"


def test_a_failure_keeps_what_had_arrived() -> None:
    raw = exchange(closing(event() + event()), failure=("stalled", "silent for 1 s"))

    made = record(PLANNED, raw, length_forced=True)

    assert len(made.event_ns) == 2
    assert made.text == "xx"
