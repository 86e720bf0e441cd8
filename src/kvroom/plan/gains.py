"""What to change: settings that, each by itself, let more requests run."""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from kvroom.engine import Engine
from kvroom.errors import InputError
from kvroom.fit import fit
from kvroom.memory import Span
from kvroom.plan.available import rooms
from kvroom.plan.question import Gain, Question
from kvroom.room import KvRoom, ceil_div
from kvroom.settings import Speculative
from kvroom.units import Bytes

MOST_SLOTS = 512
"""How far the search for the best number of slots goes."""
MOST_DOUBLINGS = 12
"""How far a pool that is sized by hand is made larger: 4096 times."""
MIB = 1 << 20


def gains(question: Question, engine: Engine, now: int | None) -> Iterable[Gain]:
    """The best value of each setting by itself, if more requests run with it than now.

    A log tells of the settings it was made with, so it must have been turned into bytes before.
    """
    for setting, values in _candidates(question, engine):
        best: Gain | None = None
        for value, asked in values:
            room = _room(asked, engine)
            if room is None:
                continue
            running = fit(room, asked.prompt, asked.output, max(asked.concurrency)).running
            if running > (best.running if best else now or 0):
                best = Gain(
                    setting=setting,
                    value=value,
                    running=running,
                    instead_of=now,
                    expected=room.expected,
                )
        if best is not None:
            yield best


def _room(question: Question, engine: Engine) -> KvRoom | None:
    """The smaller room, or None if the engine may not start with it."""
    try:
        found = rooms(question, engine)
    except InputError:
        return None
    return None if found.at_worst else found.made[0]


Candidates = Iterable[tuple[Any, Question]]


def _candidates(question: Question, engine: Engine) -> Iterable[tuple[str, Candidates]]:
    """Settings worth trying, and the values to try, the smallest change first."""
    ask, settings = question.ask, question.ask.settings

    def tried(name: str, values: Iterable[Any]) -> Candidates:
        return [(value, _with_setting(question, name, value)) for value in values]

    highest = max(question.concurrency)
    yield "slots", tried("slots", range(1, min(MOST_SLOTS, 2 * highest) + 1))
    needed = ceil_div(question.prompt + question.output, 256) * 256
    if needed < (settings.max_len or ask.architecture.max_len or needed):
        yield "max_len", tried("max_len", [needed])
    if ask.speculative_tokens:
        fewer = range(ask.speculative_tokens - 1, -1, -1)
        yield (
            "speculative_tokens",
            [(n, _with_setting(question, "speculative", _guessing(n))) for n in fewer],
        )
    if settings.prefix_cache is not False and ask.architecture.states:
        yield "prefix_cache", tried("prefix_cache", [False])
    if settings.kv_cache_dtype is not None:
        others = [dtype for dtype in engine.kv_dtypes if dtype != settings.kv_cache_dtype]
        yield "kv_cache_dtype", tried("kv_cache_dtype", others)
    if settings.kv_memory is not None and engine.takes_what_is_left:
        yield "kv_memory", list(_larger(question, int(settings.kv_memory)))
    elif question.available is None and question.memory is not None and engine.takes_what_is_left:
        yield from _memory_candidates(question, engine, tried)


def _guessing(tokens: int) -> Speculative | None:
    return Speculative(tokens=tokens) if tokens else None


def _with_setting(question: Question, name: str, value: Any) -> Question:
    settings = msgspec.structs.replace(question.ask.settings, **{name: value})
    ask = msgspec.structs.replace(question.ask, settings=settings)
    return msgspec.structs.replace(question, ask=ask)


def _larger(question: Question, now: int) -> Candidates:
    """A pool of a size that somebody chose, grown by half as often as it takes."""
    size = now
    for _ in range(2 * MOST_DOUBLINGS):
        size = ceil_div(size * 3, 2 * MIB) * MIB if size >= MIB else 2 * size
        larger = _with_setting(question, "kv_memory", Bytes(size))
        yield Bytes(size), msgspec.structs.replace(larger, available=Span(size, size))


def _memory_candidates(
    question: Question, engine: Engine, tried: Callable[[str, Iterable[Any]], Candidates]
) -> Iterable[tuple[str, Candidates]]:
    """What makes the pool itself larger, where its size is an estimate."""
    settings, weights = question.ask.settings, question.checkpoint.weights
    if engine.share is not None:
        now = engine.share(question.ask).fraction
        yield "memory_fraction", tried("memory_fraction", [f for f in (0.9, 0.95) if f > now])
    if weights is not None and weights.parts.get("encoder") and not settings.text_only:
        yield "text_only", tried("text_only", [True])
