"""Recommended changes -> a matchup of the same contenders, each with its first change."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import yaml

from kvroom import engines
from kvroom.errors import InputError
from kvroom.explain.finding import Change
from kvroom.explain.whole import Contended, Whole
from kvroom.matchup import Contender, Matchup
from kvroom.options import Options, at
from kvroom.settings import Settings, Speculative
from kvroom.spelling import spelled_without
from kvroom.store import Applied

LONGEST_NAME = 64
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9._-]+")


def apply(matchup: Matchup, whole: Whole, only: str | None = None) -> tuple[Matchup, list[Applied]]:
    """Only the changed contenders, and what was changed; InputError where nothing is to change."""
    made, notes = [], []
    for one in whole.contenders:
        change = first(one) if only in (None, one.contender) else None
        if change is None:
            continue
        contender = next(c for c in matchup.contenders if c.name == one.contender)
        if contender.url is not None:
            continue
        changed = _changed(matchup, contender, change)
        made.append(changed)
        notes.append(_note(whole, one, changed, change))
    if not made:
        raise InputError(
            f"no change is recommended for {only or 'any contender'} that kvroom can make",
            f"kvroom explain {whole.run} says what it found",
        )
    return msgspec.structs.replace(matchup, contenders=made), notes


def first(one: Contended) -> Change | None:
    """The first recommended change that names a value to set."""
    return next((c for c in one.explanation.changes if c.to and c.value is not None), None)


def _note(whole: Whole, one: Contended, changed: Contender, change: Change) -> Applied:
    curve, span = one.explanation.curve, change.tokens_per_s
    return Applied(
        run=whole.run,
        contender=one.contender,
        changed=changed.name,
        setting=change.setting,
        now=change.now,
        to=change.to,
        concurrency=one.concurrency,
        before=curve.top.tokens_per_s if curve else None,
        expected=(span.low, span.likely, span.high) if span else None,
    )


def _changed(matchup: Matchup, contender: Contender, change: Change) -> Contender:
    word = _NOT_IN_A_NAME.sub("", f"{change.setting.lstrip('-')}-{change.to}")
    name = f"{contender.name[: LONGEST_NAME // 2]}+{word}"[:LONGEST_NAME]
    changes = dict(_parts(matchup, contender, change))
    return msgspec.structs.replace(contender, name=name, **changes)


def _parts(matchup: Matchup, contender: Contender, change: Change) -> Iterable[tuple[str, Any]]:
    """The fields of the contender that change."""
    if change.setting.startswith("-"):
        yield "flags", _flag_set(contender.flags, change)
    elif change.setting == "speculative_tokens":
        yield "settings", _guessing(matchup.settings_of(contender), change.value)
    elif change.setting in Settings.__struct_fields__:
        given = contender.settings.given() | {change.setting: change.value}
        yield "settings", msgspec.convert(given, Settings, dec_hook=lambda kind, v: kind(v))
        yield from _unspelled(contender, change.setting)
    elif change.setting.isupper():
        yield "env", {**contender.env, change.setting: change.to}
    else:
        config = Options(config=contender.config).plus(
            Options(config=at(change.setting, change.value))
        )
        yield "config", dict(config.config)


def _flag_set(flags: list[str | int | float], change: Change) -> list[str | int | float]:
    """The option with its new value, where the old one stood or at the end."""
    found = list(flags)
    for place, word in enumerate(found):
        name, equals, _ = str(word).partition("=")
        if name != change.setting:
            continue
        if equals:
            found[place] = f"{name}={change.to}"
        elif place + 1 < len(found):
            found[place + 1] = change.to
        return found
    return [*found, change.setting, change.to]


def _guessing(settings: Settings, tokens: int) -> Settings:
    guess = settings.speculative or Speculative(tokens=1)
    fewer = msgspec.structs.replace(guess, tokens=tokens) if tokens else None
    return msgspec.structs.replace(settings, speculative=fewer)


def _unspelled(contender: Contender, setting: str) -> Iterable[tuple[str, Any]]:
    """The verbatim options less those that say the same setting: they would win."""
    verbatim = Options(arguments=tuple(contender.words), config=contender.config, env=contender.env)
    left = spelled_without(engines.engine(contender.engine), verbatim, setting)
    yield "flags", list(left.arguments)
    yield "config", dict(left.config)
    yield "env", dict(left.env)


def as_yaml(matchup: Matchup, notes: Iterable[Applied]) -> str:
    """The matchup as a file, with a comment for each change."""
    said = "".join(
        f"# {one.changed}: {one.contender} of {one.run} with {one.setting} {one.to} "
        f"instead of {one.now or 'its default'}\n"
        for one in notes
    )
    return said + yaml.safe_dump(_plain(matchup), sort_keys=False, allow_unicode=True, width=100)


def _plain(value: Any) -> Any:
    """Structs as mappings of what is not at its default."""
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.fields(value)
        pairs = ((field.name, getattr(value, field.name), field) for field in fields)
        return {name: _plain(one) for name, one, field in pairs if one != _default(field)}
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _default(field: Any) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default
