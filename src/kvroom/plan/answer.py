"""A question and an engine -> what fits, what binds, what to change."""

import msgspec

from kvroom import engines
from kvroom.errors import InputError
from kvroom.fit import Fit, fit
from kvroom.log_reader import last
from kvroom.memory import Span
from kvroom.plan.available import rooms
from kvroom.plan.gains import gains
from kvroom.plan.question import Check, Planned, Question, Refused
from kvroom.room import KvRoom


def plan(question: Question, name: str) -> Planned | Refused:
    """The room of one engine, or why there is none."""
    engine = engines.engine(name)
    try:
        found = rooms(question, engine)
    except InputError as error:
        return Refused(
            engine=name,
            ask=question.ask,
            why=str(error),
            hint=error.hint,
            changes=tuple(gains(_settled(question), engine, None)),
        )
    fits = tuple(
        tuple(fit(room, question.prompt, question.output, n) for room in found.made)
        for n in question.concurrency
    )
    now = 0 if found.at_worst else max(fits, key=lambda few: _asked(few[0]))[0].running
    return Planned(
        engine=name,
        ask=question.ask,
        rooms=found.made,
        fits=fits,
        before=found.before,
        at_worst=found.at_worst,
        changes=tuple(gains(_settled(question, found.available), engine, now)),
        checks=_checks(question, found.made[0]) if question.logged else (),
    )


def _settled(question: Question, available: Span | None = None) -> Question:
    """The question without the log, which has said its bytes; an estimate stays one."""
    if not question.logged:
        return question
    known = available or question.available
    return msgspec.structs.replace(question, logged=(), available=known)


def _asked(one: Fit) -> int:
    return one.running + one.waiting


def _checks(question: Question, room: KvRoom) -> tuple[Check, ...]:
    return tuple(
        Check(one, last(question.logged, one.fact) if one.fact else None) for one in room.expected
    )
