"""Who is ahead: nobody, unless every round says so by more than noise."""

from collections.abc import Sequence

import pytest

from conftest import a_record, an_info, steady
from kvroom.analyse.compare import Ranked, rank, verdict
from kvroom.analyse.contender import Measured
from kvroom.analyse.metrics import level_metrics, round_metrics
from kvroom.analyse.noise import noise
from kvroom.matchup import Contender
from kvroom.records import RequestRecord
from kvroom.store import Round, to_frame


def contender(
    name: str, *speeds: float, engine: str = "llamacpp", level: int = 8, **changes: object
) -> Measured:
    """A contender whose rounds at a level had these tokens per second."""
    rounds = [_round(level, n, speed) for n, speed in enumerate(speeds, start=1)]
    values = {
        "contender": Contender(name=name, engine=engine),
        "state": "measured",
        "start": None,
        "ending": None,
        "facts": {},
        "levels": [level_metrics([round_metrics(r) for r in rounds])],
        "voids": {},
    }
    return Measured(**(values | changes))  # type: ignore[arg-type]


def _round(level: int, number: int, speed: float, extra: Sequence[RequestRecord] = ()) -> Round:
    at = steady(1000 / speed, 1000 / speed, 100)
    return Round(info=an_info(level, number), frame=to_frame([a_record(tokens_at_ms=at), *extra]))


def ranked(*contenders: Measured) -> Ranked:
    return rank(contenders, 8, noise(contenders))


@pytest.mark.parametrize(
    ("one", "other", "apart"),
    [
        ((200, 202), (100, 101), True),
        ((109, 109.2), (100, 100.2), True),
        ((104, 104), (100, 100), False),  # less than two starts differ
        ((108, 112), (100, 104), False),  # the rounds scatter as much
        ((120, 99), (100, 101), False),  # the rounds overlap
        ((200,), (100,), True),
        ((114,), (100,), False),  # nothing was repeated
    ],
)
def test_ahead_means_every_round_and_more_than_noise(
    one: Sequence[float], other: Sequence[float], apart: bool
) -> None:
    found = ranked(contender("a", *one), contender("b", *other))

    assert found.order == ["a", "b"]
    assert found.best == ("a" if apart else None)
    assert found.alike == ([] if apart else ["b"])


def test_noise_is_the_prior_plus_what_repeated_rounds_scatter() -> None:
    """Two cells, 98 and 102: deviation sqrt(8)/100 each, and so pooled; twice that by chance."""
    floor = noise([contender("a", 98, 102), contender("b", 196, 204)])

    assert floor.scatter == pytest.approx(8**0.5 / 100)
    assert floor.limit == pytest.approx(0.05 + 2 * 8**0.5 / 100)
    assert floor.rounds == 4


def test_noise_of_a_void_level_is_not_the_noise_of_the_host() -> None:
    late = contender("late", 50, 200, voids={8: "requests were sent late"})

    assert noise([late, contender("a", 100, 100)]).scatter == 0


def test_a_verdict_names_the_winner_and_the_ratio() -> None:
    said = verdict([contender("a", 200), contender("b", 100, engine="vllm")], [8])

    assert said == "At 8 concurrent requests, a is fastest: 200 tok/s, 2.00 times b (100)."


def test_a_verdict_says_when_there_is_none() -> None:
    a, b = contender("a", 102, 102), contender("b", 101, 101, engine="vllm")
    c = contender("c", 50, 50)
    said = verdict([a, b, c], [8])

    assert said.startswith(
        "At 8 concurrent requests, no difference is shown between a and b (noise limit 5%)."
    )


def test_a_verdict_says_what_settings_alone_change() -> None:
    said = verdict([contender("small", 100), contender("large", 180)], [8])

    assert said.endswith(
        "At 8 concurrent requests, settings alone change llamacpp by 1.80 times (large over small)."
    )


def test_failures_and_a_late_client_keep_a_contender_out_of_the_ranking() -> None:
    failed = a_record(1, outcome="cut", reason="gone")
    broken = level_metrics([round_metrics(_round(8, 1, 900, [failed]))])
    cheat = contender("cheat", 1, levels=[broken])
    late = contender("late", 800, voids={8: "requests were sent late"})

    found = ranked(cheat, late, contender("a", 200), contender("b", 100))

    assert found.order == ["a", "b"]


def test_one_contender_alone_is_no_comparison() -> None:
    assert verdict([contender("a", 200)], [8]) == "No two contenders can be compared."
    assert verdict([], [8]) == "No two contenders can be compared."
    assert ranked(contender("a", 200)).best is None
