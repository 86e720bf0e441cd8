"""Which settings were in effect: as the engine says, else as it was told, else its default."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec

from kvroom import engines
from kvroom.catalogue import defaults
from kvroom.engine import Engine
from kvroom.matchup import Contender
from kvroom.options import Options
from kvroom.records import Fact
from kvroom.settings import Settings
from kvroom.spelling import SAMPLES, read_back, spellings
from kvroom.units import show_bytes

BESIDE = ("dtype", "attention_backend")
"""What decides as much as a setting does, and is only told in logs."""
FACTS = {"kv_memory": "kv_bytes"}
"""Settings whose fact has another name for all engines."""
OFF = ("false", "none", "off", "0")
CHOSEN = "its own choice"
"""Instead of a default that an engine computes from the machine or the model."""
SWITCHES = ("prefix_cache", "chunked_prefill", "text_only", "cuda_graphs", "speculative")


class Effective(msgspec.Struct, frozen=True, kw_only=True):
    """The value of a setting, and how it is known."""

    value: str
    how: Literal["logged", "set", "default"]
    source: str = ""
    """The line of the log."""


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """A setting of all contenders side by side."""

    setting: str
    differs: bool
    values: dict[str, Effective | None]
    """By contender; None where nothing is known."""


def effective(
    contender: Contender, settings: Settings, facts: Mapping[str, Fact], version: str | None
) -> dict[str, Effective]:
    """What was in effect, by setting; of what nobody says there is nothing."""
    engine = engines.engine(contender.engine)
    verbatim = Options(arguments=tuple(contender.words), config=contender.config, env=contender.env)
    told = settings.given() | read_back(engine, verbatim)
    default = _defaults(engine, version or contender.version)
    found: dict[str, Effective] = {}
    for setting in (*SAMPLES, *BESIDE):
        if (fact := _fact(engine, setting, facts)) is not None:
            found[setting] = _logged(engine, setting, fact)
        elif setting in told:
            found[setting] = Effective(value=_shown(setting, told[setting]), how="set")
        elif setting in default:
            found[setting] = Effective(value=_shown(setting, default[setting]), how="default")
    return found


def _fact(engine: Engine, setting: str, facts: Mapping[str, Fact]) -> Fact | None:
    name = engine.effective.get(setting, FACTS.get(setting, setting))
    return facts.get(name.removeprefix("!"))


def _logged(engine: Engine, setting: str, fact: Fact) -> Effective:
    value = _shown(setting, fact.value)
    if engine.effective.get(setting, "").startswith("!"):
        value = {"on": "off", "off": "on"}.get(value, value)
    return Effective(value=value, how="logged", source=str(fact.source))


def _defaults(engine: Engine, version: str | None) -> dict[str, Any]:
    """The defaults of options that stand for one setting alone."""
    known = defaults(engine.name, version)
    found = {}
    for one in spellings(engine):
        option = known.get(one.names[0]) if one.names else None
        if option is not None and option.default is not None:
            computed = " " in str(option.default)
            found[one.setting] = CHOSEN if computed else option.default
    return found


def _shown(setting: str, value: Any) -> str:
    """A value as a person writes it, alike for all engines."""
    if setting == "kv_memory" and isinstance(value, int | float):
        return show_bytes(float(value))
    if isinstance(value, msgspec.Struct):
        return f"{value.method}, {value.tokens} tokens"  # type: ignore[attr-defined]
    text = f"{value:g}" if isinstance(value, float) else str(value)
    if (setting in SWITCHES and not isinstance(value, int | float)) or isinstance(value, bool):
        return {"true": "on", **dict.fromkeys(OFF, "off")}.get(text.lower(), text)
    return text


class _Contender(Protocol):
    @property
    def contender(self) -> Contender: ...

    @property
    def settings(self) -> Mapping[str, Effective]: ...


def compared(contenders: Sequence[_Contender]) -> list[Compared]:
    """The settings side by side, those of which nobody knows anything left out."""
    found = []
    for setting in (*SAMPLES, *BESIDE):
        values = {one.contender.name: one.settings.get(setting) for one in contenders}
        known = {value.value for value in values.values() if value is not None}
        if known:
            found.append(Compared(setting=setting, differs=len(known) > 1, values=values))
    return found
