"""Why requests wait for the pool: arithmetic of the plan, and what the log's states show."""

from collections.abc import Iterator

from kvroom.explain.case import Case
from kvroom.explain.course import State
from kvroom.explain.finding import (
    ARITHMETIC,
    CIRCUMSTANCE,
    SAYS,
    Change,
    Figure,
    Finding,
    Quote,
    logged,
    quote,
)
from kvroom.explain.shares import Shares, shares
from kvroom.records import Fact

FULL = 0.9
"""A pool is full enough to keep requests out from this usage on: the next one needs more than a
token."""
MOSTLY = 0.5


def page_unification(case: Case) -> Iterator[Finding]:
    """Requests are shorter than the page that the state of other layers forces on them.

    vLLM gives every group of layers pages of the same bytes, so the page of the attention layers is
    as large as one layer's recurrent state. A request shorter than that takes a whole page all the
    same, and a cache of fewer bits makes the page longer in tokens, not the request smaller: the
    number of requests stays. Source: v1/core/kv_cache_utils.py, platforms/interface.py (0.31).
    """
    block, tokens = case.fact("kv_block_tokens"), case.load.tokens
    if case.engine != "vllm" or block is None or not isinstance(block.value, float):
        return
    if not block.text.startswith("Setting") and "Setting attention block size" not in block.text:
        return
    if not tokens or tokens > block.value or case.load.conversations:
        return
    used = tokens / block.value
    claim = (
        f"the state of the recurrent layers makes a page {block.value:,.0f} tokens long, and a "
        f"request of {tokens:,} tokens fills {used:.0%} of its page"
    )
    claim += "; a smaller KV dtype only makes the page longer, so no more requests fit"
    fit, running, state = case.fit, _said(case), case.state("most_waiting")
    if fit is not None and fit.waiting:
        claim += f": {fit.running} run, {fit.waiting} {_wait(fit.waiting)}"
    elif state is not None:
        claim += f": {state.running:.0f} run, {state.waiting:.0f} {_wait(int(state.waiting))}"
    yield Finding(
        cause="page-unification",
        claim=claim,
        confidence="certain" if fit is not None and fit.waiting else "likely",
        decides=SAYS,
        quotes=(*quote(block), *running),
        figures=(*logged(block), *shares(case).figures),
        remedy="more memory for the pool, or as many requests at once as run",
        changes=(_dtype_of_the_model(case),),
        rule="page_unification",
    )


def _dtype_of_the_model(case: Case) -> Change:
    """Leave it at auto, or go back to it."""
    because = "fewer bits cost accuracy, and on some cards speed, and admit nobody here"
    if not case.quantised:
        return Change(setting="kv_cache_dtype", now="auto", to="", because=because, effect="none")
    return Change(
        setting="kv_cache_dtype",
        now=case.settings.kv_cache_dtype or "",
        to="auto",
        value="auto",
        because=because,
        effect="as many run as now, with the model's own data type and kernels",
        verify="the page of the 'Setting attention block size' line is shorter",
    )


def _said(case: Case) -> tuple[Quote, ...]:
    state = case.state("most_waiting")
    return (Quote(state.source, state.text),) if state else ()


def _wait(count: int) -> str:
    return "waits" if count == 1 else "wait"


def state_fixed_cost(case: Case) -> Iterator[Finding]:
    """What a request takes before its first token is the larger part of what it takes at all.

    Recurrent and convolution states have the same size for a short request as for a long one.
    Engines keep them in slots of their own, taken before the pool (TensorRT-LLM, SGLang,
    llama.cpp), or in pages of the pool, some for every group of layers (vLLM).
    """
    found, fit = shares(case), case.fit
    if fit is None or case.plan is None:
        return
    pages = found.state_pages
    if fit.waiting and fit.binds in ("kv", "state") and pages >= MOSTLY * fit.blocks_per_request:
        yield Finding(
            cause="state-fixed-cost",
            claim=f"{pages} of the {fit.blocks_per_request} pages of a request are states: "
            f"{fit.running} requests of any such length fit, {fit.waiting} "
            f"{_wait(fit.waiting)}",
            confidence="certain",
            quotes=_sizes(case),
            figures=found.figures,
            remedy=f"the pool needs {1 + (fit.running + fit.waiting) * fit.blocks_per_request} "
            "pages for all of them: more memory for it, or as many slots as fit",
            rule="state_fixed_cost",
        )
    room = case.plan.room
    if fit.waiting and room.fixed_bytes and room.fixed_bytes >= 0.25 * room.pool_bytes:
        yield _slots_taken(case, found)


def _slots_taken(case: Case, found: Shares) -> Finding:
    assert case.plan is not None
    room = case.plan.room
    claim = (
        f"{room.state_slots} state slots take {room.fixed_bytes / 2**30:.2f} GiB of the pool "
        "before the first token"
    )
    allocated = case.fact("kv_allocated_tokens")
    over = 0.0
    if allocated is not None and isinstance(allocated.value, float):
        over = allocated.value - room.tokens
        if over > 0:
            claim += (
                f"; the log's {allocated.value:,.0f} tokens count them as blocks and overstate by "
                f"{over:,.0f} ({room.state_slots} x {room.block_tokens})"
            )
    return Finding(
        cause="state-fixed-cost",
        claim=claim,
        confidence="certain",
        decides=CIRCUMSTANCE,
        quotes=quote(allocated, case.fact("kv_fixed_bytes")),
        figures=(*found.figures, *logged(allocated)),
        remedy="fewer slots, each of which brings its state's bytes back to the tokens",
        rule="state_fixed_cost",
    )


def kv_exhausted(case: Case) -> Iterator[Finding]:
    """The pool holds fewer requests of this length than are there, so the others wait.

    By the plan: usable pages divided by the pages of a request at its end. By the log: requests
    wait while the pool is nearly full, or wait although nothing runs, which only happens when the
    first in the queue can never be admitted.
    """
    fit, state = case.fit, case.state("most_waiting")
    stuck = state is not None and state.waiting > 0 and state.running == 0
    full = state is not None and (state.kv_cache_usage or 0) >= FULL
    if fit is not None and fit.binds in ("kv", "window", "state"):
        if shares(case).state_pages >= MOSTLY * max(1, fit.blocks_per_request) and not stuck:
            return
        yield _planned(case)
    elif stuck or full:
        assert state is not None
        yield _seen(case, state, stuck)
    else:
        yield from _no_null_block(case)


def _planned(case: Case) -> Finding:
    fit, plan = case.fit, case.plan
    assert fit is not None
    assert plan is not None
    room = plan.room
    total = fit.running + fit.waiting
    pool = next((p for p in room.pools if p.limit == fit.pool), room.pools[0])
    if fit.running:
        claim = (
            f"{fit.running} of {total} requests fit into the KV cache, {fit.waiting} "
            f"{_wait(fit.waiting)} for them: a request of {case.load.tokens:,} tokens ends with "
            f"{fit.blocks_per_request} pages, and {pool.usable:,} can be had"
        )
    else:
        claim = (
            f"a request of {case.load.tokens:,} tokens is never admitted: it needs "
            f"{max(fit.admission_blocks, fit.blocks_per_request):,} pages, and {pool.usable:,} "
            "can be had"
        )
    return Finding(
        cause="kv-exhausted",
        claim=claim,
        confidence="certain",
        decides=SAYS if case.state("most_waiting") else ARITHMETIC,
        quotes=(*_sizes(case), *_said(case)),
        figures=shares(case).figures,
        remedy="more room for each request: a cache of fewer bits, more memory, or fewer slots "
        "where those take memory; else as many requests at once as fit",
        rule="kv_exhausted",
    )


def _seen(case: Case, state: State, stuck: bool) -> Finding:
    usage = f"{state.kv_cache_usage:.1%}" if state.kv_cache_usage is not None else "unknown"
    claim = (
        f"{state.waiting:.0f} {_wait(int(state.waiting))} while nothing runs: the first in the "
        "queue asks for more pages than the pool can ever give it"
        if stuck
        else f"{state.running:.0f} run and {state.waiting:.0f} {_wait(int(state.waiting))} while "
        f"the pool is {usage} full"
    )
    return Finding(
        cause="kv-exhausted",
        claim=claim,
        confidence="certain" if stuck else "likely",
        decides=SAYS,
        quotes=(*_said(case), *_sizes(case)),
        figures=(
            Figure(name="running", value=state.running, how=state.how, source=str(state.source)),
            Figure(name="waiting", value=state.waiting, how=state.how, source=str(state.source)),
        ),
        remedy="a larger pool, shorter requests, or a release that admits a long prompt in pieces"
        if stuck
        else "a larger pool or smaller requests; else as many requests at once as run",
        settle=_to_compute(case),
        rule="kv_exhausted",
    )


def _to_compute(case: Case) -> str:
    """What is missing for the arithmetic."""
    if case.plan is not None:
        return ""
    if case.architecture is None:
        return "give --model, and how many fit is arithmetic"
    return "the bytes of the pool (--available, or the log from its start), and it is arithmetic"


def _no_null_block(case: Case) -> Iterator[Finding]:
    """One block of vLLM's pool is nobody's, so room for exactly one request is room for none."""
    most, length = case.fact("max_concurrency"), case.settings.max_len
    if case.engine != "vllm" or most is None or not isinstance(most.value, float) or not length:
        return
    if 1.0 <= most.value < 1.01 and case.load.tokens > 0.95 * length:
        yield Finding(
            cause="kv-exhausted",
            claim=f"the pool holds {most.value:.2f} requests of {length:,} tokens, and one of its "
            "blocks is reserved: a request that needs them all waits for ever",
            confidence="likely",
            quotes=quote(most),
            figures=(*logged(most), *shares(case).figures),
            remedy="max_len shorter by one block, or a little more memory, until the line says "
            "1.02x or more",
            rule="kv_exhausted",
        )


def _sizes(case: Case) -> tuple[Quote, ...]:
    names = ("available_bytes", "kv_blocks", "kv_allocated_tokens", "kv_tokens", "max_concurrency")
    facts: list[Fact | None] = [case.fact(name) for name in names]
    return quote(*facts)
