"""The rules, one pure function a cause, in the order of a story."""

from collections.abc import Callable, Iterator

from kvroom.explain.capacity import plan_differs
from kvroom.explain.case import Case
from kvroom.explain.finding import Finding
from kvroom.explain.rules.known import known_failure, own_error
from kvroom.explain.rules.room import kv_exhausted, page_unification, state_fixed_cost

Rule = Callable[[Case], Iterator[Finding]]

STORY: tuple[Rule, ...] = (
    known_failure,
    own_error,
    page_unification,
    state_fixed_cost,
    kv_exhausted,
    plan_differs,
)
"""What is asked of every case."""

ELSE: tuple[Rule, ...] = ()
"""What is asked where the story has found nothing."""
