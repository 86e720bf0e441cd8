"""Waterfalls, gauges over time and settings side by side, as they are printed."""

from typing import Any

from kvroom.analyse.contender import Measured, StartTold
from kvroom.analyse.effective import Effective
from kvroom.analyse.live import Live, Moment
from kvroom.analyse.phases import Phase
from kvroom.matchup import Contender
from kvroom.records import Source
from kvroom.report.course import WIDTH, over_time, settings, starts


def told(name: str = "a", **more: Any) -> Measured:
    values: dict[str, Any] = {
        "contender": Contender(name=name, engine="vllm"),
        "state": "measured",
        "start": None,
        "ending": None,
        "facts": {},
        "levels": [],
        "voids": {},
    }
    return Measured(**(values | more))


def a_start(*seconds: float, kind: str = "") -> StartTold:
    phases = [
        Phase(name=f"phase {n}", seconds=s, source=Source("a/engine.log", n))
        for n, s in enumerate(seconds)
    ]
    return StartTold(kind=kind, ready_s=sum(seconds), phases=phases, begin=None)


def test_a_start_is_a_waterfall_that_ends_where_it_is_ready() -> None:
    table = starts([told(starts=[a_start(6, 0.01, 18, kind="first"), a_start(1)])])

    assert table is not None
    rows = [[cell.text for cell in row] for row in table.rows]
    assert [row[:4] for row in rows] == [
        ["a (first)", "phase 0", "6.0", "6.0"],
        ["", "phase 2", "18.0", "24.0"],
        ["a", "phase 0", "1.0", "1.0"],
    ]
    assert rows[0][4] == "█" * 6 + "·" * 18
    assert rows[1][4] == "·" * 6 + "█" * 18
    assert all(len(row[4]) == WIDTH for row in rows)


def test_without_phases_there_is_no_waterfall() -> None:
    assert starts([told()]) is None


def a_live(*moments: tuple[float, float, float]) -> Live:
    return Live(
        samples=len(moments),
        running_max=max(running for _, running, _ in moments),
        waiting_max=max(waiting for _, _, waiting in moments),
        kv_cache_usage_max=None,
        preempted=None,
        memory_bytes_max=None,
        device_memory_bytes_max=None,
        series=[
            Moment(at_s=at, running=running, waiting=waiting, kv_cache_usage=None)
            for at, running, waiting in moments
        ],
    )


def test_gauges_are_drawn_over_time_each_on_its_own_scale() -> None:
    live = a_live((0.0, 23, 9), (12.0, 23, 9), (24.0, 9, 0))

    table = over_time([told(live={32: live})], 32)

    assert table is not None
    (running, waiting) = [[cell.text for cell in row] for row in table.rows]
    assert running[:4] == ["a", "running", "23", "18.3"]
    assert waiting[:4] == ["", "waiting", "9", "6.0"]
    assert running[4][0] == running[4][12] == waiting[4][0] == "█"
    assert waiting[4][-1] == "▁"
    assert running[4][1] == "·", "nobody looked"


def test_an_engine_without_gauges_has_no_rows() -> None:
    assert over_time([told()], 32) is None


def test_settings_that_differ_are_marked_and_say_how_they_are_known() -> None:
    logged = Effective(value="32", how="logged", source="a/engine.log:7")
    one = told("one", settings={"slots": logged, "max_len": logged})
    other = told("other", settings={"slots": Effective(value="256", how="default")})

    table = settings([one, other])

    assert table is not None
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["slots", "differs", "32", "256 (default)"],
        ["max_len", "", "32", "-"],
    ]


def test_nothing_known_is_no_table() -> None:
    assert settings([told()]) is None
