"""The measured curve: rounds as batches, and what more requests at once would make."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvroom.explain.curve import Curve, Point


def a_curve(speeds: dict[int, float], together: int, output: int = 256) -> Curve:
    """Levels with these tokens a second, of which so many requests run at once."""
    points = tuple(
        Point(concurrency=n, tokens_per_s=speed, seconds=n * output / speed, tpot_ms=None)
        for n, speed in sorted(speeds.items())
    )
    return Curve(points=points, output=output, together=together, how="observed", noise=0.0)


FOUNDING = a_curve({1: 69.7, 4: 230, 8: 485, 16: 852, 32: 759}, together=23)
"""What was measured on the RTX 5090 with TensorRT-LLM and a cache of 16 bits."""


def test_the_founding_round_is_two_batches() -> None:
    """759 tok/s is what 23 at once and 9 after them give; all 32 would have made more."""
    found = FOUNDING.tokens_per_s(23)
    cured = FOUNDING.tokens_per_s(32)

    assert found is not None
    assert cured is not None
    assert found.low <= 759 <= found.high
    assert cured.low >= 851
    assert cured.likely > 1.2 * found.likely


def test_the_cure_was_within_what_was_predicted() -> None:
    """With a cache of 8 bits all 32 ran, at 1,361 tok/s."""
    cured = FOUNDING.tokens_per_s(32)

    assert cured is not None
    assert cured.low <= 1361 <= cured.high
    assert cured.likely == pytest.approx(1361, rel=0.05)


def test_levels_in_which_requests_waited_say_nothing_about_batches() -> None:
    assert [point.concurrency for point in FOUNDING.shared] == [1, 4, 8, 16]
    assert a_curve({8: 100, 16: 100}, together=4).tokens_per_s(16) is None


@pytest.mark.parametrize(
    ("speeds", "best"),
    [({1: 50, 8: 300, 16: 500}, 16), ({1: 50, 8: 300, 16: 301}, 8), ({4: 200, 8: 150}, 4)],
)
def test_growth_ends_at_the_lowest_level_that_is_as_fast(
    speeds: dict[int, float], best: int
) -> None:
    assert a_curve(speeds, together=64).best.concurrency == best


curves = st.builds(
    lambda base, gain, together: a_curve(
        {1: base, 4: base * gain, 8: base * gain**1.5, 32: base * gain}, together
    ),
    st.floats(1, 1e4),
    st.floats(1, 3.9),
    st.integers(1, 31),
)


@given(curves, st.integers(1, 32))
def test_the_likeliest_lies_between_the_ends(curve: Curve, together: int) -> None:
    found = curve.tokens_per_s(together)

    assert found is not None
    assert found.low <= found.likely * (1 + 1e-9)
    assert found.likely <= found.high * (1 + 1e-9)


@given(curves)
def test_a_level_that_was_measured_is_its_own_prediction(curve: Curve) -> None:
    for point in curve.shared:
        batch = curve.batch_s(point.concurrency)
        assert batch is not None
        assert batch.low == batch.high == pytest.approx(point.seconds)
