"""What people read: golden reports, the documented JSON, and text that nobody may steer."""

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import golden
from conftest import a_record, an_info
from kvroom.errors import EngineError
from kvroom.report.data import data
from kvroom.report.document import document
from kvroom.report.live import Live, Pace
from kvroom.report.markdown import markdown
from kvroom.report.terminal import show
from kvroom.store import Ending, Run
from kvroom.workload import waves


def terminal(run: Run, width: int = 80) -> str:
    out = io.StringIO()
    show(document(run), Console(file=out, width=width, highlight=False))
    return steady(out.getvalue(), run)


def steady(text: str, run: Run) -> str:
    """Without what differs from machine to machine and day to day."""
    text = text.replace(str(run.path), "RUN").replace(run.info.created, "TODAY")
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


@pytest.fixture
def a_troubled_run(a_run: Run) -> Run:
    """Contender a dies after its first level; b has failures at level 4."""
    a_run.round_file("a", "c004-1").unlink()
    a_run.round_file("a", "c004-2").unlink()
    lines = ["loading", "RuntimeError: out of room"]
    ending = Ending(state="failed", reason="the engine exited with code 7", last_lines=lines)
    a_run.write_ending("a", ending)
    broken = [a_record(i, outcome="stream_error", reason="Context size exceeded") for i in range(3)]
    a_run.write_round("b", "c004-2", an_info(4, 2), [a_record(3), *broken])
    return a_run


def test_the_terminal_report(a_run: Run) -> None:
    golden.check("report.txt", terminal(a_run))


def test_the_terminal_report_of_a_bad_day(a_troubled_run: Run) -> None:
    golden.check("report-troubled.txt", terminal(a_troubled_run))


def test_the_markdown_report(a_run: Run) -> None:
    golden.check("report.md", steady(markdown(document(a_run)), a_run))


def test_the_json_report(a_run: Run) -> None:
    text = json.dumps(data(a_run), indent=1, ensure_ascii=False)
    golden.check("report.json", steady(text, a_run))


def test_the_json_holds_what_is_promised_for_each_contender_and_level(a_run: Run) -> None:
    for contender in data(a_run)["contenders"]:
        assert [level["concurrency"] for level in contender["levels"]] == [1, 4]
        for level in contender["levels"]:
            assert isinstance(level["output_throughput"], float)
            for name in ("ttft_ms", "itl_ms", "tpot_ms", "e2el_ms"):
                assert {"p50", "p90", "p99"} <= level[name].keys()
            assert level["completed"] == 2 * level["concurrency"]
            assert level["failed"] == 0


def test_a_report_needs_no_colour_to_be_understood(a_run: Run) -> None:
    """The verdict's winner carries its mark in characters."""
    line = next(line for line in terminal(a_run).splitlines() if line.startswith(" b "))

    assert "*" in line


def test_a_run_that_was_never_finished_can_be_read(a_run: Run) -> None:
    for file in a_run.folder("b").rglob("*"):
        if file.is_file():
            file.unlink()
    a_run.round_file("a", "c004-2").unlink()
    (a_run.folder("a") / "outcome.json").unlink()

    text = terminal(a_run)

    assert "! a: unfinished" in text
    assert "! b: not started" in text
    assert "No two contenders can be compared." in text


HOSTILE = "\x1b[31m<script>alert(1)</script> | `x` [l](javascript:1) \u202e\x07 =cmd()"


@pytest.fixture
def a_hostile_run(a_run: Run) -> Run:
    """Everything an engine or a server can say, it says in bad faith."""
    lines = [HOSTILE]
    a_run.write_ending("a", Ending(state="failed", reason=HOSTILE, hint=HOSTILE, last_lines=lines))
    a_run.round_file("a", "c004-1").unlink()
    broken = a_record(0, outcome="stream_error", reason=HOSTILE, text=HOSTILE)
    a_run.write_round("b", "c001-1", an_info(1, 1), [broken])
    files = a_run.starts("a")[0]
    files.log.write_text(f"xllamacpp {HOSTILE}\n0.1 E {HOSTILE}\n")
    return a_run


def test_hostile_text_cannot_steer_a_terminal(a_hostile_run: Run) -> None:
    text = terminal(a_hostile_run, width=200)

    assert "alert(1)" in text, "the text itself is shown"
    assert not any(not c.isprintable() for c in text if c != "\n")


def test_hostile_text_is_no_markup_in_markdown(a_hostile_run: Run) -> None:
    text = markdown(document(a_hostile_run))

    prose = [line for line in text.splitlines() if not line.startswith(("    ", "|"))]
    assert any("alert" in line for line in prose), "the text itself is shown"
    assert not any(re.search(r"(?<!\\)[<`\[|]", line) for line in prose)
    assert not any(not c.isprintable() for c in text if c != "\n")


def test_live_lines_where_there_is_no_terminal(a_run: Run) -> None:
    out = io.StringIO()
    planned = waves(a_run.matchup.workload)
    with Live(Console(file=out, width=100, highlight=False)) as live:
        live.began(a_run, {"a": planned[:2], "b": planned})
        live.says("a", "starting")
        live.round_began("a", planned[0])
        live.events_came(3)
        live.round_ended("a", planned[0], 2.0, 1)
        live.round_ended("a", planned[2], 2.0, 3)
        live.failed("b", EngineError(HOSTILE))

    lines = [line[9:] for line in out.getvalue().splitlines()]
    assert lines[1:4] == [
        "a: starting",
        "a: round 1 at 1: 2.00 s, 4 tok/s",
        "a: round 1 at 1: 2.00 s, 1 of 4 requests failed",
    ]
    assert lines[4].startswith("b: failed:  [31m<script>")


def test_time_left_is_foretold_from_like_rounds(a_run: Run) -> None:
    planned = waves(a_run.matchup.workload)  # 1, 1, 4, 4
    pace = Pace({"a": planned, "b": planned})
    assert pace.left_s() is None

    pace.ended("a", planned[0], 2.0)
    assert pace.left_s() == 2 + 8 + 8 + (2 + 2 + 8 + 8)

    pace.ended("a", planned[2], 3.0)
    assert pace.left_s() == 2 + 3 + (2 + 2 + 3 + 3)

    pace.gave_up("b")
    assert pace.left_s() == 2 + 3


def test_reports_are_written_whole_or_refused(a_run: Run, kvroom: Any, tmp_path: Path) -> None:
    assert kvroom("report", a_run.path, "-o", "report.md").returncode == 0
    assert (tmp_path / "report.md").read_text().startswith("# probe")

    refused = kvroom("report", a_run.path, "-o", "report.docx")
    assert refused.returncode == 2
    assert "cannot write report.docx: only .md is known" in refused.stderr
