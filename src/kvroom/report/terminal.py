"""The report for a terminal."""

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from kvroom.report.document import Document, Failure
from kvroom.report.table import Cell, Table

MARKS = {"": " ", "best": "*", "alike": "=", "bad": "!"}
STYLES = {"": "", "best": "bold green", "alike": "green", "bad": "bold red"}
PIPED_WIDTH = 120
SHOWN_LINES = 5
NAME_WIDTH = 16
"""Names are folded, but not to fewer characters than this."""


def console(*, stderr: bool) -> Console:
    """A console as wide as the terminal, or wide enough for the tables in a file or a pipe."""
    made = Console(stderr=stderr, highlight=False)
    if not made.is_terminal:
        made.width = PIPED_WIDTH
    return made


def show(report: Document, out: Console) -> None:
    """Print the report; what a mark says is said in characters too, not by colour alone."""
    for table in report.tables:
        out.print(rich_table(table))
    out.print(Text(clean(report.verdict), style="bold"))
    for change in report.changes:
        out.print(Text(clean(change), style="bold"))
    out.print()
    for why in report.why:
        out.print(Text(clean(why)))
    if report.why:
        out.print()
    for failure in report.failures:
        _show_failure(failure, out)
    for note in report.notes:
        out.print(Text(clean(note), style="dim"), soft_wrap=not out.is_terminal)
    out.print(Text(f"Run: {clean(report.run_path)}"), soft_wrap=True)


def rich_table(table: Table) -> RichTable:
    """A table with marks in characters, narrow enough for 80 columns."""
    made = RichTable(title=table.title, title_justify="left", title_style="bold")
    made.box, made.padding = box.SIMPLE_HEAD, (0, 1 if table.words else 0)
    longest = max((len(row[0].text) for row in table.rows), default=0)
    made.add_column(table.columns[0][0], overflow="fold", min_width=min(longest, NAME_WIDTH))
    marked = [any(row[n].mark for row in table.rows) for n in range(len(table.columns))]
    for number, (first, second) in enumerate(table.columns[1:], start=1):
        space = MARKS[""] if marked[number] else ""
        head = f"{first}{space}\n{second}{space}" if any(s for _, s in table.columns) else first
        if table.words:
            made.add_column(head, overflow="fold")
        else:
            made.add_column(head, justify="right", no_wrap=True)
    for name, *cells in table.rows:
        texts = (_cell(cell, marks) for cell, marks in zip(cells, marked[1:], strict=True))
        made.add_row(clean(name.text), *texts)
    return made


def _cell(cell: Cell, marked: bool) -> Text:
    text = clean(cell.text) + (MARKS[cell.mark] if marked else "")
    return Text(text, style=STYLES[cell.mark])


def _show_failure(failure: Failure, out: Console) -> None:
    out.print(Text(f"! {failure.contender}: {clean(failure.what)}", style="red"))
    for line in failure.lines[-SHOWN_LINES:]:
        out.print(Text(f"    {clean(line)}", style="dim"), no_wrap=True, overflow="ellipsis")
    if failure.log:
        out.print(Text(f"  log: {clean(failure.log)}"), soft_wrap=True)
    if failure.hint:
        out.print(Text(f"  hint: {clean(failure.hint)}"))


def clean(text: str) -> str:
    """Text of an engine or a file without anything that could steer a terminal."""
    return "".join(c if c.isprintable() else " " for c in text)
