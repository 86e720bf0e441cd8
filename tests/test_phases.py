"""Where the time of a start went: the parts are the whole, whatever the log has or lacks."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvroom import engines
from kvroom.analyse.phases import ANSWERED, phases
from kvroom.records import LogLine

ENDS = (("imports", "args"), ("weights", "loaded"), ("server", "serving"))


def told(*lines: tuple[float | None, str], ready_s: float = 10.0) -> dict[str, float]:
    numbered = [LogLine(n, text, at_s) for n, (at_s, text) in enumerate(lines, start=1)]
    return {p.name: p.seconds for p in phases(numbered, "engine.log", ENDS, ready_s)}


def test_each_phase_ends_with_its_line() -> None:
    assert told((2, "args"), (3, "other"), (7, "loaded"), (9, "serving")) == {
        "imports": 2, "weights": 5, "server": 2, ANSWERED: 1,
    }  # fmt: skip


def test_a_missing_line_gives_its_time_to_the_next_phase() -> None:
    assert told((2, "args"), (9, "serving")) == {"imports": 2, "server": 7, ANSWERED: 1}


def test_of_several_lines_the_last_before_ready_counts() -> None:
    """Two shards are loaded, and something is loaded again while requests run."""
    assert told((1, "args"), (2, "loaded 1"), (6, "loaded 2"), (12, "loaded 3")) == {
        "imports": 1, "weights": 5, ANSWERED: 4,
    }  # fmt: skip


def test_a_line_before_its_time_ends_nothing() -> None:
    assert told((1, "loaded"), (2, "args"), (9, "serving")) == {
        "imports": 2, "server": 7, ANSWERED: 1,
    }  # fmt: skip


def test_without_times_or_lines_nothing_is_told() -> None:
    assert told((None, "args"), (None, "serving")) == {}
    assert told() == {}


@given(
    st.lists(st.tuples(st.floats(0, 30), st.sampled_from(["args", "loaded", "serving", "x"]))),
    st.floats(0.1, 20),
)
def test_the_parts_are_the_whole(lines: list[tuple[float, str]], ready_s: float) -> None:
    found = told(*sorted(lines), ready_s=ready_s)

    assert not found or sum(found.values()) == pytest.approx(ready_s)
    assert all(seconds >= 0 for seconds in found.values())


@pytest.mark.parametrize("name", [n for n in engines.names() if engines.engine(n).phases])
def test_every_engines_phases_are_patterns_with_names_of_their_own(name: str) -> None:
    ends = engines.engine(name).phases
    names = [phase for phase, _ in ends]

    assert len(set(names)) == len(names)
    assert ANSWERED not in names
    assert all(re.compile(pattern) for _, pattern in ends)
