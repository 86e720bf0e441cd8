"""Bytes for the pool: as given, as a log settles them, or estimated; and the rooms they make."""

from bisect import bisect_left, bisect_right
from functools import partial
from typing import Any

import msgspec

from kvroom.engine import Engine
from kvroom.errors import InputError
from kvroom.log_reader import last
from kvroom.memory import Before, Span, before_the_pool
from kvroom.plan.question import Question
from kvroom.room import Ask, KvRoom

GIB = 1 << 30
MOST_BYTES = 1 << 43
COUNTS = ("kv_blocks", "kv_tokens", "kv_allocated_tokens", "max_concurrency")
"""Facts that grow with the pool, by which a log settles how large it is."""


class Rooms(msgspec.Struct, frozen=True, kw_only=True):
    """What the bytes for the pool make."""

    made: tuple[KvRoom, ...]
    """One room, or the small and the large one of an interval."""
    available: Span | None = None
    """The bytes, where there is a figure for them."""
    before: Before | None = None
    at_worst: str = ""
    """Why the engine would not start with the smaller end of the interval, if so."""


def rooms(question: Question, engine: Engine) -> Rooms:
    """The room of an engine, two where the pool is an interval; InputError where there is none."""
    if engine.room is None:
        raise InputError(f"nothing is known of how {engine.name} sizes its KV cache")
    span, before = _available(question, engine)
    if span is None:
        return Rooms(made=(engine.room(question.ask),))
    if not engine.takes_what_is_left:
        return Rooms(made=(_allocated(question, engine, span),), available=span, before=before)
    large = engine.room(_with(question.ask, available=span.high))
    try:
        small = engine.room(_with(question.ask, available=span.low))
    except InputError as error:
        return Rooms(made=(large,), available=span, before=before, at_worst=str(error))
    both = (small, large) if small.blocks != large.blocks else (small,)
    return Rooms(made=both, available=span, before=before)


def _allocated(question: Question, engine: Engine, span: Span) -> KvRoom:
    """The room of an engine that takes what slots and lengths ask for."""
    assert engine.room is not None
    made = engine.room(_with(question.ask, available=span.high))
    if made.pool_bytes > span.high:
        raise InputError(
            f"{engine.name} asks for {made.pool_bytes / GIB:.2f} GiB of KV cache, and "
            f"{span.high / GIB:.2f} GiB are left",
            "fewer slots, a shorter max_len, or a smaller kv_cache_dtype",
        )
    return made


def _with(ask: Ask, **changes: Any) -> Ask:
    return msgspec.structs.replace(ask, **changes)


def _available(question: Question, engine: Engine) -> tuple[Span | None, Before | None]:
    """As given, or as the log settles it, else estimated from the card; None if nothing is known
    and the engine does not need it."""
    given = question.available
    if question.logged and engine.takes_what_is_left:
        return _settled(question, engine), None
    if given is None and question.ask.settings.kv_memory is not None:
        given = Span(int(question.ask.settings.kv_memory), int(question.ask.settings.kv_memory))
    if given is not None:
        return given, None
    if question.memory is None or engine.share is None:
        if engine.takes_what_is_left:
            raise InputError(
                f"what is left for the KV cache of {engine.name} is not known",
                "give --available (from a log), --card, or --memory",
            )
        return None, None
    before = estimate(question, engine)
    span = before.available
    if span.high <= 0:
        raise InputError(
            f"{engine.name}: {before.weights / GIB:.1f} GiB of weights leave nothing for a KV "
            "cache",
            "a larger card, a smaller quantisation, or tensor parallelism",
        )
    return span, before


def estimate(question: Question, engine: Engine) -> Before:
    """What weights, activations and graphs leave of the card."""
    assert question.memory is not None
    assert engine.share is not None
    ask, weights = question.ask, question.checkpoint.weights
    if weights is None:
        raise InputError(
            f"{question.checkpoint.name} has no weights to weigh", "give --available instead"
        )
    held = weights.loaded(encoder=not ask.settings.text_only, draft=bool(ask.speculative_tokens))
    return before_the_pool(
        question.memory, held // ask.tensor_parallel, ask.architecture, engine.share(ask)
    )


def _settled(question: Question, engine: Engine) -> Span:
    """The bytes that a log tells: as printed, narrowed to what makes the counts it also prints."""
    printed = question.available or _printed(question)
    sizes = range(printed.low, printed.high + 1) if printed else range(MOST_BYTES)
    for fact in (last(question.logged, name) for name in COUNTS):
        if fact is not None and isinstance(fact.value, float):
            planned = partial(_count, question, engine, fact.name)
            left = bisect_left(sizes, fact.value, key=planned)
            right = bisect_right(sizes, fact.value, key=planned)
            sizes = sizes[left:right] or sizes
    if len(sizes) == MOST_BYTES:
        raise InputError(
            "the log does not say how much memory the KV cache has, or not in a way that fits "
            "these settings",
            "give --available, and the settings that the engine was started with",
        )
    return Span(sizes[0], sizes[-1])


def _printed(question: Question) -> Span | None:
    """What the log calls available, within what two decimals of a GiB round away."""
    fact = last(question.logged, "available_bytes")
    if fact is None or not isinstance(fact.value, float):
        return None
    return Span(round(fact.value - GIB / 200), round(fact.value + GIB / 200))


def _count(question: Question, engine: Engine, name: str, available: int) -> float:
    """What the log would count with so many bytes; -1 where the engine would not start."""
    assert engine.room is not None
    try:
        room = engine.room(_with(question.ask, available=available))
    except InputError:
        return -1
    return next((one.value for one in room.expected if one.fact == name), -1)
