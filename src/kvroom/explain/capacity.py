"""Planned beside logged beside observed, for each figure of capacity, and where they differ."""

from collections.abc import Iterator
from typing import Any

import msgspec

from kvroom.explain.case import Case
from kvroom.explain.finding import Figure, Finding, Quote, logged, quote
from kvroom.records import Fact

COUNTED = ("running", "waiting")
SHORT = {"running": "most_running", "waiting": "most_waiting"}
CLOSE = 0.01


class Capacity(msgspec.Struct, frozen=True, kw_only=True):
    """One figure from three sides; None where a side does not tell."""

    name: str
    planned: float | None = None
    logged: float | None = None
    source: str = ""
    observed: float | None = None
    unit: str = ""
    agrees: bool | None = None


def capacities(case: Case) -> list[Capacity]:
    """The figures that at least one side tells."""
    return [*_pool(case), *_longest(case), *_requests(case)]


def _pool(case: Case) -> Iterator[Capacity]:
    checks = {check.expected.fact: check for check in (case.plan.checks if case.plan else ())}
    for name in ("kv_block_tokens", "kv_blocks", "kv_tokens", "kv_allocated_tokens", "kv_bytes",
                 "kv_fixed_bytes", "max_concurrency", "state_slots"):  # fmt: skip
        check, fact = checks.get(name), case.fact(name)
        value = check.expected.value * check.expected.scale if check else _planned(case, name)
        said = fact.value if fact and isinstance(fact.value, float) else None
        if value is None and said is None:
            continue
        yield Capacity(
            name=name,
            planned=value,
            logged=said,
            source=str(fact.source) if fact and said is not None else "",
            unit=fact.unit if fact else "bytes" if name.endswith("bytes") else "",
            agrees=_agrees(name, value, said, check.agrees if check else None),
        )


def _planned(case: Case, name: str) -> float | None:
    if case.plan is None:
        return None
    room = case.plan.room
    figures = {
        "kv_block_tokens": room.block_tokens,
        "kv_blocks": room.blocks,
        "kv_tokens": room.tokens,
        "state_slots": room.state_slots or None,
    }
    return figures.get(name)


def _longest(case: Case) -> Iterator[Capacity]:
    """What the longest request takes, and what the pool holds in all by that: vLLM prints neither,
    and the tokens that it prints of a hybrid model are fewer (before 0.20.1) or are not shared."""
    most, length = case.number("max_concurrency"), case.settings.max_len
    blocks = case.plan.room.blocks if case.plan else None
    planned = case.plan.room.max_concurrency if case.plan else None
    if case.engine != "vllm" or not length:
        return
    as_logged = most is None or planned is None or abs(planned - most) <= CLOSE * most
    if blocks and planned and as_logged:
        yield Capacity(name="pages_of_longest", planned=round(blocks / planned), unit="blocks")
    if most or planned:
        yield Capacity(
            name="tokens_of_longest",
            planned=round(planned * length) if planned else None,
            logged=round(most * length) if most else None,
            unit="tokens",
        )


def _agrees(name: str, planned: float | None, said: float | None, checked: bool | None) -> Any:
    if checked is not None or planned is None or said is None or name == "kv_tokens":
        return checked
    return planned == said


def _requests(case: Case) -> Iterator[Capacity]:
    fit, live = case.fit, None
    if case.measured is not None and case.level is not None:
        live = case.measured.live.get(case.level)
    for name in COUNTED:
        state = case.state(SHORT[name])
        planned = getattr(fit, name) if fit else None
        observed = getattr(live, f"{name}_max") if live else None
        said = getattr(state, name) if state and live is None else None
        if planned is None and observed is None and said is None:
            continue
        seen = said if observed is None else observed
        yield Capacity(
            name=name,
            planned=planned,
            logged=said,
            source=str(state.source) if state and said is not None else "",
            observed=observed,
            unit="requests",
            agrees=None if seen is None else _as_planned(case, name, seen),
        )


def _as_planned(case: Case, name: str, seen: float) -> bool | None:
    """Requests that are let in and pushed out again are counted as running for a while; those that
    wait while prompts are read are counted as waiting."""
    fit = case.fit
    if fit is None:
        return None
    if name == "running":
        return fit.running <= seen <= fit.running + fit.preempted
    return seen <= fit.waiting or not fit.waiting


def plan_differs(case: Case) -> Iterator[Finding]:
    """What the plan expects and what the engine's log says are not the same.

    Either the plan was asked with other settings than the engine was started with, or the release
    computes it otherwise than the one whose source the plan follows, or something on the card took
    memory that the plan does not know of.
    """
    for check in case.plan.checks if case.plan else ():
        fact: Fact | None = check.logged
        if check.agrees is not False or fact is None or not isinstance(fact.value, float):
            continue
        yield Finding(
            cause="plan-differs",
            claim=f"the plan expects {check.expected.wording} to be {check.expected.value:,}, the "
            f"log says {fact.value / check.expected.scale:,.10g}",
            confidence="possible",
            quotes=quote(fact),
            figures=logged(fact),
            settle="the release (--engine-version), and every option the engine was started with "
            "(--flags): most likely one of them is another than was given",
            rule="plan_differs",
        )
        return
    yield from _seen_otherwise(case)


def _seen_otherwise(case: Case) -> Iterator[Finding]:
    """More or fewer run than planned, though the sizes that the log prints are as planned."""
    running = next((one for one in _requests(case) if one.name == "running"), None)
    state = case.state("most_running")
    if running is None or running.agrees is not False or state is None or case.fit is None:
        return
    if not case.fit.waiting and case.state("most_waiting") is None:
        return
    more = state.running > case.fit.running + case.fit.preempted
    yield Finding(
        cause="plan-differs",
        claim=f"the plan lets {case.fit.running} run at once, {state.running:.0f} were seen",
        confidence="possible",
        quotes=(Quote(state.source, state.text),),
        figures=(
            Figure(name="running", value=state.running, how=state.how, source=str(state.source)),
            Figure(name="running", value=case.fit.running, how="planned"),
        ),
        settle="whether prompts share their beginning (prefix_cache off), or are shorter than said"
        if more
        else "how many came at once, and whether the engine was asked by others as well",
        rule="plan_differs",
    )
