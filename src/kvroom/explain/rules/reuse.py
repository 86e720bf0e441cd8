"""Prefixes that are not found again."""

from collections.abc import Iterator

from kvroom.explain.case import Case
from kvroom.explain.finding import CIRCUMSTANCE, SAYS, Finding, logged, quote

LARGE_BLOCK = 256
FULL = 0.9


def block_is_quantum(case: Case) -> Iterator[Finding]:
    """Only whole blocks of a prompt are found again, and a hybrid's blocks are long.

    The block of a hybrid model is as long as one layer's state is large. What is not a multiple of
    it is computed again, and so is the last block of a prompt.
    """
    block = case.fact("kv_block_tokens")
    if not case.load.conversations or case.engine != "vllm" or block is None:
        return
    if not isinstance(block.value, float) or block.value < LARGE_BLOCK:
        return
    yield Finding(
        cause="prefix-cache-effect",
        claim=f"a prefix is found again in whole blocks of {block.value:,.0f} tokens, and the last "
        "one never: shorter beginnings are always computed again",
        confidence="likely",
        decides=SAYS,
        quotes=quote(block, case.fact("state_padding_percent")),
        figures=logged(block),
        remedy="the block follows from the state's bytes: fewer guessed tokens and a state of 16 "
        "bits make it shorter, a cache of fewer bits longer",
        rule="block_is_quantum",
    )


def nothing_found(case: Case) -> Iterator[Finding]:
    """Conversations come back, and nothing of them is found although the pool has room."""
    rate, usage = case.fact("prefix_hit_rate_percent"), case.number("kv_cache_usage_percent")
    if not case.load.conversations or rate is None or rate.value != 0.0:
        return
    if usage is not None and usage >= 100 * FULL:
        return
    yield Finding(
        cause="prefix-cache-effect",
        claim="conversations come back, and none of their tokens are found again, while the pool "
        f"is {usage or 0:.0f} % full: blocks behind a window are given away first, and with them "
        "the whole prefix",
        confidence="likely",
        decides=SAYS,
        quotes=quote(rate),
        figures=logged(rate),
        remedy="a release or option that keeps some blocks of windows "
        "(VLLM_PREFIX_CACHE_RETENTION_INTERVAL)",
        rule="nothing_found",
    )


def states_evicted(case: Case) -> Iterator[Finding]:
    """More conversations come back than there are slots for their states.

    A prefix of a hybrid model can only be continued from a kept state. With fewer slots than
    conversations the oldest state is given away, and its tokens alone are worth nothing.
    """
    slots = case.log.lowest("state_slots") if case.log else None
    kept, many = slots.value if slots else None, case.load.conversations
    if not many or not isinstance(kept, float) or kept >= many:
        return
    yield Finding(
        cause="prefix-cache-effect",
        claim=f"{many} conversations come back, and states of {kept:.0f} can be kept: the others "
        "are computed from their beginning",
        confidence="certain",
        decides=CIRCUMSTANCE,
        quotes=quote(slots),
        figures=logged(slots),
        remedy="more state slots (--max-mamba-cache-size, --mamba-full-memory-ratio), paid for "
        "with tokens",
        rule="states_evicted",
    )
