"""The options of ``kvroom plan`` -> questions, one for each engine and cache dtype."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from kvroom import engines
from kvroom.checkpoint.read import Checkpoint, read_checkpoint
from kvroom.errors import InputError
from kvroom.log_reader import last
from kvroom.loglines import log_lines
from kvroom.memory import Span, card, size
from kvroom.observe import devices
from kvroom.plan.question import Question
from kvroom.records import Fact
from kvroom.room import Ask
from kvroom.settings import ASKED, Settings, Speculative


def asked(given: Mapping[str, Any]) -> list[tuple[Question, str]]:
    """Questions and the engines they are put to; InputError says which option is wrong."""
    checkpoint = read_checkpoint(given["model"])
    names = list(given["engine_names"]) or _applicable(given["model"])
    facts = _logged(given["log"], names)
    question = _question(given, checkpoint, facts)
    return [(dtyped, name) for name in names for dtyped in _by_dtype(question, name)]


def _question(
    given: Mapping[str, Any], checkpoint: Checkpoint, facts: tuple[Fact, ...]
) -> Question:
    name, memory = _card(given, known=bool(facts) or given["available"] is not None)
    version = last(facts, "version")
    return Question(
        checkpoint=checkpoint,
        ask=Ask(
            architecture=checkpoint.architecture,
            settings=_settings(given),
            available=0,
            card=name,
            card_bytes=memory.high if memory is not None else None,
            version=given["engine_version"] or (str(version.value) if version else ""),
            on_cpu=given["on_cpu"],
            block_tokens=given["block_size"],
            state_slots=given["state_slots"],
            overcommit=given["max_utilization"],
            windowed=given["windowed"],
        ),
        prompt=given["prompt"],
        output=given["output"],
        concurrency=_levels(given["concurrency"]),
        available=size(given["available"], "--available"),
        memory=memory,
        logged=facts,
    )


def _settings(given: Mapping[str, Any]) -> Settings:
    settings = {name: given[name] for name in ASKED if given[name] is not None}
    fraction = settings.get("memory_fraction")
    if fraction is not None and not 0 < fraction <= 1:
        raise InputError(f"--memory-fraction {fraction} is not between 0 and 1", "such as 0.9")
    if given["text_only"]:
        settings["text_only"] = True
    if given["speculative_tokens"]:
        settings["speculative"] = Speculative(tokens=given["speculative_tokens"])
    return Settings(**settings)


def _levels(text: str) -> tuple[int, ...]:
    try:
        levels = tuple(int(word) for word in text.split(","))
    except ValueError:
        levels = ()
    if not levels or min(levels) < 1:
        raise InputError(f"--concurrency {text!r} is not a list of numbers", "such as 1,8,32")
    return levels


def _card(given: Mapping[str, Any], *, known: bool) -> tuple[str, Span | None]:
    """Name and memory: as named, as sized, or found here where nothing else sizes the pool."""
    if given["card"] and given["memory"]:
        raise InputError("both --card and --memory are given", "name one of them")
    if given["card"]:
        named = card(given["card"])
        return named.name, named.memory
    memory = size(given["memory"], "--memory")
    found = [] if memory is not None or known else devices()
    if not found:
        return "", memory
    return found[0].name, Span(found[0].memory_bytes, found[0].memory_bytes)


def _logged(log: Path | None, names: Sequence[str]) -> tuple[Fact, ...]:
    """What a log says; it can be only one engine's."""
    if log is None:
        return ()
    if len(names) != 1:
        raise InputError("--log is the log of one engine", "name it with --engine")
    engine = engines.engine(names[0])
    facts = tuple(engine.read_log(log_lines(log, marks=engine.log_marks), log.name))
    if not facts:
        raise InputError(f"{log} has no line that {names[0]} is known to print")
    return facts


def _applicable(model: str) -> list[str]:
    wanted = "gguf" if model.endswith(".gguf") else "safetensors"
    known = [engines.engine(name) for name in engines.names()]
    return [e.name for e in known if e.room and wanted in (e.formats or ("safetensors",))]


def _by_dtype(question: Question, name: str) -> list[Question]:
    """One question where the dtype is given, or a log is of one; else one for each dtype."""
    engine, settings = engines.engine(name), question.ask.settings
    dtypes: Sequence[str] = engine.kv_dtypes
    if question.logged:
        said = last(question.logged, "kv_cache_dtype")
        dtypes = [str(said.value)] if said and said.value in dtypes else dtypes[:1]
    if settings.kv_cache_dtype is not None:
        dtypes = (settings.kv_cache_dtype,)
    return [
        msgspec.structs.replace(
            question,
            ask=msgspec.structs.replace(
                question.ask, settings=msgspec.structs.replace(settings, kv_cache_dtype=dtype)
            ),
        )
        for dtype in dtypes
    ]
