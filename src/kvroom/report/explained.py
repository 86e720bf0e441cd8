"""An explanation for a terminal."""

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from kvroom.explain.capacity import Capacity
from kvroom.explain.explain import Explanation
from kvroom.explain.finding import Change, Figure, Finding
from kvroom.explain.whole import Whole
from kvroom.report.reasons import forecast_text
from kvroom.report.table import NOTHING, Cell, Table
from kvroom.report.terminal import clean, rich_table
from kvroom.units import show_bytes

QUOTED = 160
MOST_QUOTES = 4
MOST_CHANGES = 4
INDENT = 4


def show_explanation(one: Explanation, out: Console) -> None:
    """Print findings with their evidence, the capacities side by side, and what to change."""
    for number, finding in enumerate(one.findings, start=1):
        _wrapped(out, f"{number}. {finding.cause}", finding.claim, "bold")
        for style, line in evidence(finding):
            out.print(Padding(Text(clean(line), style=style), (0, 0, 0, INDENT), expand=False))
        out.print()
    if one.growth:
        out.print(Text(clean(one.growth)))
        out.print()
    if not one.findings:
        out.print(Text("Not enough evidence for a cause.", style="bold"))
    for line in one.missing:
        out.print(Text(clean(f"  look for {line}")))
    if one.capacities:
        out.print(rich_table(capacities_table(one.capacities)))
    for line in told_changes(one.changes):
        out.print(Text(clean(line)))


def show_run(whole: Whole, out: Console, only: str | None = None) -> None:
    """Print the explanation of each contender, or of one, and of the gaps between them."""
    for one in whole.contenders:
        if only in (None, one.contender):
            level = f" at {one.concurrency}" if one.concurrency else ""
            out.rule(Text(clean(f"{one.contender}{level}"), style="bold"), align="left")
            show_explanation(one.explanation, out)
            out.print()
    for pair in whole.pairs if only is None else ():
        out.print(Text(clean(pair.told)))
        if pair.differs:
            out.print(Text(clean(f"    differs: {'; '.join(pair.differs)}"), style="dim"))


def _wrapped(out: Console, head: str, text: str, style: str) -> None:
    out.print(Text.assemble((clean(head), style), ": ", clean(text)))


def evidence(finding: Finding) -> Iterator[tuple[str, str]]:
    """Styles and lines: what is quoted, what was computed, what to do, what would settle it."""
    for quote in finding.quotes[:MOST_QUOTES]:
        cut = quote.text[:QUOTED] + ("..." if len(quote.text) > QUOTED else "")
        yield "dim", f"{quote.source}: {cut}"
    figures = ", ".join(figure_text(figure) for figure in finding.figures if figure.arithmetic)
    if figures:
        yield "dim", f"planned: {figures}"
    if finding.remedy:
        yield "", f"-> {finding.remedy}"
    if finding.confidence != "certain":
        yield "", f"{finding.confidence}" + (f"; to settle it: {finding.settle}" if finding.settle
                                             else "")  # fmt: skip


def figure_text(figure: Figure) -> str:
    """``fit 23 (534 // 23 = 23)``."""
    text = f"{figure.name} {value_text(figure.value, figure.unit)}"
    return f"{text} ({figure.arithmetic})" if figure.arithmetic else text


def value_text(value: float | str | None, unit: str) -> str:
    """A figure as people read it."""
    if value is None:
        return NOTHING
    if isinstance(value, str):
        return value
    return show_bytes(value) if unit == "bytes" and value >= 1 << 20 else f"{value:,.10g}"


def capacities_table(capacities: Sequence[Capacity]) -> Table:
    """Planned, logged and observed, a row a figure."""
    return Table(
        title="Capacity from three sides",
        columns=[
            ("figure", ""),
            ("planned", ""),
            ("logged", ""),
            ("observed", ""),
            ("agree", ""),
            ("line", ""),
        ],
        rows=[_row(one) for one in capacities],
    )


def _row(one: Capacity) -> list[Cell]:
    agrees = {True: "yes", False: "no", None: NOTHING}[one.agrees]
    return [
        Cell(one.name),
        *(Cell(value_text(side, one.unit)) for side in (one.planned, one.logged, one.observed)),
        Cell(agrees, "bad" if one.agrees is False else ""),
        Cell(one.source or NOTHING),
    ]


def told_changes(changes: Sequence[Change]) -> Iterator[str]:
    """The ranked changes, a few lines each."""
    if not changes:
        return
    yield "What to change, best first:"
    number = 0
    for change in changes[: MOST_CHANGES + 2]:
        if not change.to:
            yield f"   leave {change.setting} at {change.now}: {change.because}"
            continue
        number += 1
        yield f"{number}. {change.setting}: {change.now or '?'} -> {change.to}: {change.effect}"
        if change.tokens_per_s is not None:
            expected = forecast_text(change.tokens_per_s)
            yield f"   expected: {expected}, if a step costs what it does now"
        for name in ("because", "price", "verify"):
            if text := getattr(change, name):
                yield f"   {name}: {text}"
