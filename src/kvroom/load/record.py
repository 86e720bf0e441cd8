"""One recorded exchange -> one RequestRecord: its tokens, their times, and whether all is well."""

from bisect import bisect_right

import msgspec

from kvroom.load.completion import Said, read_completion, refusal
from kvroom.load.drive import Exchange
from kvroom.load.wire import Answer, Cut, Event, Unreadable, read_answer
from kvroom.records import ClockName, Outcome, RequestRecord, TokenSource
from kvroom.workload import PlannedRequest


class _Reading(msgspec.Struct, kw_only=True):
    """What an exchange came to."""

    outcome: Outcome
    reason: str = ""
    said: Said = msgspec.field(default_factory=Said)
    events: list[Event] = []


def record(planned: PlannedRequest, exchange: Exchange, *, length_forced: bool) -> RequestRecord:
    """The record of one request.

    It is completed only if the answer ended as HTTP and the protocol say, the server counted its
    tokens, the prompt had the length that was sent and, where ``length_forced``, the output had
    the length that was asked. Anything else has a name and a reason.
    """
    reading = _read(exchange)
    said, usage = reading.said, reading.said.usage
    tokens, source = _tokens_per_event(said)
    total = usage.completion_tokens if usage else None
    counted = sum(tokens) if source == "token_ids" else total
    outcome, reason = reading.outcome, reading.reason
    if outcome == "completed":
        outcome, reason = _judge(planned, said, counted, length_forced)
    clock: ClockName = "kernel" if exchange.kernel_ns else "user"
    reads = [bisect_right(exchange.ends, reading.events[i].complete_at) for i in said.token_events]
    stamps = exchange.kernel_ns or exchange.read_ns
    return RequestRecord(
        ordinal=planned.ordinal,
        prompt_tokens=planned.prompt_tokens,
        output_tokens=planned.output_tokens,
        due_ns=planned.due_ns,
        sent_ns=exchange.sent_ns,
        first_byte_ns=stamps[0] if stamps else None,
        ended_ns=exchange.ended_ns,
        event_ns=[stamps[read] for read in reads],
        event_read_ns=[exchange.read_ns[read] for read in reads],
        event_tokens=tokens,
        prompt_tokens_reported=usage.prompt_tokens if usage else None,
        completion_tokens=counted,
        token_source=source,
        clock=clock,
        outcome=outcome,
        reason=reason,
        text=said.text,
    )


def _read(exchange: Exchange) -> _Reading:
    """As far as the bytes go; a failure that the loop saw keeps what had arrived before it."""
    reading = _read_bytes(exchange)
    if exchange.failure is not None:
        reading.outcome, reading.reason = exchange.failure
    return reading


def _read_bytes(exchange: Exchange) -> _Reading:
    if exchange.sent_ns is None:
        return _Reading(
            outcome="refused", reason="the connection closed before the request was sent"
        )
    try:
        answer = read_answer(exchange.data, closed=exchange.closed)
        said = read_completion(answer.events)
    except Cut as cut:
        return _Reading(outcome="cut", reason=str(cut))
    except Unreadable as problem:
        return _Reading(outcome="unreadable", reason=str(problem))
    outcome, reason = _protocol(answer, said)
    return _Reading(outcome=outcome, reason=reason, said=said, events=answer.events)


def _protocol(answer: Answer, said: Said) -> tuple[Outcome, str]:
    if answer.status != 200:
        return "http_error", refusal(answer)
    if said.error is not None:
        return "stream_error", said.error
    if not answer.events:
        return "unreadable", "the answer is not a stream of events"
    if not answer.complete or not said.finished:
        came = len(said.token_events)
        return "cut", f"the stream ended without a finish after {came} events with tokens"
    return "completed", ""


def _tokens_per_event(said: Said) -> tuple[list[int], TokenSource]:
    """Tokens of each event, and how they are known.

    Token ids are exact. Usage gives only the total: with as many events as tokens, each event is
    one token; otherwise the total is spread evenly, which leaves sums and rates exact and single
    gaps approximate.
    """
    events, ids = len(said.token_events), sum(said.token_ids)
    total = said.usage.completion_tokens if said.usage else None
    if ids and (total is None or total == ids):
        return said.token_ids, "token_ids"
    if total is None:
        return [0] * events, "none"
    if total == events:
        return [1] * events, "usage"
    return _spread(total, events), "usage_spread"


def _spread(total: int, events: int) -> list[int]:
    return [(i + 1) * total // events - i * total // events for i in range(events)]


def _judge(
    planned: PlannedRequest, said: Said, counted: int | None, length_forced: bool
) -> tuple[Outcome, str]:
    """Whether a stream that ended well also did what was asked."""
    if counted is None:
        return "uncounted", "the server reports neither usage nor token ids"
    ids = sum(said.token_ids)
    if ids and ids != counted:
        return "uncounted", f"{ids} token ids came, but the usage says {counted}"
    seen = said.usage.prompt_tokens if said.usage else None
    if seen is not None and seen != planned.prompt_tokens:
        return (
            "wrong_prompt",
            f"the server saw {seen} prompt tokens, {planned.prompt_tokens} were sent",
        )
    if length_forced and counted < planned.output_tokens:
        return "short", f"{counted} of {planned.output_tokens} tokens"
    if counted > planned.output_tokens:
        return "long", f"{counted} tokens, {planned.output_tokens} were asked for"
    return "completed", ""
