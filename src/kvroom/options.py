"""What an engine is started with, and how one of our settings becomes a part of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kvroom.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Options:
    """Arguments, keys of a config file, environment variables; all in the engine's spelling."""

    arguments: tuple[str, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    """Nested, as the file has it."""
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    """Further files the engine reads: their names in the contender's folder, and their texts."""

    def plus(self, later: "Options") -> "Options":
        """Both; where they contradict each other, the later one wins."""
        return Options(
            arguments=self.arguments + later.arguments,
            config=_merged(self.config, later.config),
            env={**self.env, **later.env},
            files={**self.files, **later.files},
        )


Knob = Callable[[Any, Settings], Options]
"""A setting's value, and all settings -> what the engine is started with for it."""


def option(name: str) -> Knob:
    """A command-line option that takes the value."""
    return lambda value, settings: Options(arguments=(name, plain(value)))


def switch(on: str, off: str = "") -> Knob:
    """A command-line option for yes, another for no; an empty one where that is the default."""
    return lambda value, settings: Options(arguments=tuple(filter(None, [on if value else off])))


def key(path: str) -> Knob:
    """A key of the engine's config file, dotted where it lies in others."""
    return lambda value, settings: Options(config=at(path, value))


def variable(name: str) -> Knob:
    """An environment variable."""
    return lambda value, settings: Options(env={name: plain(value)})


def at(path: str, value: Any) -> dict[str, Any]:
    """A nested mapping with one value: ``a.b`` and 1 -> ``{a: {b: 1}}``."""
    first, _, rest = path.partition(".")
    return {first: at(rest, value) if rest else value}


def without(config: Mapping[str, Any], path: str) -> dict[str, Any]:
    """The config less one dotted key."""
    first, _, rest = path.partition(".")
    left = {name: value for name, value in config.items() if name != first}
    inner = config.get(first)
    if rest and isinstance(inner, Mapping) and (kept := without(inner, rest)):
        left[first] = kept
    return left


def flat(config: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """A nested config with dotted keys."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, Mapping) and value:
            found |= flat(value, f"{above}{name}.")
        else:
            found[above + name] = value
    return found


def plain(value: Any) -> str:
    """A value as a command line has it: sizes in bytes, shares without an exponent."""
    if isinstance(value, float):
        return format(value, "g")
    return str(int(value)) if isinstance(value, int) else str(value)


def _merged(first: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(first)
    for name, value in later.items():
        before = merged.get(name)
        both = isinstance(before, Mapping) and isinstance(value, Mapping)
        merged[name] = {**_merged(before or {}, value)} if both else value
    return merged
