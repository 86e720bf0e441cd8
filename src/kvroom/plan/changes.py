"""What to change: settings that, each by itself, let more requests run."""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from kvroom.engine import Engine
from kvroom.errors import InputError
from kvroom.fit import fit
from kvroom.plan.available import rooms
from kvroom.plan.question import Change, Question
from kvroom.room import Ask, ceil_div
from kvroom.settings import Speculative

MOST_SLOTS = 512
"""How far the search for the best number of slots goes."""


def changes(question: Question, engine: Engine, now: int | None) -> Iterable[Change]:
    """The best value of each setting by itself, if more requests run with it than now.

    A log tells of the settings it was made with, so it must have been turned into bytes before.
    """
    for setting, values in _candidates(question, engine):
        best: Change | None = None
        for value, ask in values:
            running = _running(msgspec.structs.replace(question, ask=ask), engine)
            if running > (best.running if best else now or 0):
                best = Change(setting=setting, value=value, running=running, instead_of=now)
        if best is not None:
            yield best


def _running(question: Question, engine: Engine) -> int:
    """Requests that run at the highest concurrency in the smaller room; 0 if it may not start."""
    try:
        found = rooms(question, engine)
    except InputError:
        return 0
    if found.at_worst:
        return 0
    return fit(found.made[0], question.prompt, question.output, max(question.concurrency)).running


Candidates = Iterable[tuple[Any, Ask]]


def _candidates(question: Question, engine: Engine) -> Iterable[tuple[str, Candidates]]:
    """Settings worth trying, and the values to try, the smallest change first."""
    ask, settings = question.ask, question.ask.settings

    def tried(name: str, values: Iterable[Any]) -> Candidates:
        return [(value, _with_setting(ask, name, value)) for value in values]

    highest = max(question.concurrency)
    yield "slots", tried("slots", range(1, min(MOST_SLOTS, 2 * highest) + 1))
    needed = ceil_div(question.prompt + question.output, 256) * 256
    if needed < (settings.max_len or ask.architecture.max_len or needed):
        yield "max_len", tried("max_len", [needed])
    if ask.speculative_tokens:
        fewer = range(ask.speculative_tokens - 1, -1, -1)
        yield (
            "speculative_tokens",
            [(n, _with_setting(ask, "speculative", _guessing(n))) for n in fewer],
        )
    if settings.prefix_cache is not False and ask.architecture.states:
        yield "prefix_cache", tried("prefix_cache", [False])
    if settings.kv_cache_dtype is not None:
        others = [dtype for dtype in engine.kv_dtypes if dtype != settings.kv_cache_dtype]
        yield "kv_cache_dtype", tried("kv_cache_dtype", others)
    if question.available is None and question.memory is not None and engine.takes_what_is_left:
        yield from _memory_candidates(question, engine, tried)


def _guessing(tokens: int) -> Speculative | None:
    return Speculative(tokens=tokens) if tokens else None


def _with_setting(ask: Ask, name: str, value: Any) -> Ask:
    settings = msgspec.structs.replace(ask.settings, **{name: value})
    return msgspec.structs.replace(ask, settings=settings)


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
