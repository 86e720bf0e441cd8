"""The report as Markdown."""

import re

from kvroom.report.document import Cell, Document

MARKS = {"": "{}", "best": "**{}** \\*", "alike": "{} =", "bad": "{} !"}
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~])")


def markdown(report: Document) -> str:
    """The report as one Markdown text."""
    rows = ["| " + " | ".join(_cell(cell) for cell in row) + " |" for row in report.rows]
    parts = [
        f"# {escape(report.title)}",
        escape(report.verdict),
        "\n".join([_line(report.columns), "|---|" + "---:|" * (len(report.columns) - 1), *rows]),
    ]
    for failure in report.failures:
        text = f"**{escape(failure.contender)}**: {escape(failure.what)}"
        if failure.hint:
            text += f" ({escape(failure.hint)})"
        parts.append(text)
        if failure.lines:
            parts.append("\n".join(f"    {_printable(line)}" for line in failure.lines))
    parts.append("\n".join(f"- {escape(note)}" for note in report.notes))
    return "\n\n".join(parts) + "\n"


def _line(words: list[str]) -> str:
    return "| " + " | ".join(escape(word) for word in words) + " |"


def _cell(cell: Cell) -> str:
    return MARKS[cell.mark].format(escape(cell.text))


def escape(text: str) -> str:
    """Text in which nothing is Markdown or HTML."""
    return _SPECIAL.sub(r"\\\1", _printable(text))


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)
