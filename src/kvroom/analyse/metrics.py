"""Requests -> the field's metrics. The definitions stand in docs/reference/metrics.md."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from kvroom.stats import Percentiles, Spread
from kvroom.store import Round
from kvroom.units import NS_PER_MS, NS_PER_S

Times = NDArray[np.float64]


class Flight(msgspec.Struct, frozen=True, kw_only=True):
    """How many requests were under way during a round."""

    steps: list[tuple[float, int, int]]
    """At this ms of the round: requests in flight, and of these already receiving tokens."""
    max_in_flight: int
    max_streaming: int
    mean_streaming: float
    """Over the time until the last answer ended."""


class RoundMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """One round. Samples are per request, except ``itl_ms``, which is per token."""

    concurrency: int
    number: int
    completed: int
    failed: int
    failures: dict[str, int]
    """How often each reason was given."""
    output_throughput: float | None
    """Output tokens of completed requests per second, from due to the last of their tokens."""
    request_throughput: float | None
    ttft_ms: list[float]
    ttft_from_sent_ms: list[float]
    itl_ms: list[float]
    tpot_ms: list[float]
    e2el_ms: list[float]
    shorter: tuple[int, int, int] | None
    """Of completed answers that were shorter than asked: least and most tokens, and how many were
    asked for; None if there are none."""
    flight: Flight
    send_late_ms: float
    """99th percentile of sent after due."""
    read_late_ms: float | None
    """99th percentile of read after the kernel had it; None without kernel stamps."""
    events_per_read: float
    tokens_per_event: float
    """Of completed requests, the first event included; 0 where nothing came."""
    tokens_by: dict[str, int]
    """How the tokens of how many requests were counted."""
    clocks: list[str]
    prompts_sha256: str
    load_average: float
    client_cpu_s: float


class LevelMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """All rounds of one contender at one level of concurrency, requests pooled."""

    concurrency: int
    rounds: int
    completed: int
    failed: int
    failures: dict[str, int]
    output_throughput: float | None
    """Of the first measured round."""
    output_throughput_rounds: Spread | None
    """Over all rounds in which every request was completed."""
    request_throughput: Spread | None
    ttft_ms: Percentiles | None
    ttft_from_sent_ms: Percentiles | None
    itl_ms: Percentiles | None
    tpot_ms: Percentiles | None
    e2el_ms: Percentiles | None
    decode_tokens_per_s: Percentiles | None
    """Speed of a single stream after its first token."""
    first_round: RoundMetrics


def round_metrics(stored: Round) -> RoundMetrics:
    """The metrics of a stored round."""
    rows = stored.frame.to_dicts()
    good = [_Stream(row) for row in rows if row["outcome"] == "completed"]
    ended_s = max((stream.last_ns for stream in good), default=0) / NS_PER_S
    bad = [row for row in rows if row["outcome"] != "completed"]
    failures = Counter(f"{row['outcome']}: {row['reason']}" for row in bad)
    late = [r["sent_ns"] - r["due_ns"] for r in rows if r["sent_ns"] is not None]
    return RoundMetrics(
        concurrency=stored.info.concurrency,
        number=stored.info.number,
        completed=len(good),
        failed=len(bad),
        failures=dict(failures.most_common()),
        output_throughput=sum(s.tokens for s in good) / ended_s if ended_s else None,
        request_throughput=len(good) / ended_s if ended_s else None,
        ttft_ms=[s.first_ms - s.due_ms for s in good if s.timed],
        ttft_from_sent_ms=[s.first_ms - s.sent_ms for s in good if s.timed],
        itl_ms=np.concatenate([s.itl_ms for s in good]).tolist() if good else [],
        tpot_ms=[s.tpot_ms for s in good if s.tpot_ms is not None],
        e2el_ms=[s.last_ns / NS_PER_MS - s.due_ms for s in good if s.timed],
        shorter=_shorter(rows),
        flight=flight(rows),
        send_late_ms=_p99(late) / NS_PER_MS,
        read_late_ms=_read_late_ms(rows),
        events_per_read=_events_per_read(rows),
        tokens_per_event=_tokens_per_event(good),
        tokens_by=dict(Counter(r["token_source"] for r in rows)),
        clocks=sorted({r["clock"] for r in rows}),
        prompts_sha256=stored.info.prompts_sha256,
        load_average=stored.info.load_average,
        client_cpu_s=stored.info.client_cpu_s,
    )


def _shorter(rows: Sequence[dict[str, Any]]) -> tuple[int, int, int] | None:
    counts = [
        (row["completion_tokens"], row["output_tokens"])
        for row in rows
        if row["outcome"] == "completed" and row["completion_tokens"] < row["output_tokens"]
    ]
    if not counts:
        return None
    return min(counts)[0], max(counts)[0], counts[0][1]


def level_metrics(rounds: Sequence[RoundMetrics]) -> LevelMetrics:
    """The metrics of one level from its rounds, in the order measured."""
    clean = [r for r in rounds if r.output_throughput is not None and not r.failed]
    failures: Counter[str] = Counter()
    for one in rounds:
        failures.update(one.failures)
    tpot = [ms for one in rounds for ms in one.tpot_ms]
    return LevelMetrics(
        concurrency=rounds[0].concurrency,
        rounds=len(rounds),
        completed=sum(r.completed for r in rounds),
        failed=sum(r.failed for r in rounds),
        failures=dict(failures.most_common()),
        output_throughput=rounds[0].output_throughput,
        output_throughput_rounds=Spread.of([r.output_throughput or 0.0 for r in clean]),
        request_throughput=Spread.of([r.request_throughput or 0.0 for r in clean]),
        ttft_ms=_pooled(rounds, "ttft_ms"),
        ttft_from_sent_ms=_pooled(rounds, "ttft_from_sent_ms"),
        itl_ms=_pooled(rounds, "itl_ms"),
        tpot_ms=_pooled(rounds, "tpot_ms"),
        e2el_ms=_pooled(rounds, "e2el_ms"),
        decode_tokens_per_s=Percentiles.of([1000 / ms for ms in tpot if ms > 0]),
        first_round=rounds[0],
    )


def _pooled(rounds: Sequence[RoundMetrics], name: str) -> Percentiles | None:
    return Percentiles.of([value for one in rounds for value in getattr(one, name)])


class _Stream:
    """A completed request as arrays."""

    def __init__(self, row: dict[str, Any]) -> None:
        carried = np.asarray(row["event_tokens"], dtype=np.int64)
        self.at_ns = np.asarray(row["event_ns"], dtype=np.float64)[carried > 0]
        self.carried = carried[carried > 0]
        self.tokens = int(row["completion_tokens"])
        self.due_ms = row["due_ns"] / NS_PER_MS
        self.sent_ms = row["sent_ns"] / NS_PER_MS
        self.timed = self.at_ns.size > 0
        self.first_ms = float(self.at_ns[0]) / NS_PER_MS if self.timed else 0.0
        self.last_ns = float(self.at_ns[-1]) if self.timed else float(row["ended_ns"])

    @property
    def itl_ms(self) -> Times:
        """The gap before each token after the first event; tokens of one event share its gap."""
        gaps = np.diff(self.at_ns) / NS_PER_MS / self.carried[1:]
        return np.repeat(gaps, self.carried[1:])

    @property
    def tpot_ms(self) -> float | None:
        """Mean time per output token after the first event."""
        after = int(self.carried[1:].sum())
        if not after:
            return None
        return float(self.at_ns[-1] - self.at_ns[0]) / NS_PER_MS / after


def flight(rows: Sequence[dict[str, Any]]) -> Flight:
    """Requests under way over time, failed ones included until they failed."""
    changes: Counter[float] = Counter()
    streams: Counter[float] = Counter()
    for row in rows:
        if row["sent_ns"] is None:
            continue
        last = row["event_ns"][-1] if row["event_ns"] else row["ended_ns"]
        ended = last if row["outcome"] == "completed" else row["ended_ns"]
        changes.update({row["sent_ns"]: 1})
        changes.subtract({ended: 1})
        if row["event_ns"]:
            streams.update({row["event_ns"][0]: 1})
            streams.subtract({ended: 1})
    steps, in_flight, streaming, area, before = [], 0, 0, 0.0, 0.0
    for at in sorted({*changes, *streams}):
        area += streaming * (at - before)
        before, in_flight, streaming = at, in_flight + changes[at], streaming + streams[at]
        steps.append((round(at / NS_PER_MS, 3), in_flight, streaming))
    span = (steps[-1][0] - steps[0][0]) * NS_PER_MS if steps else 0.0
    return Flight(
        steps=steps,
        max_in_flight=max((s[1] for s in steps), default=0),
        max_streaming=max((s[2] for s in steps), default=0),
        mean_streaming=area / span if span else 0.0,
    )


def _read_late_ms(rows: Sequence[dict[str, Any]]) -> float | None:
    late = [
        read - at
        for row in rows
        if row["clock"] == "kernel"
        for at, read in zip(row["event_ns"], row["event_read_ns"], strict=True)
    ]
    return _p99(late) / NS_PER_MS if late else None


def _events_per_read(rows: Sequence[dict[str, Any]]) -> float:
    events = sum(len(row["event_read_ns"]) for row in rows)
    reads = sum(len(set(row["event_read_ns"])) for row in rows)
    return events / reads if reads else 0.0


def _tokens_per_event(streams: Sequence[_Stream]) -> float:
    events = sum(stream.carried.size for stream in streams)
    return float(sum(stream.carried.sum() for stream in streams) / events) if events else 0.0


def _p99(sample: Sequence[float]) -> float:
    return float(np.percentile(sample, 99)) if sample else 0.0
