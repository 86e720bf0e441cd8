"""Metrics by hand-made rounds whose figures can be worked out on paper."""

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import MS, a_record, an_info, steady
from kvroom.analyse.audit import void_reason
from kvroom.analyse.metrics import RoundMetrics, level_metrics, round_metrics
from kvroom.records import RequestRecord
from kvroom.stats import Percentiles, Spread
from kvroom.store import Round, to_frame


def of(*records: RequestRecord, concurrency: int = 1, number: int = 1) -> RoundMetrics:
    return round_metrics(Round(info=an_info(concurrency, number), frame=to_frame(records)))


def test_one_stream() -> None:
    """First token at 50 ms, then one every 10 ms: 8 tokens, the last at 120 ms."""
    one = of(a_record(sent_ms=2, tokens_at_ms=steady(50, 10, 8)))

    assert one.output_throughput == pytest.approx(8 / 0.120)
    assert one.request_throughput == pytest.approx(1 / 0.120)
    assert one.ttft_ms == [50]
    assert one.ttft_from_sent_ms == [48]
    assert one.itl_ms == [10] * 7
    assert one.tpot_ms == [10]
    assert one.e2el_ms == [120]
    assert level_metrics([one]).decode_tokens_per_s == Percentiles.of([100.0])


def test_latency_counts_from_due_not_from_sent() -> None:
    late = of(a_record(due_ms=0, sent_ms=40, tokens_at_ms=(90, 100)))

    assert late.ttft_ms == [90]
    assert late.ttft_from_sent_ms == [50]


def test_tokens_that_arrive_together_share_their_gap() -> None:
    """Two events of one and three tokens, 30 ms apart: 10 ms a token, three gaps of 10 ms."""
    one = of(a_record(tokens_at_ms=(50, 80), carried=(1, 3)))

    assert one.itl_ms == [10, 10, 10]
    assert one.tpot_ms == [10]
    assert one.output_throughput == pytest.approx(4 / 0.080)


def test_events_without_tokens_are_not_gaps() -> None:
    one = of(a_record(tokens_at_ms=(20, 50, 60, 70), carried=(0, 1, 0, 1)))

    assert one.ttft_ms == [50]
    assert one.itl_ms == [20]


def test_throughput_is_of_all_requests_until_the_last_token() -> None:
    wave = of(
        a_record(0, tokens_at_ms=steady(50, 10, 10)),
        a_record(1, tokens_at_ms=steady(400, 10, 11)),
        concurrency=2,
    )

    assert wave.output_throughput == pytest.approx(21 / 0.5)


def test_failed_requests_add_nothing_but_their_count_and_reason() -> None:
    wave = of(
        a_record(0, tokens_at_ms=steady(50, 10, 10)),
        a_record(1, tokens_at_ms=steady(10, 1, 5), outcome="cut", reason="gone"),
        a_record(2, tokens_at_ms=(), outcome="stalled", reason="silent", sent_ns=None),
    )

    assert (wave.completed, wave.failed) == (1, 2)
    assert wave.failures == {"cut: gone": 1, "stalled: silent": 1}
    assert wave.output_throughput == pytest.approx(10 / 0.14)
    assert len(wave.ttft_ms) == 1


def test_nothing_completed_is_no_figure_rather_than_zero() -> None:
    level = level_metrics([of(a_record(outcome="cut", reason="gone"))])

    assert level.output_throughput is None
    assert level.output_throughput_rounds is None
    assert level.ttft_ms is None
    assert (level.completed, level.failed) == (0, 1)


def test_a_level_keeps_its_first_round_and_the_spread_of_all() -> None:
    slow = of(a_record(tokens_at_ms=steady(50, 10, 10)))
    fast = of(a_record(tokens_at_ms=steady(20, 10, 10)), number=2)
    level = level_metrics([slow, fast])

    assert level.output_throughput == slow.output_throughput
    first, second = slow.output_throughput or 0, fast.output_throughput or 0
    assert level.output_throughput_rounds == Spread.of([first, second])
    assert level.ttft_ms is not None
    assert level.ttft_ms.p50 == 35


def test_a_round_with_failures_does_not_count_towards_the_spread() -> None:
    good = of(a_record(tokens_at_ms=steady(50, 10, 10)))
    bad = of(a_record(), a_record(1, outcome="cut", reason="gone"), number=2)

    spread = level_metrics([good, bad]).output_throughput_rounds

    assert spread is not None
    assert spread.n == 1


def test_requests_in_flight_and_streaming_over_time() -> None:
    wave = of(
        a_record(0, sent_ms=0, tokens_at_ms=(10, 20, 30)),
        a_record(1, sent_ms=0, tokens_at_ms=(30, 40)),
        a_record(2, sent_ms=5, tokens_at_ms=(), outcome="cut", reason="gone", ended_ns=15 * MS),
    )

    assert wave.flight.max_in_flight == 3
    assert wave.flight.max_streaming == 1
    assert wave.flight.steps[0] == (0, 2, 0)
    assert wave.flight.steps[-1] == (40, 0, 0)
    assert wave.flight.mean_streaming == pytest.approx((20 + 10) / 40)


gaps = st.lists(st.floats(0.2, 1000), min_size=1, max_size=30)


@given(st.lists(gaps, min_size=1, max_size=6))
def test_the_metrics_agree_with_a_plain_count(streams: Sequence[Sequence[float]]) -> None:
    """Against figures from the bare arrival times, by other means."""
    arrivals = [[round(ms * MS) / MS for ms in np.cumsum(stream)] for stream in streams]
    one = of(*(a_record(i, tokens_at_ms=at) for i, at in enumerate(arrivals)))

    flat = [b - a for at in arrivals for a, b in itertools.pairwise(at)]
    assert one.itl_ms == pytest.approx(flat)
    assert sum(one.ttft_ms) == pytest.approx(sum(at[0] for at in arrivals))
    assert one.e2el_ms == pytest.approx([at[-1] for at in arrivals])
    last = max(at[-1] for at in arrivals)
    assert one.output_throughput == pytest.approx(sum(map(len, arrivals)) / last * 1000)
    assert all(s[1] >= s[2] >= 0 for s in one.flight.steps)
    assert one.flight.steps[-1][1:] == (0, 0)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50))
def test_percentiles_are_ordered_and_inside_the_sample(sample: list[float]) -> None:
    found = Percentiles.of(sample)

    assert found is not None
    assert min(sample) <= found.p50 <= found.p90 <= found.p99 <= found.max == max(sample)


def test_a_client_that_sends_late_voids_the_round() -> None:
    on_time = of(*(a_record(i, sent_ms=9, tokens_at_ms=(100, 110)) for i in range(4)))
    late = of(*(a_record(i, sent_ms=30, tokens_at_ms=(100, 110)) for i in range(4)))

    assert void_reason(on_time) is None
    assert void_reason(late) == (
        "requests were sent up to 30 ms late (99th percentile), more than the 10 ms allowed"
    )


def test_lateness_is_judged_by_the_figure_it_spoils() -> None:
    waiting = of(*(a_record(i, sent_ms=30, tokens_at_ms=(2000, 2010)) for i in range(4)))

    assert void_reason(waiting) is None


def test_reading_late_voids_the_round_only_where_arrivals_were_lost() -> None:
    events = [round(ms * MS) for ms in (50, 60, 70, 80)]
    apart = [at + 40 * MS for at in events]
    together = [events[-1] + 40 * MS] * 4

    each_stamped = of(a_record(tokens_at_ms=(50, 60, 70, 80), event_read_ns=apart))
    merged = of(a_record(tokens_at_ms=(50, 60, 70, 80), event_read_ns=together))

    assert void_reason(each_stamped) is None
    assert "several at once" in (void_reason(merged) or "")


def test_a_spread_keeps_the_order_measured() -> None:
    assert Spread.of([3.0, 1.0, 2.0]) == Spread(
        first=3.0, mean=2.0, low=1.0, high=3.0, deviation=1.0, n=3
    )
    assert Spread.of([]) is None
