"""Why a start fails or leaves too little: what does not fit, and what took its place."""

from collections.abc import Iterator

from kvroom.explain.case import Case
from kvroom.explain.finding import CIRCUMSTANCE, SAYS, Change, Figure, Finding, logged, quote
from kvroom.plan.question import Refused
from kvroom.units import show_bytes

LARGE_STEP = 16_384
SMALL_POOL = 0.12
"""Of a card: what is left there is little beside what a step takes."""
LEFT_UNUSED = 5 << 30
HALF = 0.5
MANY_BYTES = 16 << 30
"""States of this size do not leave room on most cards."""


def length_does_not_fit(case: Case) -> Iterator[Finding]:
    """The pool holds less than one request of the greatest length.

    An engine that must be able to serve that length refuses to start; one that does not look starts
    and refuses such requests later. The plan says the same before the start.
    """
    most, length = case.fact("max_concurrency"), case.settings.max_len
    if most is not None and isinstance(most.value, float) and most.value < 1:
        yield Finding(
            cause="oom-at-start",
            claim=f"the pool holds {most.value:.2f} requests of {length or 'the greatest'} tokens, "
            "so not even one",
            confidence="certain",
            decides=SAYS,
            quotes=quote(most),
            figures=logged(most),
            remedy="a shorter max_len, or more memory for the pool",
            rule="length_does_not_fit",
        )
    elif isinstance(case.planned, Refused) and case.failed:
        yield Finding(
            cause="oom-at-start",
            claim=f"as planned it does not start: {case.planned.why}",
            confidence="likely",
            quotes=quote(case.fact("error")),
            remedy=case.planned.hint,
            rule="length_does_not_fit",
        )


def cache_above_card(case: Case) -> Iterator[Finding]:
    """The cache that slots and lengths ask for is larger than the card.

    llama.cpp and Ollama allocate the whole cache when they start. What does not fit moves to the
    processor's memory, layer by layer with its weights, or the start fails.
    """
    if case.plan is None or case.adapter.takes_what_is_left or case.card_bytes is None:
        return
    wanted = case.plan.room.pool_bytes
    if wanted <= case.card_bytes:
        return
    length = case.plan.room.max_len
    yield Finding(
        cause="oom-at-start",
        claim=f"a context of {length:,} tokens in {case.plan.room.slots} slots asks for "
        f"{show_bytes(wanted)} of KV cache, and the card has {show_bytes(case.card_bytes)}",
        confidence="certain",
        quotes=quote(case.fact("kv_bytes"), case.fact("context_tokens")),
        figures=(
            Figure(
                name="kv_bytes",
                value=wanted,
                unit="bytes",
                how="planned",
                arithmetic=f"{case.plan.room.tokens:,} tokens x "
                f"{case.plan.room.bytes_per_token:,} B",
            ),
        ),
        remedy="a shorter context, fewer slots, or a cache of fewer bits",
        rule="cache_above_card",
    )


def step_takes_pool(case: Case) -> Iterator[Finding]:
    """A very large step takes its activations out of what the pool would have had.

    The engine measures the peak of one step of ``batch_tokens`` before it sizes the pool. Source:
    v1/worker/gpu_worker.py (determine_available_memory).
    """
    step, pool = case.settings.batch_tokens, case.fact("available_bytes")
    if step is None or step < LARGE_STEP or pool is None or not isinstance(pool.value, float):
        return
    card = case.number("card_bytes") or case.card_bytes
    if case.engine != "vllm" or card is None or pool.value > SMALL_POOL * card:
        return
    yield Finding(
        cause="oom-at-start",
        claim=f"a step of {step:,} tokens leaves {show_bytes(pool.value)} for the KV cache on a "
        f"card of {show_bytes(card)}: with a longer max_len it does not start",
        confidence="likely",
        decides=SAYS,
        quotes=quote(pool),
        figures=logged(pool),
        remedy="a smaller batch_tokens; prompts are then computed in more steps",
        changes=(
            Change(
                setting="batch_tokens",
                now=str(step),
                to="8192",
                value=8192,
                because="activations of a step grow with it, and come first",
                effect="a larger pool; how much larger only a start shows",
                price="long prompts take more steps",
                verify="'Available KV cache memory' is larger",
            ),
        ),
        rule="step_takes_pool",
    )


def pool_left_small(case: Case) -> Iterator[Finding]:
    """The pool came out smaller than one request while memory of the card stayed unused.

    SGLang's fraction is a share of what is free when it starts, weights included: what others hold
    at that moment, or a draft model's weights, comes off the pool alone.
    """
    tokens = case.log.lowest("kv_tokens") if case.log else None
    free = case.log.highest("free_bytes") if case.log else None
    length = case.settings.max_len
    if tokens is None or free is None or not length or case.engine != "sglang":
        return
    if not isinstance(tokens.value, float) or not isinstance(free.value, float):
        return
    if tokens.value >= length or free.value < LEFT_UNUSED:
        return
    yield Finding(
        cause="oom-at-start",
        claim=f"the pool was sized at {tokens.value:,.0f} tokens, less than one request of "
        f"{length:,}, while {show_bytes(free.value)} of the card stayed free",
        confidence="likely",
        decides=SAYS,
        quotes=quote(tokens, free),
        figures=(*logged(tokens), *logged(free)),
        remedy="a larger memory_fraction (--mem-fraction-static), after what else holds the card "
        "is gone",
        rule="pool_left_small",
    )


def slots_fill_card(case: Case) -> Iterator[Finding]:
    """State slots alone are larger than what the card can give, so it ended while it started.

    TensorRT-LLM allocates a recurrent state for each of ``max_batch_size`` requests at once, and
    2048 is its default.
    """
    states, slots = case.architecture.states if case.architecture else (), case.slots
    ended = case.fact("wrapped_error") or case.fact("error")
    if case.engine != "trtllm" or not states or not slots or ended is None:
        return
    assert case.architecture is not None
    ssm = 4 if case.architecture.ssm_dtype == "float32" else 2
    each = sum(s.layers * (s.conv() * 2 + s.ssm() * ssm) for s in states)
    card = case.number("card_bytes") or case.card_bytes
    if slots * each < (HALF * card if card else MANY_BYTES):
        return
    figure = Figure(
        name="state_bytes",
        value=float(slots * each),
        unit="bytes",
        how="planned",
        arithmetic=f"{slots:,} x {each:,} B",
    )
    yield Finding(
        cause="state-fixed-cost",
        claim=f"{slots:,} state slots ask for {show_bytes(slots * each)} before the first request",
        confidence="likely",
        quotes=quote(ended),
        figures=(figure,),
        remedy="as many slots as requests are expected at once",
        changes=(
            Change(
                setting="slots",
                now=str(slots),
                to=str(case.load.concurrency or 32),
                value=case.load.concurrency or 32,
                because="a state is allocated for every slot",
                effect=f"{show_bytes((slots - 32) * each)} less",
                price="no more than this run at once, the others queue",
                verify="the 'fixed cost' in its sizing line is smaller",
            ),
        ),
        rule="slots_fill_card",
    )
    yield Finding(
        cause="oom-at-start",
        claim="the start ended, and what is allocated first does not fit",
        confidence="likely",
        decides=CIRCUMSTANCE,
        quotes=quote(ended),
        rule="slots_fill_card",
    )
