"""What is known of one contender, from all sides, put together: settings, plan, log -> Case."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from kvroom import engines
from kvroom.checkpoint.read import Checkpoint
from kvroom.engine import Engine
from kvroom.errors import InputError
from kvroom.explain.case import Case, Load
from kvroom.explain.log import Log
from kvroom.memory import Span
from kvroom.options import Options, flat
from kvroom.plan.answer import plan
from kvroom.plan.available import COUNTS
from kvroom.plan.question import Planned, Question, Refused
from kvroom.records import Fact
from kvroom.room import Ask
from kvroom.settings import Settings
from kvroom.spelling import read_back
from kvroom.units import Bytes, parse_bytes

LOGGED = (
    "slots",
    "max_len",
    "batch_tokens",
    "tensor_parallel",
    "prefix_cache",
    "state_dtype",
    "kv_memory",
)
"""Settings that a log's word on them overrides."""
SIZES = (*COUNTS, "available_bytes")
TRUTHS = {"true": True, "false": False}
WORST = ("kv_tokens", "max_concurrency")
TELL_DTYPE = ("kv_block_tokens", "kv_bytes_per_token")
ANY_BYTES = 1 << 40


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody says of a contender before its log is read."""

    engine: str
    version: str = ""
    settings: Settings = Settings()
    options: Options = Options()
    """In the engine's own spelling."""
    load: Load = Load()
    checkpoint: Checkpoint | None = None
    available: Span | None = None
    """Bytes of the pool."""
    memory: Span | None = None
    """Bytes of the card."""
    card: str = ""
    on_cpu: bool = False
    block_tokens: int | None = None
    state_slots: int | None = None
    overcommit: bool = False


def gather(known: Known, log: Log | None, **more: Any) -> Case:
    """The case: the log's word before the user's, and the plan that follows from both."""
    engine = engines.engine(known.engine)
    facts = _facts(log) if log else {}
    said = facts.get("version")
    known = msgspec.structs.replace(
        known,
        version=str(said.value) if said else known.version,
        settings=_settings(engine, known, facts),
        block_tokens=known.block_tokens or _block(engine, known, facts),
    )
    known = _dtyped(engine, known, facts)
    return Case(
        engine=known.engine,
        version=known.version,
        settings=known.settings,
        options=_spelled(known.options),
        load=known.load,
        architecture=known.checkpoint.architecture if known.checkpoint else None,
        block_tokens=known.block_tokens,
        overcommit=known.overcommit,
        card=known.card,
        card_bytes=known.memory.high if known.memory else None,
        log=log,
        question=question(known, tuple(facts.values())),
        planned=_planned(known, tuple(facts.values())),
        failed=more.pop("failed", _failed(log)),
        **more,
    )


def _facts(log: Log) -> dict[str, Fact]:
    """The last word on everything; of the pools of several starts with one length the smallest,
    since it is the one that makes requests wait."""
    lengths = log.facts.get("concurrency_tokens") or log.facts.get("max_len")
    several = lengths is None or lengths.low == lengths.high
    return {
        name: one.lowest if name in WORST and several else one.last
        for name, one in log.facts.items()
    }


def _settings(engine: Engine, known: Known, facts: Mapping[str, Fact]) -> Settings:
    """The user's settings, the verbatim options over them, and the log's word over both."""
    found = known.settings.given() | read_back(engine, known.options)
    for setting in LOGGED:
        name = engine.effective.get(setting, setting)
        fact = facts.get(name.removeprefix("!"))
        if fact is None and setting == "max_len":
            fact = facts.get("concurrency_tokens")
        if fact is not None:
            found[setting] = _plain(fact.value, contrary=name.startswith("!"))
    dtype = facts.get("kv_cache_dtype")
    if dtype is not None and dtype.value in engine.kv_dtypes:
        found["kv_cache_dtype"] = dtype.value
    return _valid(found)


def _block(engine: Engine, known: Known, facts: Mapping[str, Fact]) -> int | None:
    """Tokens of a page, where somebody chose them."""
    told = facts.get("asked_block_tokens")
    text = str(int(told.value)) if told and isinstance(told.value, float) else ""
    text = text or _spelled(known.options).get(engine.block_option, "")
    return int(text) if text.isdigit() and int(text) else None


def _plain(value: float | str, *, contrary: bool) -> Any:
    if isinstance(value, float):
        return int(value)
    truth = TRUTHS.get(value.lower())
    return value if truth is None else truth is not contrary


def _valid(found: Mapping[str, Any]) -> Settings:
    """The settings, less those whose values are not ours: a log or a command line is no matchup."""
    made = {}
    for name, value in found.items():
        try:
            one = msgspec.convert({name: value}, Settings, strict=False, dec_hook=_sized)
        except msgspec.ValidationError:
            continue
        made[name] = getattr(one, name)
    return Settings(**made)


def _sized(kind: type, value: Any) -> Any:
    if kind is not Bytes:
        raise NotImplementedError
    return parse_bytes(value)


def _dtyped(engine: Engine, known: Known, facts: Mapping[str, Fact]) -> Known:
    """Where nobody names the cache's data type, the one by which the log's sizes come out, else the
    engine's default."""
    if known.settings.kv_cache_dtype is not None or known.checkpoint is None:
        return known
    tried = [
        msgspec.structs.replace(
            known, settings=msgspec.structs.replace(known.settings, kv_cache_dtype=dtype)
        )
        for dtype in engine.kv_dtypes
    ]
    return next((one for one in tried if _comes_out(engine, one, facts)), tried[0])


def _comes_out(engine: Engine, known: Known, facts: Mapping[str, Fact]) -> bool:
    told = {name: facts[name].value for name in TELL_DTYPE if name in facts}
    try:
        room = engine.room(_ask(known, ANY_BYTES)) if engine.room and told else None
    except InputError:
        return False
    if room is None:
        return False
    planned = {"kv_block_tokens": room.block_tokens, "kv_bytes_per_token": room.bytes_per_token}
    return all(planned[name] == value for name, value in told.items())


def _ask(known: Known, available: int = 0) -> Ask:
    assert known.checkpoint is not None
    return Ask(
        architecture=known.checkpoint.architecture,
        settings=known.settings,
        available=available,
        card=known.card,
        card_bytes=known.memory.high if known.memory else None,
        version=known.version if known.version.lstrip("v")[:1].isdigit() else "",
        on_cpu=known.on_cpu,
        block_tokens=known.block_tokens,
        state_slots=known.state_slots,
        overcommit=known.overcommit,
    )


def question(known: Known, facts: tuple[Fact, ...]) -> Question | None:
    """What the plan is asked; None where the model or the bytes of the pool are not known."""
    if known.checkpoint is None:
        return None
    engine = engines.engine(known.engine)
    sized = bool({fact.name for fact in facts} & set(SIZES))
    weighed = known.memory if known.checkpoint.weights else None
    bytes_known = known.available or weighed or known.settings.kv_memory
    if engine.room is None or (engine.takes_what_is_left and not sized and not bytes_known):
        return None
    load = known.load
    return Question(
        checkpoint=known.checkpoint,
        ask=_ask(known),
        prompt=load.prompt or 1,
        output=load.output or 1,
        concurrency=(load.concurrency or 1,),
        available=known.available,
        memory=weighed,
        logged=facts if sized or not engine.takes_what_is_left else (),
    )


def _planned(known: Known, facts: tuple[Fact, ...]) -> Planned | Refused | None:
    asked = question(known, facts)
    return plan(asked, known.engine) if asked else None


def _failed(log: Log | None) -> bool:
    """Whether a log ends with an error before the engine served anybody."""
    error, ready = (log.last("error"), log.last("ready")) if log else (None, None)
    if log is None or error is None or log.course.states:
        return False
    return ready is None or error.source.line > ready.source.line


def _spelled(options: Options) -> dict[str, str]:
    """Options and variables by name, with their values; a switch has none."""
    found = {name: str(value) for name, value in flat(options.config).items()}
    found |= dict(options.env)
    name = ""
    for word in _words(options.arguments):
        if word.startswith("-") and not word[1:2].isdigit():
            name, found[word] = word, ""
        elif name:
            found[name], name = word, ""
    return found


def _words(arguments: Iterable[str]) -> Iterable[str]:
    for word in arguments:
        first, equals, value = word.partition("=")
        yield from (first, value) if equals and first.startswith("-") else (word,)
