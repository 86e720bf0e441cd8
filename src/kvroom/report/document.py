"""The report as values, before it has a shape."""

import msgspec

from kvroom.analyse.applied import outcomes
from kvroom.analyse.compare import verdict
from kvroom.analyse.contender import Measured, measured
from kvroom.explain.whole import explain_run
from kvroom.report.course import over_time, settings, starts
from kvroom.report.notes import notes
from kvroom.report.reasons import reasons
from kvroom.report.table import Table, overview, pressure
from kvroom.store import Run


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was not measured, or cannot be believed, and why."""

    contender: str
    what: str
    hint: str = ""
    lines: tuple[str, ...] = ()
    """The end of the engine's log."""
    log: str = ""


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """What a reader is told, in the order a reader asks."""

    title: str
    verdict: str
    changes: list[str]
    """What changes of another run did here, beside what they promised."""
    why: list[str]
    """For each contender the deciding cause, and the first change."""
    tables: list[Table]
    failures: list[Failure]
    notes: list[str]
    run_path: str


def document(run: Run) -> Document:
    """The report of a run."""
    contenders = measured(run)
    whole = explain_run(run, contenders)
    levels = run.matchup.workload.concurrency
    courses = (over_time(contenders, max(levels)), starts(contenders), settings(contenders))
    return Document(
        title=run.info.name,
        verdict=verdict(contenders, levels),
        changes=list(outcomes(run.applied(), contenders)),
        why=[*reasons(whole), *(pair.told for pair in whole.pairs if pair.apart)],
        tables=[
            overview(contenders, levels),
            pressure(contenders, max(levels)),
            *filter(None, courses),
        ],
        failures=[failure for one in contenders for failure in _failures(run, one)],
        notes=notes(run, contenders),
        run_path=str(run.path),
    )


def _failures(run: Run, one: Measured) -> list[Failure]:
    name = one.contender.name
    found = [_not_measured(run, one)] if one.state != "measured" else []
    for level in one.levels:
        for reason, count in level.failures.items():
            what = f"at {level.concurrency}: {count} requests failed: {reason}"
            found.append(Failure(contender=name, what=what))
    for concurrency, why in one.voids.items():
        found.append(Failure(contender=name, what=f"at {concurrency}: void: {why}"))
    return found


def _not_measured(run: Run, one: Measured) -> Failure:
    name, ending = one.contender.name, one.ending
    if one.state != "failed" or ending is None:
        return Failure(contender=name, what=one.state)
    starts = run.starts(name)
    return Failure(
        contender=name,
        what=f"failed: {ending.reason}{_root(one)}",
        hint=ending.hint,
        lines=tuple(ending.last_lines),
        log=str(starts[-1].log) if starts and ending.last_lines else "",
    )


def _root(one: Measured) -> str:
    """The engine's own last word on what went wrong, with its place."""
    error = one.facts.get("error")
    return f": {error.value} ({error.source})" if error else ""
