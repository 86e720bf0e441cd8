"""The report as Markdown."""

import re

from kvroom.report.document import Document, Failure
from kvroom.report.table import Cell, Table
from kvroom.report.terminal import clean

MARKS = {"": "{}", "best": "**{} \\***", "alike": "{} =", "bad": "{} !"}
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~])")


def markdown(report: Document) -> str:
    """The report as one Markdown text."""
    parts = [
        f"# {escape(report.title)}",
        escape(report.verdict),
        *(escape(change) for change in report.changes),
        *(_table(table) for table in report.tables),
        "\n".join(f"- {escape(why)}" for why in report.why),
        *(_failure(failure) for failure in report.failures),
        "\n".join(f"- {escape(note)}" for note in report.notes),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _table(table: Table) -> str:
    names = [f"{first} {second}".strip() for first, second in table.columns]
    lines = [
        f"**{escape(table.title)}**",
        "",
        "| " + " | ".join(escape(name) for name in names) + " |",
        "|---|" + ("---|" if table.words else "---:|") * (len(names) - 1),
        *("| " + " | ".join(_cell(cell) for cell in row) + " |" for row in table.rows),
    ]
    return "\n".join(lines)


def _cell(cell: Cell) -> str:
    return MARKS[cell.mark].format(escape(cell.text))


def _failure(failure: Failure) -> str:
    text = f"**{escape(failure.contender)}**: {escape(failure.what)}"
    if failure.hint:
        text += f" ({escape(failure.hint)})"
    if not failure.lines:
        return text
    return text + "\n\n" + "\n".join(f"    {clean(line)}" for line in failure.lines)


def escape(text: str) -> str:
    """Text in which nothing is Markdown or HTML."""
    return _SPECIAL.sub(r"\\\1", clean(text))
