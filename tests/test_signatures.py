"""The catalogue of known failures: every entry finds its line, and none finds a healthy log."""

import re
import string
from pathlib import Path

import pytest

from kvroom import engines
from kvroom.explain.log import read
from kvroom.explain.signatures import Hits, Signature, catalogue, marks
from kvroom.loglines import log_lines
from kvroom.records import LogLine

LOGS = Path(__file__).parent / "logs"
HEALTHY = sorted(path for path in LOGS.rglob("*.log") if "fail" not in path.stem)
GRAVE = ("unsupported/crash", "oom-at-start", "runtime-oom")


def each() -> list[object]:
    return [pytest.param(one, id=one.name) for one in catalogue()]


@pytest.mark.parametrize("one", each())
def test_an_entry_finds_its_example_among_other_lines(one: Signature) -> None:
    for engine in one.engines or engines.names():
        hits = Hits(engine, "engine.log")
        lines = [LogLine(1, "nothing of interest"), LogLine(2, one.example)]

        assert list(hits.watched(lines)) == lines
        found = next((hit for hit in hits.found() if hit.signature is one), None)
        assert found is not None
        assert str(found.quote.source) == "engine.log:2"
        assert found.quote.text in one.example


@pytest.mark.parametrize("one", each())
def test_a_mark_of_the_entry_stands_in_its_example(one: Signature) -> None:
    """Else the line would be passed over in a large log."""
    for engine in one.engines or engines.names():
        assert any(mark in one.example for mark in marks(engine))


@pytest.mark.parametrize("one", each())
def test_words_in_braces_are_groups_of_the_pattern(one: Signature) -> None:
    groups = re.compile(one.pattern).groupindex
    texts = (one.claim, one.remedy, one.to, one.price, one.verify)
    named = {name for text in texts for _, name, _, _ in string.Formatter().parse(text) if name}

    assert named <= set(groups)


def test_names_are_used_once() -> None:
    names = [one.name for one in catalogue()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("path", HEALTHY, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_log_of_an_engine_that_served_shows_no_failure(path: Path) -> None:
    engine = engines.engine(path.relative_to(LOGS).parts[0])
    log = read(engine, log_lines(path), path.name)
    if log.last("error") is not None:
        pytest.skip("it did not serve")

    assert [hit.signature.name for hit in log.hits if hit.signature.cause in GRAVE] == []
