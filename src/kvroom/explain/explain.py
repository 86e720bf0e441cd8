"""A case -> why its numbers are what they are, and what to change."""

from collections.abc import Iterable
from typing import get_args

import msgspec

from kvroom.explain.capacity import Capacity, capacities
from kvroom.explain.case import Case
from kvroom.explain.curve import Curve, curve
from kvroom.explain.finding import CIRCUMSTANCE, Cause, Change, Finding
from kvroom.explain.growth import growth
from kvroom.explain.recommend import recommend
from kvroom.explain.rules import ELSE, STORY, Rule

ORDER = {cause: place for place, cause in enumerate(get_args(Cause))}
ASIDE = ("plan-differs",)
"""Findings about the explanation itself, not about the engine."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The findings of one case, the deciding one first."""

    engine: str
    version: str
    findings: tuple[Finding, ...]
    capacities: tuple[Capacity, ...]
    changes: tuple[Change, ...]
    """Ranked."""
    growth: str = ""
    """The measured curve in words."""
    curve: Curve | None = None
    missing: tuple[str, ...] = ()
    """What would allow an answer where there is none."""


def explain(case: Case) -> Explanation:
    """The explanation of a case."""
    findings = _merged(_found(STORY, case))
    if all(_aside(finding, case) for finding in findings):
        findings = [*_first(ELSE, case), *findings]
    measured = curve(case)
    return Explanation(
        engine=case.engine,
        version=case.version,
        findings=tuple(findings),
        capacities=tuple(capacities(case)),
        changes=recommend(case, findings),
        growth=growth(case, measured) if measured else "",
        curve=measured,
        missing=() if findings else tuple(_missing(case)),
    )


def _aside(finding: Finding, case: Case) -> bool:
    """Whether it does not answer why the numbers are what they are."""
    measured = case.top is not None and finding.decides == CIRCUMSTANCE
    return measured or finding.cause in ASIDE


def _found(rules: Iterable[Rule], case: Case) -> list[Finding]:
    """What says so itself before what is computed, that before circumstances; else the story."""
    found = [finding for rule in rules for finding in rule(case)]
    return sorted(found, key=lambda finding: (finding.decides, ORDER[finding.cause]))


def _first(rules: Iterable[Rule], case: Case) -> list[Finding]:
    """What the first of these rules finds that finds anything."""
    return next((found for rule in rules if (found := list(rule(case)))), [])


def _merged(findings: Iterable[Finding]) -> list[Finding]:
    """One finding a cause: the first, with the lines and changes of the others."""
    by_cause: dict[Cause, Finding] = {}
    for one in findings:
        first = by_cause.get(one.cause)
        by_cause[one.cause] = one if first is None else _joined(first, one)
    return list(by_cause.values())


def _joined(first: Finding, other: Finding) -> Finding:
    claims = first.claim if other.claim in first.claim else f"{first.claim}. Also: {other.claim}"
    return msgspec.structs.replace(
        first,
        claim=claims,
        quotes=tuple(dict.fromkeys((*first.quotes, *other.quotes))),
        figures=tuple(dict.fromkeys((*first.figures, *other.figures))),
        remedy=first.remedy or other.remedy,
        changes=(*first.changes, *other.changes),
    )


def _missing(case: Case) -> Iterable[str]:
    """Not enough evidence: what to look for."""
    if case.log is None:
        yield "the engine's log"
    if case.architecture is None:
        yield "the model (--model): without it nothing can be computed"
    elif case.plan is None:
        yield "the bytes of the KV cache: the start of the log, --available, or --card"
    if case.load.concurrency is None or not case.load.tokens:
        yield "the load (--concurrency, --prompt, --output): whether it fits depends on it"
    if case.log is not None and not (case.course and case.course.states):
        yield "a line that tells how many run and wait, such as vLLM's 'Running: ... Waiting: ...'"
