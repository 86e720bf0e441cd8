"""Whether vLLM starts with a pool: one request of full length must fit, and CUDA graphs too."""

from kvroom.engines.vllm.defaults import since, slots
from kvroom.engines.vllm.pages import Pool
from kvroom.errors import InputError
from kvroom.room import Ask

GIB = 1 << 30


def check_length(ask: Ask, made: Pool, length: int) -> None:
    """InputError, with the longest that fits, if one request of this length does not.

    Source: v1/core/kv_cache_utils.py (check_enough_kv_cache_memory). The block that is never given
    away counts since 0.29; before 0.19 other groups than the first did not.
    """
    reserve = 1 if since(ask, 0, 29) else 0
    needed, there = _pages(ask, made, length), made.blocks - reserve
    if needed <= there:
        return
    longest = made.longest(length, reserve)
    hint = f"lower max_len to {longest}, which fits" if longest else "not even one token fits"
    raise InputError(
        f"vLLM does not start: one request of {length} tokens needs "
        f"{needed * made.width / GIB:.2f} GiB of KV cache, and there are "
        f"{(ask.available - reserve * made.width) / GIB:.2f} GiB",
        hint,
    )


def _pages(ask: Ask, made: Pool, length: int) -> int:
    """Block ids that the check asks for."""
    if since(ask, 0, 19) or not since(ask, 0, 14):
        return made.pages(length)
    return made.groups[0].pages(length, made.in_flight)


def check_graphs(ask: Ask, made: Pool) -> None:
    """InputError if full CUDA graphs lack a page of state for a request of the largest batch.

    Source: config/compilation.py, since 0.20.
    """
    number = slots(ask)
    if ask.architecture.states and not ask.on_cpu and since(ask, 0, 20) and number > made.blocks:
        raise InputError(
            f"vLLM does not start: max_num_seqs ({number}) exceeds the {made.blocks} blocks that "
            "hold states, and each request of a CUDA graph needs one",
            f"lower slots (--max-num-seqs) to {made.blocks}",
        )
