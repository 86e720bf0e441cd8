"""The report for a terminal."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kvroom.report.document import Cell, Document

MARKS = {"": "", "best": " *", "alike": " =", "bad": " !"}
STYLES = {"": "", "best": "bold green", "alike": "green", "bad": "bold red"}


def show(report: Document, console: Console) -> None:
    """Print the report; what a mark says is said in characters too, not by colour alone."""
    table = Table(title=_plain(report.title), title_justify="left", title_style="bold")
    for number, column in enumerate(report.columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=not number)
    for row in report.rows:
        table.add_row(*(_cell(cell) for cell in row))
    console.print(table)
    console.print(Text(report.verdict, style="bold"))
    for failure in report.failures:
        console.print(Text(f"! {failure.contender}: {clean(failure.what)}", style="red"))
        for line in failure.lines:
            console.print(Text(f"    {clean(line)}", style="dim"))
        if failure.hint:
            console.print(Text(f"  hint: {failure.hint}"))
    for note in report.notes:
        console.print(Text(clean(note), style="dim"))
    console.print(Text(f"Run: {report.run_path}"))


def _cell(cell: Cell) -> Text:
    return Text(clean(cell.text) + MARKS[cell.mark], style=STYLES[cell.mark])


def _plain(text: str) -> Text:
    return Text(clean(text))


def clean(text: str) -> str:
    """Text of an engine or a file without anything that could steer a terminal."""
    return "".join(c if c.isprintable() else " " for c in text)
