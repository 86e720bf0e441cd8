"""What to change, ranked: what the plan shows to help, its price, and how to see that it did."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from kvroom.explain.case import Case
from kvroom.explain.curve import Curve, curve
from kvroom.explain.finding import Change, Finding
from kvroom.plan.question import Gain
from kvroom.units import show_bytes

PRICES = {
    "slots": "more requests share each step, so each stream is slower",
    "max_len": "longer requests are refused",
    "prefix_cache": "equal beginnings are computed again every time",
    "kv_memory": "the memory itself",
    "memory_fraction": "less is left for whatever else needs the card, and a start may fail",
    "text_only": "pictures and sound are refused",
    "speculative_tokens": "a stream that is alone may be slower",
    "kv_cache_dtype": "fewer bits in the cache: answers may change, and on some cards other "
    "kernels are chosen; compare both before keeping it",
}
"""Settings, the cheapest first, and what they cost."""
FEWER_SLOTS = "no more than this run at once, the others queue"
CHEAPEST = list(PRICES)
MOST_TOLD = 2
SPARE = 1
"""Blocks for each request beyond its end: OpenVINO GenAI 2026.4 was seen to push requests out of a
pool that they fill exactly."""
HELD_BACK_BY_ROOM = {
    "kv-exhausted", "state-fixed-cost", "page-unification", "preemption/retraction", "slots-limit",
    "oom-at-start", "single-slot",
}  # fmt: skip
"""Causes that a larger room cures."""


def recommend(case: Case, findings: Sequence[Finding]) -> tuple[Change, ...]:
    """Changes that the evidence supports, the one that lets most requests run first.

    A change that a line of the log itself asks for comes before arithmetic. Nothing is recommended
    that no finding speaks for; with several that help alike the cheaper one is first.
    """
    said = [change for finding in findings for change in finding.changes]
    room = any(finding.cause in HELD_BACK_BY_ROOM for finding in findings)
    planned = list(_planned(case)) if room else []
    alone = [one for one in said if one.to and not _among(one, planned)]
    leave = [one for one in said if not one.to]
    measured = curve(case)
    return tuple(_predicted(one, measured) for one in alone + planned + leave)


def _predicted(change: Change, measured: Curve | None) -> Change:
    """With what the measured curve expects of it."""
    if measured is None or not change.running:
        return change
    speed = measured.tokens_per_s(min(change.running, measured.top.concurrency))
    return msgspec.structs.replace(change, tokens_per_s=speed)


def _among(change: Change, others: Sequence[Change]) -> bool:
    return any(change.setting == other.setting for other in others)


def _planned(case: Case) -> Iterator[Change]:
    """The plan's gains as changes."""
    gains = case.planned.changes if case.planned else ()
    ranked = sorted(gains, key=lambda gain: (-gain.running, CHEAPEST.index(gain.setting)))
    yield from (_change(case, gain) for gain in ranked)
    yield from _pool_option(case)


def _change(case: Case, gain: Gain) -> Change:
    now = _now(case, gain.setting)
    fewer = gain.setting == "slots" and case.slots is not None and gain.value < case.slots
    total = case.load.concurrency or gain.running
    before = "none" if gain.instead_of is None else str(gain.instead_of)
    return Change(
        setting=gain.setting,
        now=_shown(now),
        to=_shown(gain.value),
        value=gain.value,
        because="fewer slots bring the bytes of their states back to the tokens"
        if fewer
        else "more requests of this length fit",
        effect=f"{gain.running} of {total} run at once instead of {before} (planned)",
        price=FEWER_SLOTS if fewer else PRICES[gain.setting],
        verify=_verify(case, gain),
        running=gain.running,
    )


def _now(case: Case, setting: str) -> Any:
    if setting == "speculative_tokens":
        return case.settings.speculative.tokens if case.settings.speculative else 0
    if setting == "slots":
        return case.slots
    return getattr(case.settings, setting)


def _shown(value: Any) -> str:
    if value is None:
        return "its default"
    if isinstance(value, bool):
        return str(value).lower()
    return show_bytes(value) if isinstance(value, int) and value > 1 << 20 else str(value)


def _pool_option(case: Case) -> Iterator[Change]:
    """The engine's own option for the size of the pool, where that is what was set."""
    option, fit, plan = case.adapter.pool_option, case.fit, case.plan
    if plan is None or fit is None or option not in case.options or not fit.waiting:
        return
    running = min(fit.running + fit.waiting, plan.room.slots)
    blocks = running * (fit.blocks_per_request + SPARE)
    if fit.binds == "slots" or blocks <= plan.room.blocks:
        return
    page = plan.room.bytes_per_token * plan.room.block_tokens
    yield Change(
        setting=option,
        now=case.options[option],
        to=str(blocks),
        value=blocks,
        because=f"{running} requests end with {fit.blocks_per_request} blocks each, and "
        "one more each is kept free",
        effect=f"{running} of {fit.running + fit.waiting} run at once instead of {fit.running} "
        "(planned)",
        price=f"{show_bytes((blocks - plan.room.blocks) * page)} of memory",
        verify=f"its log will say KV cache: {blocks:,} blocks",
        running=running,
    )


def _verify(case: Case, gain: Gain) -> str:
    """The figures of the log that change with it."""
    now = {one.wording: one.value for one in (case.plan.room.expected if case.plan else ())}
    new = [one for one in gain.expected if now.get(one.wording) != one.value]
    return "; ".join(f"its log will say {one.wording}: {one.value:,}" for one in new[:MOST_TOLD])
