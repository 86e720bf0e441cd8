"""What options an engine knows, by version, and what is wrong with those that are asked for.

The lists are data beside each adapter (``options.json``), read from the engines themselves. An
option that is not in the list of the version that runs is refused, with the nearest right one.
Where the version is not known before the start, only what looks like a slip is refused; of a
version that has no list even that is only doubted: the option may be newer than our newest list.
"""

import difflib
import functools
import importlib.resources
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from kvroom import engines
from kvroom.engine import Engine, Known
from kvroom.options import Options, flat

NEAR, MISSPELT = 0.6, 0.85
"""How alike two spellings must be, from 0 to 1, for one to be suggested for the other, and to be
taken for a slip of it."""
_PINNED = re.compile(r"\s*([A-Za-z0-9._-]+)\s*==\s*([^\s;,]+)")
_NUMBER = re.compile(r"-\d")
SHOWN_CHOICES = 12


class Option(msgspec.Struct, frozen=True):
    """One option as its engine's own parser has it."""

    default: Any = None
    """None where there is none, or where the engine decides when it starts."""
    aliases: tuple[str, ...] = ()
    choices: tuple[Any, ...] = ()
    flag: bool = False
    """Whether it takes no value."""
    deprecated: bool | str = False


class Catalogue(msgspec.Struct, frozen=True):
    """The options of an engine: arguments with their dashes, keys of its config file dotted, and
    environment variables in capitals."""

    source: str
    versions: dict[str, dict[str, Option]]
    """Oldest first."""
    complete: bool = True
    """Whether the list has them all; where not, only a misspelt option is refused."""
    abbreviates: bool = False
    """Whether its parser takes the beginning of an option for the whole."""
    underscores: bool = False
    """Whether ``--max_len`` is ``--max-len`` to it."""

    def nearest(self, version: str | None) -> tuple[str, bool]:
        """The listed version that is most like one, the newest for None; and whether it is it."""
        listed = list(self.versions)
        if version is None:
            return listed[-1], True
        same = [known for known in listed if is_version(version, known)]
        if same:
            return same[-1], True
        return max(reversed(listed), key=lambda known: _common(known, version)), False


class Complaint(msgspec.Struct, frozen=True, kw_only=True):
    """Something wrong or doubtful about what a contender is started with."""

    what: str
    hint: str = ""
    fatal: bool = False
    """Whether the engine would not start, or not do what was asked."""


@functools.cache
def catalogue(engine: str) -> Catalogue | None:
    """The options of an engine; None where there is no list."""
    file = importlib.resources.files(engines).joinpath(engine, "options.json")
    if not file.is_file():
        return None
    return msgspec.json.decode(file.read_bytes(), type=Catalogue)


def is_version(asked: str, version: str) -> bool:
    """Whether 0.31 or v0.31.0 means 0.31.0; also of versions with a commit or a build behind."""
    plain, version = asked.removeprefix("v"), version.removeprefix("v")
    return version == plain or version.startswith((f"{plain}.", f"{plain}-", f"{plain}+"))


def version_of(engine: Engine, requirements: Sequence[str]) -> str | None:
    """The version of an engine that pinned requirements install."""
    brought = engine.home.packages("0") if engine.home and engine.home.packages else ()
    names = {match[1].lower() for text in brought if (match := _PINNED.match(text))}
    for text in requirements:
        match = _PINNED.match(text)
        if match and (match[1].lower() in names or match[1].lower().startswith(engine.name)):
            return match[2]
    return None


def complaints(engine: Engine, version: str | None, options: Options) -> list[Complaint]:
    """What is wrong with options of an engine at a version, None where it is not known yet."""
    asked = list(_asked(options))
    found = [one for name, value in asked if (one := _known(engine, version, name, value))]
    listed = catalogue(engine.name)
    if listed is None:
        return found
    release, exact = listed.nearest(version)
    check = _Check(engine.name, release, exact, listed, whole=listed.complete and bool(version))
    return found + [one for name, value in asked if (one := check(name, value))]


def _asked(options: Options) -> Iterator[tuple[str, Any]]:
    """Names and values, in every spelling: arguments, dotted keys, variables."""
    words = options.arguments
    for place, word in enumerate(words):
        if not word.startswith("-") or _NUMBER.match(word):
            continue
        name, equals, value = word.partition("=")
        after = words[place + 1] if place + 1 < len(words) else ""
        taken = value if equals else None if after.startswith("--") or not after else after
        yield name, taken
    yield from flat(options.config).items()
    yield from options.env.items()


def _known(engine: Engine, version: str | None, name: str, value: Any) -> Complaint | None:
    for one in engine.known:
        if name.lstrip("-") != one.option.lstrip("-") or value is False:
            continue
        if one.value is None or value in (one.value, None):
            return _failing(engine.name, one, version)
    return None


def _failing(engine: str, one: Known, version: str | None) -> Complaint:
    here = version is not None and any(is_version(version, known) for known in one.versions)
    when = f"{engine} {' and '.join(one.versions)}"
    what = f"{one.option} is known to fail in {when}: {one.error} ({one.cause})"
    return Complaint(what=what, hint=one.remedy, fatal=here)


class _Check:
    """Names and values held against one list."""

    def __init__(
        self, engine: str, release: str, exact: bool, listed: Catalogue, *, whole: bool
    ) -> None:
        self.engine, self.release, self.exact, self.listed = engine, release, exact, listed
        self.whole = whole
        self.options = listed.versions[release]
        self.names = {n: o for name, o in self.options.items() for n in (name, *o.aliases)}
        self.by_variables = all(name.isupper() for name in self.names)

    def __call__(self, name: str, value: Any) -> Complaint | None:
        option = self.find(name)
        if option is None:
            return self.unknown(name) if self.ours(name) else None
        if option.choices and value is not None and str(value) not in map(str, option.choices):
            return self.not_a_choice(name, value, option)
        if option.deprecated:
            why = f": {option.deprecated}" if isinstance(option.deprecated, str) else ""
            return Complaint(what=f"{self.engine} {self.release} says {name} is deprecated{why}")
        return None

    def ours(self, name: str) -> bool:
        """Whether the list should have it: of variables it is whole only for an engine that is set
        by nothing else."""
        whole = self.by_variables and name.startswith(f"{self.engine.upper()}_")
        return not name.isupper() or whole

    def find(self, name: str) -> Option | None:
        if self.listed.underscores and name.startswith("--"):
            name = name.replace("_", "-")
        if name in self.names:
            return self.names[name]
        if name.startswith("-"):
            return self.shortened(name)
        return self.inside(name)

    def shortened(self, name: str) -> Option | None:
        """A beginning that only one option has, a part of a JSON option, a short one with its
        value."""
        whole, dot, _ = name.partition(".")
        if dot and whole in self.names:
            return Option()
        if re.fullmatch(r"-[A-Za-z]\d+", name) and name[:2] in self.names:
            return Option()
        begun = {id(o): o for n, o in self.names.items() if n.startswith(name)}
        return next(iter(begun.values())) if self.listed.abbreviates and len(begun) == 1 else None

    def inside(self, name: str) -> Option | None:
        """A key below one whose own keys are not listed."""
        above = name.rpartition(".")[0]
        while above:
            if above in self.names:
                listed = any(n.startswith(f"{above}.") for n in self.names)
                return None if listed else Option()
            above = above.rpartition(".")[0]
        return None

    def unknown(self, name: str) -> Complaint:
        alike = [n for n in self.names if n.startswith("-") == name.startswith("-")]
        near = difflib.get_close_matches(name, alike, n=1, cutoff=NEAR)
        what = f"{self.engine} {self.release} has no option {name!r}"
        hint = f"did you mean {near[0]!r}?" if near else f"kvroom engines {self.engine} lists them"
        slip = bool(difflib.get_close_matches(name, alike, n=1, cutoff=MISSPELT))
        if self.exact and (slip or self.whole):
            return Complaint(what=what, hint=hint, fatal=True)
        if self.exact:
            return Complaint(what=f"{what} that is known here", hint=hint)
        doubt = f"{what}, which is the nearest version whose options are known"
        return Complaint(what=doubt, hint=hint)

    def not_a_choice(self, name: str, value: Any, option: Option) -> Complaint:
        words = [str(choice) for choice in option.choices]
        near = difflib.get_close_matches(str(value), words, n=1, cutoff=NEAR)
        hint = f"did you mean {near[0]!r}?" if near else f"one of {_some(words)}"
        what = f"{self.engine} {self.release} does not take {value!r} for {name}"
        return Complaint(what=what, hint=hint, fatal=self.exact)


def _some(words: Sequence[str]) -> str:
    more = f" and {len(words) - SHOWN_CHOICES} more" if len(words) > SHOWN_CHOICES else ""
    return ", ".join(words[:SHOWN_CHOICES]) + more


def _common(first: str, second: str) -> int:
    same = (a == b for a, b in zip(first, second, strict=False))
    return sum(itertools.takewhile(bool, same))


def defaults(engine: str, version: str | None) -> Mapping[str, Option]:
    """The options of the nearest listed version by each spelling; empty where there is no list."""
    listed = catalogue(engine)
    options = listed.versions[listed.nearest(version)[0]] if listed else {}
    return {spelt: one for name, one in options.items() for spelt in (name, *one.aliases)}
