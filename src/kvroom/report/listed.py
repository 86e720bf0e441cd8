"""Engines and their options, and what is wrong with those of a matchup."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec
from rich.console import Console
from rich.text import Text

from kvroom import engines
from kvroom.catalogue import Complaint, Option, catalogue, defaults
from kvroom.engine import Engine, Known
from kvroom.report.table import NOTHING, Cell, Table
from kvroom.report.terminal import clean, rich_table
from kvroom.spelling import Spelling, spellings

SHOWN_DEFAULT = 40


class Checked(Protocol):
    """A contender that was looked at."""

    @property
    def contender(self) -> str:
        """Its name."""

    @property
    def command(self) -> str:
        """What would be started."""

    @property
    def complaints(self) -> Sequence[Complaint]:
        """What is wrong or doubtful."""


def show(name: str | None, release: str | None, out: Console) -> None:
    """Print all engines, or one with its settings and options."""
    if name is None:
        out.print(rich_table(_all()))
        return
    engine = engines.engine(name)
    out.print(Text(f"{engine.name}: {engine.summary}\n", style="bold"))
    out.print(rich_table(_settings(engine, release)))
    for known in engine.known:
        _line(out, _failure(known))
    if catalogue(name) is not None:
        out.print(rich_table(_options(engine, release)))


def _all() -> Table:
    rows = [[Cell(text) for text in _row(engines.engine(name))] for name in engines.names()]
    columns = [
        ("engine", ""),
        ("on the PATH", ""),
        ("wheel", ""),
        ("image", ""),
        ("options of", ""),
    ]
    return Table(title="Engines", columns=columns, rows=rows, words=True)


def _row(engine: Engine) -> list[str]:
    home, listed = engine.home, catalogue(engine.name)
    wheel = home.packages("*")[0].partition("=")[0] if home and home.packages else ""
    versions = ", ".join(listed.versions) if listed else ""
    where = [home.program, wheel, home.image.partition(":")[0]] if home else ["only by url", "", ""]
    return [engine.name, *(text or NOTHING for text in where), versions or NOTHING]


def _settings(engine: Engine, release: str | None) -> Table:
    known = defaults(engine.name, release)
    rows = [[Cell(text) for text in _setting(one, known)] for one in spellings(engine)]
    rows += [[Cell(name), Cell("cannot"), Cell(why)] for name, why in engine.cannot.items()]
    columns = [("setting", ""), ("its own option", ""), ("default, or why not", "")]
    return Table(title="Settings", columns=columns, rows=rows, words=True)


def _setting(one: Spelling, known: Mapping[str, Option]) -> list[str]:
    first = known.get(one.names[0]) if one.names else None
    return [one.setting, ", ".join(one.names) or "by itself", _shown(first) if first else ""]


def _options(engine: Engine, release: str | None) -> Table:
    listed = catalogue(engine.name)
    assert listed is not None
    version, exact = listed.nearest(release)
    doubt = "" if exact else f" (the nearest known to {release})"
    rows = [
        [Cell(", ".join((name, *option.aliases))), Cell(_shown(option)), Cell(_remark(option))]
        for name, option in listed.versions[version].items()
    ]
    return Table(
        title=f"Options of {engine.name} {version}{doubt}",
        columns=[("option", ""), ("default", ""), ("", "")],
        rows=rows,
        words=True,
    )


def _shown(option: Option) -> str:
    if option.default is None:
        return NOTHING
    text = option.default if isinstance(option.default, str) else _json(option.default)
    return text[:SHOWN_DEFAULT]


def _remark(option: Option) -> str:
    if option.deprecated:
        return "deprecated"
    choices = "|".join(map(str, option.choices))
    return choices if len(choices) <= SHOWN_DEFAULT else f"{len(option.choices)} choices"


def _failure(known: Known) -> str:
    return (
        f"{known.option} fails in {', '.join(known.versions)}: {known.error}; {known.cause}. "
        f"Remedy: {known.remedy}."
    )


def show_checked(file: str, found: Sequence[Checked], out: Console) -> None:
    """Print what would be started and what is wrong with it."""
    for one in found:
        fatal = any(complaint.fatal for complaint in one.complaints)
        _line(out, f"{file}: {one.contender}: {'wrong' if fatal else 'ok'}", "red" if fatal else "")
        for line in _complaints(one):
            _line(out, f"  {line}")
        for line in [] if fatal else one.command.splitlines():
            _line(out, f"  {line}", "dim")


def _complaints(one: Checked) -> Iterator[str]:
    for complaint in one.complaints:
        hint = f"; {complaint.hint}" if complaint.hint else ""
        yield f"{'error' if complaint.fatal else 'note'}: {complaint.what}{hint}"


def _line(out: Console, text: str, style: str = "") -> None:
    out.print(Text(clean(text), style=style), soft_wrap=True)


def data(name: str | None, release: str | None) -> Any:
    """The same as plain values, for ``--json``."""
    if name is None:
        return [_engine_data(engines.engine(one), None) for one in engines.names()]
    listed = catalogue(name)
    options = listed.versions[listed.nearest(release)[0]] if listed else {}
    return _engine_data(engines.engine(name), release) | {"options": msgspec.to_builtins(options)}


def _engine_data(engine: Engine, release: str | None) -> dict[str, Any]:
    home, listed = engine.home, catalogue(engine.name)
    return {
        "name": engine.name,
        "summary": engine.summary,
        "program": home.program if home else None,
        "image": home.image if home else None,
        "formats": list(engine.formats),
        "versions": list(listed.versions) if listed else [],
        "version": listed.nearest(release)[0] if listed else None,
        "settings": {one.setting: list(one.names) for one in spellings(engine)},
        "cannot": dict(engine.cannot),
        "known_failures": [vars(known) for known in engine.known],
    }


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
