"""The Run: what goes in comes out, and a half-written run can be read."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conftest import MACHINE, a_record, an_info
from kvroom.errors import InputError
from kvroom.matchup import Matchup
from kvroom.records import LogLine, RequestRecord
from kvroom.store import Ending, Run, Start, new_run_path

times = st.lists(st.integers(-(2**40), 2**40), max_size=8)


@st.composite
def records(draw: st.DrawFn) -> RequestRecord:
    events = draw(times)
    return a_record(
        draw(st.integers(0, 10**9)),
        event_ns=events,
        event_read_ns=events,
        event_tokens=[1] * len(events),
        sent_ns=draw(st.none() | st.integers(0, 2**40)),
        completion_tokens=draw(st.none() | st.integers(0, 2**31)),
        outcome=draw(st.sampled_from(["completed", "cut", "stream_error"])),
        reason=draw(st.text(max_size=20)),
        text=draw(st.text(max_size=40)),
    )


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(records(), min_size=1, max_size=5))
def test_a_round_comes_back_as_it_was_kept(a_run: Run, kept: list[RequestRecord]) -> None:
    info = an_info(999, 1)
    a_run.write_round("a", "c999-1", info, kept)

    (stored,) = (r for r in a_run.rounds("a") if r.info.concurrency == 999)

    assert stored.info == info
    assert [RequestRecord(**row) for row in stored.frame.to_dicts()] == kept


def test_rounds_come_in_order_of_level_and_number(a_run: Run) -> None:
    for key, level, number in (("c128-1", 128, 1), ("c1024-1", 1024, 1), ("c004-10", 4, 10)):
        a_run.write_round("a", key, an_info(level, number), [a_record()])

    found = [(r.info.concurrency, r.info.number) for r in a_run.rounds("a")]

    assert found == [(1, 1), (1, 2), (4, 1), (4, 2), (4, 10), (128, 1), (1024, 1)]


def test_a_round_that_was_being_written_does_not_count(a_run: Run) -> None:
    (a_run.folder("a") / "rounds" / "c008-1.parquet.partial").write_bytes(b"PAR1 half")

    assert len(a_run.rounds("a")) == 4


def test_a_broken_round_is_named(a_run: Run) -> None:
    file = a_run.round_file("a", "c001-1")
    file.write_bytes(b"PAR1 nonsense")

    with pytest.raises(InputError, match=r"c001-1\.parquet cannot be read as a round"):
        a_run.rounds("a")


def test_a_run_opens_as_it_was_created(a_run: Run) -> None:
    again = Run.open(a_run.path)

    assert again.info == a_run.info
    assert again.matchup == a_run.matchup
    assert again.ending("a") == Ending(state="measured")


def test_a_second_launch_keeps_the_files_of_the_first(a_run: Run) -> None:
    files = a_run.next_start("a")
    files.write(Start(argv=["second"], env={}, url="u"))

    assert files.log.name == "engine-2.log"
    assert [f.log.name for f in a_run.starts("a")] == ["engine.log", "engine-2.log"]
    start = a_run.start("a")
    assert start is not None
    assert start.argv == ["second"]


def test_log_lines_keep_their_numbers_times_and_odd_bytes(a_run: Run) -> None:
    files = a_run.starts("a")[0]
    files.log.write_bytes(b"one\r\n10%\r50%\r100%\n\xff\xfe\nlong" + b"g" * 200_000 + b"\nlast")
    files.times.write_text("1000000000\n2000000000\n3000000000\n4000000000\n")

    lines = list(a_run.log_lines(files))

    assert lines[:3] == [
        LogLine(1, "one", 1.0),
        LogLine(2, "100%", 2.0),
        LogLine(3, "\N{REPLACEMENT CHARACTER}" * 2, 3.0),
    ]
    assert len(lines[3].text) == 1 << 16
    assert lines[4] == LogLine(5, "last", None)


def test_folders_of_one_day_get_numbers(tmp_path: Path) -> None:
    first = new_run_path(tmp_path, "demo")
    first.mkdir()

    assert new_run_path(tmp_path, "demo").name == first.name + "-2"


def test_a_folder_that_cannot_be_made_is_said(
    tmp_path: Path, a_matchup: tuple[Path, Matchup]
) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(InputError, match=r"cannot write a run to .*: not a directory"):
        Run.create(tmp_path / "file" / "r", a_matchup[0], a_matchup[1], MACHINE)
