"""A log, read once: what it says of itself, how full the engine was, and known failures."""

from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from kvroom.analyse.facts import Told, told
from kvroom.engine import Engine
from kvroom.explain.course import STATE, Course, State, take
from kvroom.explain.signatures import Hit, Hits
from kvroom.records import Fact, LogLine

PERCENT = "_percent"


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
            take(course, state)
            state = State(source=fact.source, text=fact.text)
        setattr(state, name, fact.value / (100 if fact.name.endswith(PERCENT) else 1))
    take(course, state)
