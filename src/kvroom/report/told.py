"""The facts of a log, for people and for programs."""

from collections.abc import Sequence
from typing import Any

from kvroom.analyse.facts import Told
from kvroom.report.table import Cell, Table
from kvroom.units import show_bytes


def facts_table(engine: str, file: str, facts: Sequence[Told]) -> Table:
    """One row a fact: its last value, the line that says it, and what came before."""
    return Table(
        title=f"{file}: what {engine} says of itself",
        columns=[
            ("fact", ""),
            ("value", ""),
            ("line", ""),
            ("said", "times"),
            ("range", "or values"),
        ],
        rows=[_row(one) for one in facts],
    )


def _row(one: Told) -> list[Cell]:
    low, high = one.low, one.high
    spread = low is not None and high is not None and low != high
    return [
        Cell(one.last.name),
        Cell(_value(one, one.last.value)),
        Cell(f"{one.last.source.line:,}"),
        Cell(f"{one.times:,}"),
        Cell(f"{_value(one, low)} to {_value(one, high)}" if spread else _others(one)),
    ]


def _others(one: Told) -> str:
    return ", ".join(value[:40] for value in one.values[:4]) if len(one.values) > 1 else ""


def _value(one: Told, value: float | str | None) -> str:
    if isinstance(value, float):
        return show_bytes(value) if one.last.unit == "bytes" else f"{value:,.10g}"
    return str(value)[:80]


def facts_data(engine: str, facts: Sequence[Told]) -> dict[str, Any]:
    """The same as plain values, for ``--json``."""
    return {
        "engine": engine,
        "facts": {
            one.last.name: {
                "value": one.last.value,
                "unit": one.last.unit,
                "source": str(one.last.source),
                "first_line": one.first.source.line,
                "times": one.times,
                "values": one.values,
                "low": one.low,
                "high": one.high,
            }
            for one in facts
        },
    }
