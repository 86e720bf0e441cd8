"""The rules, one pure function a cause, in the order of a story."""

from collections.abc import Callable, Iterator

from kvroom.explain.capacity import plan_differs
from kvroom.explain.case import Case
from kvroom.explain.finding import Finding
from kvroom.explain.rules import (
    cold,
    fine,
    known,
    limits,
    measured,
    options,
    pressure,
    reuse,
    room,
    start,
)

Rule = Callable[[Case], Iterator[Finding]]

STORY: tuple[Rule, ...] = (
    measured.client_too_late,
    measured.wrong_lengths,
    measured.truncated_prompts,
    known.known_failure,
    known.own_error,
    start.length_does_not_fit,
    start.cache_above_card,
    start.step_takes_pool,
    start.pool_left_small,
    start.slots_fill_card,
    options.known_to_fail,
    options.unknown_variable,
    options.layers_on_host,
    room.page_unification,
    room.state_fixed_cost,
    pressure.reserve_of_windows,
    pressure.drafts_hold_states,
    limits.spare_states,
    pressure.pushed_out,
    pressure.overcommitted,
    room.kv_exhausted,
    pressure.never_admitted,
    pressure.uneven_groups,
    limits.slots_limit,
    limits.queue_at_slots,
    limits.context_divided,
    limits.one_block_a_step,
    limits.prompts_fill_steps,
    limits.graph_miss,
    reuse.block_is_quantum,
    reuse.nothing_found,
    reuse.states_evicted,
    cold.cold_start,
    options.sampling_on_host,
    measured.single_slot,
    measured.several_tokens_per_chunk,
    measured.speculative_decoding,
    measured.sampling_asked,
    measured.warm_up,
    measured.host_noise,
    plan_differs,
)
"""What is asked of every case."""

ELSE: tuple[Rule, ...] = (
    options.quantised_without_gain,
    measured.still_grows,
    fine.client_limited,
    fine.printed_per_group,
    fine.as_planned,
    fine.bytes_per_token_agree,
    fine.states_agree,
)
"""What is asked where the story has found nothing."""
