"""``kvroom plan``: how many requests fit, before a GPU is rented."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from kvroom import engines
from kvroom.checkpoint.read import Checkpoint
from kvroom.errors import InputError
from kvroom.matchup import Settings
from kvroom.memory import Before, Span, before_the_pool
from kvroom.room import Ask, Fit, KvRoom, fit

MOST_SLOTS = 512
"""How far the search for the best number of slots goes."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of every engine."""

    checkpoint: Checkpoint
    settings: Settings
    prompt: int
    output: int
    concurrency: tuple[int, ...]
    available: int | None = None
    """Bytes for the pool, where they are known."""
    memory: Span | None = None
    """Bytes of the card, where the pool has to be estimated."""
    version: str = ""
    tensor_parallel: int = 1
    speculative_tokens: int = 0
    on_cpu: bool = False
    block_tokens: int | None = None


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """The answer for one engine. With an estimate there are two rooms, the small and the large."""

    engine: str
    settings: Settings
    rooms: tuple[KvRoom, ...]
    fits: tuple[tuple[Fit, ...], ...]
    """For each concurrency asked, the fit in each room."""
    before: Before | None
    best_slots: int | None
    """A limit of slots with which more requests run at the highest concurrency, if there is one."""
    best_running: int | None

    @property
    def room(self) -> KvRoom:
        """The room, or the smaller one of an estimate."""
        return self.rooms[0]


def plan(question: Question, engine_name: str) -> Planned:
    """The room of one engine; InputError where it would not start or nothing sizes its pool."""
    engine = engines.engine(engine_name)
    if engine.room is None:
        raise InputError(f"nothing is known of how {engine_name} sizes its KV cache")
    available, before = _available(question, engine_name)
    rooms = tuple(engine.room(_ask(question, bytes_)) for bytes_ in available)
    highest = max(question.concurrency)
    sized = any(available)
    best = _best_slots(question, engine.room, available[0], rooms[0], highest) if sized else None
    return Planned(
        engine=engine_name,
        settings=question.settings,
        rooms=rooms,
        fits=tuple(
            tuple(fit(room, question.prompt, question.output, n) for room in rooms)
            for n in question.concurrency
        ),
        before=before,
        best_slots=best[0] if best else None,
        best_running=best[1] if best else None,
    )


def _ask(question: Question, available: int, settings: Settings | None = None) -> Ask:
    return Ask(
        architecture=question.checkpoint.architecture,
        settings=settings or question.settings,
        available=available,
        version=question.version,
        tensor_parallel=question.tensor_parallel,
        speculative_tokens=question.speculative_tokens,
        on_cpu=question.on_cpu,
        block_tokens=question.block_tokens,
    )


def _available(question: Question, name: str) -> tuple[tuple[int, ...], Before | None]:
    """Bytes for the pool: as given, else estimated from the card; 0 where they size nothing."""
    engine = engines.engine(name)
    if question.available is not None:
        return (question.available,), None
    if question.settings.kv_memory is not None:
        return (int(question.settings.kv_memory),), None
    if engine.share is None:
        return (0,), None
    if question.memory is None:
        raise InputError(
            f"what is left for the KV cache of {name} is not known",
            "give --available (from a log), --card, or --memory",
        )
    weights = _weights(question)
    before = before_the_pool(
        question.memory,
        weights,
        question.checkpoint.architecture,
        question.settings,
        engine.share,
    )
    span = before.available
    if span.high <= 0:
        raise InputError(
            f"{name}: {weights / 2**30:.1f} GiB of weights leave nothing for a KV cache",
            "a larger card, a smaller quantisation, or tensor parallelism",
        )
    return ((span.low, span.high) if span.low else (span.high,)), before


def _weights(question: Question) -> int:
    weights = question.checkpoint.weights
    if weights is None:
        raise InputError(
            f"{question.checkpoint.name} has no weights to weigh", "give --available instead"
        )
    text_only = bool(question.settings.text_only)
    draft = bool(question.speculative_tokens)
    return weights.loaded(encoder=not text_only, draft=draft) // question.tensor_parallel


def _best_slots(
    question: Question, planner: Callable[[Ask], KvRoom], available: int, room: KvRoom, highest: int
) -> tuple[int, int] | None:
    """The smallest number of slots with which the most requests run, if it beats the one asked."""
    now = fit(room, question.prompt, question.output, highest).running
    best = (0, now)
    for slots in range(1, min(MOST_SLOTS, 2 * highest) + 1):
        settings = msgspec.structs.replace(question.settings, slots=slots)
        try:
            other = planner(_ask(question, available, settings))
        except InputError:
            continue
        running = fit(other, question.prompt, question.output, highest).running
        if running > best[1]:
            best = (slots, running)
    return best if best[0] else None


def as_data(question: Question, planned: Planned) -> dict[str, Any]:
    """The answer for one engine as plain values, for ``--json``."""
    room = planned.room
    first = planned.fits[0][0]
    data: dict[str, Any] = {
        "engine": planned.engine,
        "bytes_per_token": room.bytes_per_token,
        "fixed_bytes": room.fixed_bytes,
        "state_slots": room.state_slots,
        "blocks": room.blocks,
        "block_tokens": room.block_tokens,
        "tokens": room.tokens,
        "blocks_per_request": first.blocks_per_request,
        "fit": first.fit,
        "waiting": first.waiting,
        "binds": first.binds,
        "max_concurrency": room.max_concurrency,
        "expected_log": dict(room.expected_log),
        "admission_blocks": first.admission_blocks,
        "running": first.running,
        "slots": room.slots,
        "best_slots": planned.best_slots,
        "best_running": planned.best_running,
        "levels": _levels(question, planned),
        "arithmetic": list(room.arithmetic),
        "guesses": list(question.checkpoint.architecture.guesses),
    }
    if planned.before is not None:
        data["estimated_from"] = msgspec.to_builtins(planned.before)
    return data


def _levels(question: Question, planned: Planned) -> list[Mapping[str, Any]]:
    return [
        {
            "concurrency": concurrency,
            "fit": [one.fit for one in fits],
            "running": [one.running for one in fits],
            "waiting": [one.waiting for one in fits],
            "binds": fits[0].binds,
        }
        for concurrency, fits in zip(question.concurrency, planned.fits, strict=True)
    ]


def plan_all(question: Question, names: Sequence[str]) -> list[Planned | InputError]:
    """The answer for each engine, or why there is none."""
    answers: list[Planned | InputError] = []
    for name in names:
        try:
            answers.append(plan(question, name))
        except InputError as error:
            answers.append(error)
    return answers
