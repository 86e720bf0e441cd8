"""Requests pushed out after they were let in, and what is reserved for layers with windows."""

from bisect import bisect_right
from collections.abc import Iterator

from kvroom.explain.case import Case
from kvroom.explain.course import State
from kvroom.explain.finding import (
    ARITHMETIC,
    CIRCUMSTANCE,
    SAYS,
    Figure,
    Finding,
    Quote,
    logged,
    quote,
)
from kvroom.explain.shares import shares

OVERFULL = 0.99
MOSTLY = 2 / 3
UNEVEN = 8
LONG = 16_384
"""Tokens of a prompt from which the finest group of pages counts."""
WASTE_PERCENT = 25.0


def pushed_out(case: Case) -> Iterator[Finding]:
    """Requests are pushed out of a pool that they outgrew, and computed again later.

    An engine that lets in what fits now, not what will fit at the end, runs full when the answers
    grow. Requests of equal length that started together cross a page boundary together, so the pool
    that held them all is short by as many pages as there are requests, in one step.
    """
    counted, fell = case.fact("preempted"), case.course.fell if case.course else None
    state = case.state("fullest")
    if case.live is not None and case.live.preempted:
        claim = f"{case.live.preempted:,.0f} preemptions by the engine's own counter"
        yield _pushed(case, claim, _moment(state), SAYS)
    elif counted is not None and isinstance(counted.value, float) and counted.value > 0:
        yield _pushed(case, f"{counted.value:,.0f} preemptions", quote(counted), SAYS)
    elif fell is not None and fell[1].waiting > fell[0].waiting:
        before, after = fell
        lines = (Quote(before.source, before.text), Quote(after.source, after.text))
        yield _pushed(
            case,
            f"{before.running:.0f} ran while the pool was {before.kv_cache_usage or 0:.1%} full, "
            f"then {after.running:.0f}, with {after.waiting:.0f} back in the queue",
            lines,
            SAYS,
        )
    elif case.engine == "sglang" and state and (state.kv_cache_usage or 0) >= OVERFULL:
        claim = f"the pool is {state.kv_cache_usage:.0%} full while {state.running:.0f} decode"
        yield _pushed(case, claim, (Quote(state.source, state.text),), SAYS)
    elif case.fit is not None and case.fit.preempted:
        fit = case.fit
        claim = f"{fit.running + fit.preempted} are let in, and {fit.preempted} of them do not fit"
        yield _pushed(case, claim + " when all have grown", (), ARITHMETIC)


def _moment(state: State | None) -> tuple[Quote, ...]:
    return (Quote(state.source, state.text),) if state else ()


def _pushed(case: Case, what: str, quotes: tuple[Quote, ...], decides: int) -> Finding:
    state = case.state("fullest")
    return Finding(
        cause="preemption/retraction",
        claim=f"{what}: requests that grow are pushed out and their tokens computed again",
        confidence="certain" if decides == SAYS else "likely",
        decides=decides,
        quotes=quotes,
        figures=shares(case).figures + (logged(case.fact("running")) if state is not None else ()),
        remedy="as many requests at once as fit to their end (slots), or a larger pool",
        settle="" if decides == SAYS else "the counter of preemptions while it serves",
        rule="pushed_out",
    )


def overcommitted(case: Case) -> Iterator[Finding]:
    """TensorRT-LLM was told to let in requests whose end may not fit.

    ``MAX_UTILIZATION`` admits by what is needed now and pauses requests when the pool is full; what
    a paused one had computed is lost. ``GUARANTEED_NO_EVICT`` admits by the end.
    """
    policy = any("MAX_UTILIZATION" in text for pair in case.options.items() for text in pair)
    asked = case.load.concurrency or 0
    if not (policy or case.overcommit) or asked < 2:
        return
    if case.fit is not None and not case.fit.waiting:
        return
    yield Finding(
        cause="preemption/retraction",
        claim=f"with MAX_UTILIZATION requests are let in whose end does not fit: of {asked} some "
        "are paused as the others grow, and computed again",
        confidence="certain" if case.fit else "likely",
        quotes=quote(case.fact("kv_bytes"), case.fact("kv_tokens")),
        figures=shares(case).figures,
        remedy="GUARANTEED_NO_EVICT, unless answers end much earlier than allowed",
        settle=""
        if case.fit
        else "the model and the size of the pool (--model, the log's sizing "
        "lines): whether all of them fit is arithmetic",
        rule="overcommitted",
    )


def never_admitted(case: Case) -> Iterator[Finding]:
    """A prompt longer than some length is never let in, though the pool is said to hold more.

    Concurrency is printed for requests of full length whose windows have moved on. To be let in, a
    whole prompt needs its pages in every group of layers at once, those with a window included.
    """
    plan = case.plan
    if plan is None or case.engine != "vllm" or case.load.prompt is not None:
        return
    if not case.load.concurrency or (plan.room.max_concurrency or 0) < 1:
        return
    pool = plan.room.pools[0]
    lengths = range(plan.room.max_len)
    longest = bisect_right(lengths, pool.usable, key=lambda length: pool.admission(length, 1)) - 1
    if longest >= 0.99 * plan.room.max_len:
        return
    yield Finding(
        cause="kv-exhausted",
        claim=f"a prompt of more than {longest:,} tokens is never let in: it would need more than "
        f"the {pool.usable:,} pages there are in all groups of layers together",
        confidence="likely",
        quotes=quote(case.fact("kv_tokens"), case.fact("max_concurrency")),
        figures=(
            *shares(case).figures,
            Figure(name="longest_admitted_tokens", value=longest, how="planned"),
        ),
        remedy="a larger pool, or a release that lets a long prompt in piece by piece",
        settle="a line with Waiting: 1 while Running: 0",
        rule="never_admitted",
    )


def reserve_of_windows(case: Case) -> Iterator[Finding]:
    """Layers that reach back only a little reserve a whole step for every request.

    A window's pages are freed after the step that leaves them behind, so each request must be able
    to hold its window and one step of tokens (two with asynchronous scheduling). With a large step
    and a short window the reserve is the larger part of a request. Source: v1/core/
    single_type_kv_cache_manager.py and kv_cache_interface.py (max_memory_usage_bytes).
    """
    shape, step = case.architecture, case.settings.batch_tokens
    length = case.settings.max_len or (shape.max_len if shape else None)
    if case.engine != "vllm" or shape is None or not step or not length:
        return
    in_flight = step * (2 if case.is_async else 1)
    short = [a for a in shape.attention if a.window]
    reserved = sum(
        min(length, (a.window or 0) - 1 + in_flight) * a.layers * a.elements() for a in short
    )
    whole = reserved + sum(
        length * a.layers * a.elements() for a in shape.attention if not a.window
    )
    if not short or reserved < MOSTLY * whole:
        return
    share = reserved / whole
    yield Finding(
        cause="state-fixed-cost",
        claim=f"{share:.0%} of what a request of {length:,} tokens must be able to hold is the "
        f"reserve of layers with windows of {min(a.window or 0 for a in short):,} and more tokens "
        f"for {in_flight:,} tokens in flight",
        confidence="likely",
        quotes=quote(case.fact("kv_tokens"), case.fact("max_concurrency")),
        figures=(
            Figure(name="in_flight_tokens", value=in_flight, how="planned",
                   arithmetic=f"{step:,} x {in_flight // step}"),
            Figure(name="reserve_share", value=round(share, 3), how="planned"),
        ),
        remedy="a smaller batch_tokens: the reserve shrinks with it",
        rule="reserve_of_windows",
    )  # fmt: skip


def uneven_groups(case: Case) -> Iterator[Finding]:
    """One group of layers has far shorter pages than the others, and a long prompt needs many.

    Pages of all groups are equally large and come from one pool. A group whose page holds few
    tokens takes that many more of them for each prompt, or for its window and the step in flight.
    """
    told = case.fact("group_block_tokens")
    if told is None or (case.load.prompt or 0) < LONG:
        return
    sizes = [int(word) for word in str(told.value).replace(",", " ").split() if word.isdigit()]
    if len(sizes) < 2 or max(sizes) < UNEVEN * min(sizes):
        return
    pages = -(-(case.load.prompt or 0) // max(sizes))
    yield Finding(
        cause="kv-exhausted",
        claim=f"a group of layers has pages of {min(sizes)} tokens beside {max(sizes)} in others: "
        f"{pages:,} pages of the long ones for a prompt of {case.load.prompt:,} tokens, and up to "
        f"{max(sizes) // min(sizes)} times as many of the short",
        confidence="likely",
        quotes=quote(told),
        remedy="a smaller batch_tokens, a shorter prompt, or a larger pool",
        settle="a line with Waiting: 1 while Running: 0, and the number of blocks",
        rule="uneven_groups",
    )


def drafts_hold_states(case: Case) -> Iterator[Finding]:
    """Each request of a hybrid model holds a state for every guessed token beside its own.

    vLLM keeps ``1 + num_speculative_tokens`` state pages for each group of recurrent layers, so
    that a refused guess can be undone; a drafter with few layers of its own adds groups that are
    mostly padding. Source: v1/kv_cache_interface.py (MambaSpec), v1/core/kv_cache_utils.py.
    """
    waste, guessed = case.fact("padding_waste_percent"), case.settings.speculative
    asked = case.load.concurrency or 0
    if case.engine != "vllm" or guessed is None or not case.hybrid or asked < 2:
        return
    if waste is None or not isinstance(waste.value, float) or waste.value < WASTE_PERCENT:
        return
    yield Finding(
        cause="state-fixed-cost",
        claim=f"with {guessed.tokens} guessed tokens a request holds {1 + guessed.tokens} state "
        f"pages in every group, and padding wastes up to {waste.value:.0f} % of some: that, not "
        "the length of the requests, says how many run",
        confidence="likely",
        decides=CIRCUMSTANCE,
        quotes=quote(case.fact("padding_layers"), waste, case.fact("available_bytes")),
        figures=(*logged(waste), *logged(case.fact("padding_layers"))),
        remedy="fewer guessed tokens, or none",
        settle="a line with Running: and Waiting: under this load, and the number of blocks",
        rule="drafts_hold_states",
    )
