"""What a plan is asked, and what it answers."""

from typing import Any

import msgspec

from kvroom.checkpoint.read import Checkpoint
from kvroom.fit import Fit
from kvroom.memory import Before, Span
from kvroom.records import Fact
from kvroom.room import Ask, Expected, KvRoom


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of every engine."""

    checkpoint: Checkpoint
    ask: Ask
    """All but the bytes for the pool."""
    prompt: int
    output: int
    concurrency: tuple[int, ...]
    available: Span | None = None
    """Bytes for the pool, where they are known; an interval where they were printed rounded."""
    memory: Span | None = None
    """Bytes of the card, where the pool has to be estimated."""
    logged: tuple[Fact, ...] = ()
    """What the engine's own log says, to be set beside the plan."""


class Gain(msgspec.Struct, frozen=True, kw_only=True):
    """One setting that would let more requests run, or let the engine start at all."""

    setting: str
    value: Any
    running: int
    instead_of: int | None
    """None where the engine does not start as it is."""
    expected: tuple[Expected, ...] = ()
    """What the engine's own log will say then."""


class Check(msgspec.Struct, frozen=True):
    """A planned figure beside the logged one."""

    expected: Expected
    logged: Fact | None

    @property
    def agrees(self) -> bool | None:
        """None where the log does not say."""
        if self.logged is None or not isinstance(self.logged.value, float):
            return None
        return self.expected.agrees(self.logged.value)


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """The answer for one engine. With an interval there are two rooms, the small and the large."""

    engine: str
    ask: Ask
    rooms: tuple[KvRoom, ...]
    fits: tuple[tuple[Fit, ...], ...]
    """For each concurrency asked, the fit in each room."""
    before: Before | None
    at_worst: str
    """Why it would not start with the smaller end of an interval, if so."""
    changes: tuple[Gain, ...]
    checks: tuple[Check, ...]

    @property
    def room(self) -> KvRoom:
        """The room, or the smaller one of an interval."""
        return self.rooms[0]


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """An engine that would not start, why, and what would let it."""

    engine: str
    ask: Ask
    why: str
    hint: str
    changes: tuple[Gain, ...]
