"""How busy an engine was, told line by line or sample by sample: what matters of it is kept."""

from collections.abc import Iterable

import msgspec

from kvroom.explain.finding import How
from kvroom.records import Sample, Source

STATE = ("running", "waiting", "kv_cache_usage", "prompt_tokens_per_s", "generation_tokens_per_s")
NEARLY_FULL = 0.9


class State(msgspec.Struct, kw_only=True):
    """One moment of an engine, as a line of its log or a sample of its gauges tells it."""

    source: Source
    text: str
    how: How = "logged"
    running: float = 0
    waiting: float = 0
    kv_cache_usage: float | None = None
    prompt_tokens_per_s: float | None = None
    generation_tokens_per_s: float | None = None


class Course(msgspec.Struct, kw_only=True):
    """All of them, put together in bounded memory."""

    states: int = 0
    running_sum: float = 0
    waiting_states: int = 0
    most_running: State | None = None
    most_waiting: State | None = None
    """Of those with equally many waiting, the fullest."""
    fullest: State | None = None
    fell: tuple[State, State] | None = None
    """A nearly full pool, and the next state with fewer running."""
    last: State | None = None


def take(course: Course, state: State | None) -> None:
    """One more moment."""
    if state is None:
        return
    course.states += 1
    course.running_sum += state.running
    course.waiting_states += state.waiting > 0
    before = course.last
    if before and _usage(before) >= NEARLY_FULL and state.running < before.running:
        course.fell = course.fell or (before, state)
    course.last = state
    if course.most_running is None or state.running > course.most_running.running:
        course.most_running = state
    most = course.most_waiting
    if state.waiting and (most is None or _wait(state) > _wait(most)):
        course.most_waiting = state
    if course.fullest is None or _usage(state) > _usage(course.fullest):
        course.fullest = state


def _usage(state: State) -> float:
    return state.kv_cache_usage or 0.0


def _wait(state: State) -> tuple[float, float]:
    return state.waiting, _usage(state)


def sampled(samples: Iterable[tuple[int, Sample]], file: str) -> Course | None:
    """The course by an engine's own gauges, samples with their line numbers; None without any."""
    course = Course()
    for line, sample in samples:
        if "running" in sample.gauges:
            take(course, _state(sample, Source(file, line)))
    return course if course.states else None


def _state(sample: Sample, source: Source) -> State:
    gauges = sample.gauges
    usage = gauges.get("kv_cache_usage")
    used = "" if usage is None else f", KV cache {usage:.1%} full"
    running, waiting = gauges["running"], gauges.get("waiting", 0.0)
    return State(
        source=source,
        text=f"{running:.0f} running, {waiting:.0f} waiting{used}",
        how="observed",
        running=running,
        waiting=waiting,
        kv_cache_usage=usage,
    )
