"""A log, read once: what it says of itself, how full the engine was, and known failures."""

from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from kvroom.analyse.facts import Told, told
from kvroom.engine import Engine
from kvroom.explain.signatures import Hit, Hits
from kvroom.records import Fact, LogLine, Source

PERCENT = "_percent"
STATE = ("running", "waiting", "kv_cache_usage", "prompt_tokens_per_s", "generation_tokens_per_s")


class State(msgspec.Struct, kw_only=True):
    """One line in which an engine tells how busy it is."""

    source: Source
    text: str
    running: float = 0
    waiting: float = 0
    kv_cache_usage: float | None = None
    prompt_tokens_per_s: float | None = None
    generation_tokens_per_s: float | None = None


class Course(msgspec.Struct, kw_only=True):
    """All such lines of a log, put together in bounded memory."""

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


class Log(msgspec.Struct, frozen=True, kw_only=True):
    """What a log says."""

    file: str
    facts: Mapping[str, Told]
    course: Course
    hits: tuple[Hit, ...]

    def last(self, name: str) -> Fact | None:
        """The last fact of a name."""
        one = self.facts.get(name)
        return one.last if one else None

    def lowest(self, name: str) -> Fact | None:
        """Of a figure the smallest that was said."""
        one = self.facts.get(name)
        return one.lowest if one else None

    def highest(self, name: str) -> Fact | None:
        """Of a figure the largest that was said."""
        one = self.facts.get(name)
        return one.highest if one else None


def read(
    engine: Engine,
    lines: Iterable[LogLine],
    file: str,
    facts: Callable[[Iterable[LogLine], str], Iterator[Fact]] | None = None,
) -> Log:
    """The log of an engine."""
    hits, course = Hits(engine.name, file), Course()
    found = (facts or engine.read_log)(hits.watched(lines), file)
    all_told = told(_followed(found, course))
    return Log(
        file=file,
        facts={one.last.name: one for one in all_told},
        course=course,
        hits=tuple(hits.found()),
    )


def _followed(facts: Iterable[Fact], course: Course) -> Iterator[Fact]:
    """The facts unchanged; those of one line become a state."""
    state: State | None = None
    for fact in facts:
        yield fact
        name = fact.name.removesuffix(PERCENT)
        if name not in STATE or not isinstance(fact.value, float):
            continue
        if state is None or state.source.line != fact.source.line:
            _take(course, state)
            state = State(source=fact.source, text=fact.text)
        setattr(state, name, fact.value / (100 if fact.name.endswith(PERCENT) else 1))
    _take(course, state)


NEARLY_FULL = 0.9


def _take(course: Course, state: State | None) -> None:
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
