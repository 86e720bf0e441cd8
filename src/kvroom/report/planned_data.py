"""The answer of a plan as plain values, for ``--json``."""

from collections.abc import Sequence
from typing import Any

import msgspec

from kvroom.plan.question import Check, Planned, Question, Refused


def plans(questions: Sequence[tuple[Question, str]], answers: Sequence[Planned | Refused]) -> Any:
    """An object for one engine, its other cache types below ``others``; a list for several."""
    data = [as_data(q, answer) for (q, _), answer in zip(questions, answers, strict=True)]
    if len({name for _, name in questions}) > 1:
        return data
    return {**data[0], "others": data[1:]} if len(data) > 1 else data[0]


def as_data(question: Question, answer: Planned | Refused) -> dict[str, Any]:
    """The answer for one engine as plain values, for ``--json``."""
    if isinstance(answer, Refused):
        return {
            "engine": answer.engine,
            "kv_cache_dtype": answer.ask.settings.kv_cache_dtype,
            "error": answer.why,
            "hint": answer.hint,
            "changes": msgspec.to_builtins(answer.changes),
        }
    room, first = answer.room, answer.fits[0][0]
    data: dict[str, Any] = {
        "engine": answer.engine,
        "kv_cache_dtype": answer.ask.settings.kv_cache_dtype,
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
        "expected_log": room.expected_log,
        "pool_bytes": room.pool_bytes,
        "admission_blocks": first.admission_blocks,
        "running": first.running,
        "preempted": first.preempted,
        "reserves_end": room.reserves_end,
        "slots": room.slots,
        "max_len": room.max_len,
        "too_long": room.too_long,
        "levels": _levels(question, answer),
        "at_worst": answer.at_worst or None,
        "changes": msgspec.to_builtins(answer.changes),
        "checks": [_check_data(check) for check in answer.checks],
        "arithmetic": list(room.arithmetic),
        "guesses": list(question.checkpoint.architecture.guesses),
        "weights": msgspec.to_builtins(question.checkpoint.weights),
    }
    if answer.before is not None:
        data["estimated_from"] = msgspec.to_builtins(answer.before)
    return data


def _levels(question: Question, planned: Planned) -> list[dict[str, Any]]:
    return [
        {
            "concurrency": concurrency,
            "fit": [one.fit for one in fits],
            "running": [one.running for one in fits],
            "waiting": [one.waiting for one in fits],
            "preempted": [one.preempted for one in fits],
            "binds": fits[0].binds,
        }
        for concurrency, fits in zip(question.concurrency, planned.fits, strict=True)
    ]


def _check_data(check: Check) -> dict[str, Any]:
    return {
        "wording": check.expected.wording,
        "planned": check.expected.value,
        "logged": check.logged.value / check.expected.scale
        if check.logged is not None and isinstance(check.logged.value, float)
        else None,
        "source": str(check.logged.source) if check.logged is not None else None,
        "agrees": check.agrees,
    }
