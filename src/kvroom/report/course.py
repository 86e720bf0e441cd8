"""Tables of what has a course: starts phase by phase, requests over time, settings compared."""

from collections.abc import Iterator, Sequence

from kvroom.analyse.contender import Measured, StartTold
from kvroom.analyse.effective import Compared, Effective, compared
from kvroom.analyse.live import Live, Moment
from kvroom.report.table import NOTHING, Cell, Table

BARS = "▁▂▃▄▅▆▇█"
EMPTY = "·"
WIDTH = 24
"""Columns of a drawing."""
LEAST_SHARE = 0.01
"""Phases shorter than this share of a start are not shown."""
HOW = {"logged": "", "set": " (set)", "default": " (default)"}


def starts(contenders: Sequence[Measured]) -> Table | None:
    """Each start as a waterfall of its phases; None where no engine tells any."""
    rows = [row for one in contenders for start in one.starts for row in _waterfall(one, start)]
    columns = [("contender", ""), ("phase", ""), ("took", "s"), ("ended", "s"), ("", "")]
    return Table(title="Starts, phase by phase", columns=columns, rows=rows) if rows else None


def _waterfall(one: Measured, start: StartTold) -> Iterator[list[Cell]]:
    whole = start.ready_s
    name = one.contender.name + (f" ({start.kind})" if start.kind else "")
    at_s = 0.0
    for phase in start.phases:
        began, at_s = at_s, at_s + phase.seconds
        if phase.seconds >= LEAST_SHARE * whole:
            drawn = _bar(began / whole, at_s / whole)
            texts = (name, phase.name, f"{phase.seconds:.1f}", f"{at_s:.1f}", drawn)
            yield [Cell(text) for text in texts]
            name = ""


def _bar(first: float, last: float) -> str:
    left = min(round(first * WIDTH), WIDTH - 1)
    length = max(1, round(last * WIDTH) - left)
    return EMPTY * left + "█" * length + EMPTY * (WIDTH - left - length)


def over_time(contenders: Sequence[Measured], level: int) -> Table | None:
    """Running, waiting and the cache over a level; None where no gauge tells them."""
    rows = [
        row
        for one in contenders
        if (live := one.live.get(level)) and live.running_max is not None
        for row in _gauges(one, live)
    ]
    columns = [("contender", ""), ("gauge", ""), ("most", ""), ("mean", ""), ("over time", "")]
    title = f"Over time, by the engines' own gauges: {level} concurrent requests"
    return Table(title=title, columns=columns, rows=rows) if rows else None


def _gauges(one: Measured, live: Live) -> Iterator[list[Cell]]:
    name = one.contender.name
    for gauge, form in (("running", "{:.0f}"), ("waiting", "{:.0f}"), ("kv_cache_usage", "{:.0%}")):
        values = [v for moment in live.series if (v := getattr(moment, gauge)) is not None]
        if values:
            mean = sum(values) / len(values)
            shown = "{:.1f}" if form == "{:.0f}" else form
            drawn = _drawn(live.series, gauge)
            texts = (name, gauge, form.format(max(values)), shown.format(mean), drawn)
            yield [Cell(text) for text in texts]
            name = ""


def _drawn(series: Sequence[Moment], gauge: str) -> str:
    """A gauge as a row of bars, each the most of its share of time; a dot where nobody looked."""
    end = series[-1].at_s or 1.0
    most: list[float | None] = [None] * WIDTH
    for moment in series:
        value, place = getattr(moment, gauge), min(WIDTH - 1, int(moment.at_s / end * WIDTH))
        if value is not None:
            most[place] = max(value, most[place] or 0.0)
    top = max((value for value in most if value is not None), default=0.0) or 1.0
    return "".join(EMPTY if v is None else BARS[round(v / top * (len(BARS) - 1))] for v in most)


def settings(contenders: Sequence[Measured]) -> Table | None:
    """The settings in effect side by side; None where nothing is known."""
    rows = [_setting(one) for one in compared(contenders)]
    names = [one.contender.name for one in contenders]
    columns = [("setting", ""), ("", ""), *((name, "") for name in names)]
    return (
        Table(title="Settings in effect", columns=columns, rows=rows, words=True) if rows else None
    )


def _setting(one: Compared) -> list[Cell]:
    differs = "differs" if one.differs else ""
    return [Cell(one.setting), Cell(differs), *(Cell(_value(v)) for v in one.values.values())]


def _value(value: Effective | None) -> str:
    return NOTHING if value is None else f"{value.value}{HOW[value.how]}"
