"""The tables of a report: who is how fast, and what happened at the highest level."""

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from kvroom.analyse.compare import rank
from kvroom.analyse.contender import Measured
from kvroom.analyse.metrics import LevelMetrics
from kvroom.analyse.noise import Noise, noise
from kvroom.stats import Percentiles, Spread

Mark = Literal["", "best", "alike", "bad"]
NOTHING = "-"
UNSTEADY = 0.025
"""Half the range of the rounds, as a share of their mean, from which it is shown."""


class Cell(msgspec.Struct, frozen=True):
    """A cell and how it stands among its column."""

    text: str
    mark: Mark = ""


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of cells; each column name has two short lines."""

    title: str
    columns: list[tuple[str, str]]
    rows: list[list[Cell]]
    words: bool = False
    """Whether its cells hold words, which begin at the left and may be folded, not figures."""


Column = tuple[tuple[str, str], list[Cell]]
Value = Callable[[Measured], float | None]


def overview(contenders: Sequence[Measured], levels: Sequence[int]) -> Table:
    """Contender x concurrency, and one user's view, the KV room as logged, the start."""
    floor = noise(contenders)

    def figures(value: Value, form: str, *, least: bool = False) -> list[Cell]:
        return _figures([value(one) for one in contenders], form, floor, least=least)

    few = min(levels)
    columns: list[Column] = [
        *((("tok/s", f"at {level}"), _throughputs(contenders, level, floor)) for level in levels),
        (("TTFT ms", f"at {few}"), figures(_ttft_at(few), "{:.0f}", least=True)),
        (("decode", f"at {few}"), figures(_decode_at(few), "{:.1f}")),
        (("KV room", "tokens"), figures(_kv_tokens, "{:,.0f}")),
        (("ready", "s"), figures(_ready_s, "{:.1f}", least=True)),
    ]
    return _table("Output tokens per second, by concurrent requests", contenders, columns)


def pressure(contenders: Sequence[Measured], level: int) -> Table:
    """What a level did to the requests: how many streamed at once, how long the others waited."""

    def each(show: Callable[[LevelMetrics], str]) -> list[Cell]:
        found = [one.level(level) for one in contenders]
        return [Cell(show(m)) if m and m.completed else Cell(NOTHING) for m in found]

    columns: list[Column] = [
        (("streaming", "at once"), each(lambda m: f"{m.first_round.flight.max_streaming}")),
        (("TTFT ms", "p50"), each(lambda m: _shown(m.ttft_ms, "p50"))),
        (("TTFT ms", "p99"), each(lambda m: _shown(m.ttft_ms, "p99"))),
        (("TPOT ms", "p50"), each(lambda m: _shown(m.tpot_ms, "p50"))),
        (("ITL ms", "longest"), each(lambda m: _shown(m.itl_ms, "max"))),
        (("E2EL ms", "p99"), each(lambda m: _shown(m.e2el_ms, "p99"))),
        (("answers", "whole"), each(lambda m: f"{m.completed}/{m.completed + m.failed}")),
    ]
    return _table(f"Under pressure: {level} concurrent requests", contenders, columns)


def _table(title: str, contenders: Sequence[Measured], columns: Sequence[Column]) -> Table:
    names = [Cell(one.contender.name) for one in contenders]
    rows = zip(names, *(cells for _, cells in columns), strict=True)
    return Table(
        title=title,
        columns=[("contender", ""), *(name for name, _ in columns)],
        rows=[list(row) for row in rows],
    )


def _throughputs(contenders: Sequence[Measured], level: int, floor: Noise) -> list[Cell]:
    ranked = rank(contenders, level, floor)
    marks: dict[str, Mark] = {}
    if len(ranked.order) > 1:
        marks = dict.fromkeys(ranked.alike, "alike")
        marks[ranked.order[0]] = "alike" if ranked.alike else "best"
    return [_throughput(one, level, marks.get(one.contender.name, "")) for one in contenders]


def _throughput(one: Measured, level: int, mark: Mark) -> Cell:
    metrics = one.level(level)
    if metrics is None:
        return Cell(NOTHING)
    if metrics.failed:
        return Cell(f"{metrics.failed}/{metrics.failed + metrics.completed} failed", "bad")
    if level in one.voids:
        return Cell("void", "bad")
    spread = metrics.output_throughput_rounds
    return Cell(NOTHING) if spread is None else Cell(_mean(spread), mark)


def _mean(spread: Spread) -> str:
    """The mean, with half the range where the rounds lie visibly apart."""
    half = (spread.high - spread.low) / 2 / spread.mean
    return f"{spread.mean:.0f}" + (f"±{half:.0%}" if half > UNSTEADY else "")


def _figures(values: Sequence[float | None], form: str, floor: Noise, *, least: bool) -> list[Cell]:
    """One figure per contender; what lies within noise of the best counts as like the best."""
    known = [v for v in values if v is not None]
    best = (min(known) if least else max(known)) if known else 0.0
    near = [v for v in known if max(v, best) <= (1 + floor.limit) * min(v, best)]
    mark: Mark = "alike" if len(near) > 1 else "best"
    return [
        Cell(NOTHING)
        if v is None
        else Cell(form.format(v), mark if v in near and len(known) > 1 else "")
        for v in values
    ]


def _ttft_at(level: int) -> Value:
    return lambda one: m.ttft_ms.p50 if (m := one.level(level)) and m.ttft_ms else None


def _decode_at(level: int) -> Value:
    def speed(one: Measured) -> float | None:
        metrics = one.level(level)
        speeds = metrics.decode_tokens_per_s if metrics else None
        return speeds.p50 if speeds else None

    return speed


def _kv_tokens(one: Measured) -> float | None:
    fact = one.facts.get("kv_tokens")
    return float(fact.value) if fact else None


def _ready_s(one: Measured) -> float | None:
    return one.start.ready_s if one.start else None


def _shown(sample: Percentiles | None, which: str) -> str:
    return NOTHING if sample is None else f"{getattr(sample, which):,.0f}"
