"""A log file -> numbered lines, in bounded memory, without what terminals and containers add.

Given marks, only those lines of a large log are made that have one of them; the others are counted,
at the speed of a search for bytes.
"""

import io
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from kvroom.errors import InputError
from kvroom.records import LogLine

CHUNK_BYTES = 1 << 20
MAX_LINE_BYTES = 1 << 16
LARGE_BYTES = 8 << 20
"""From here on marks choose the lines; in smaller logs every line is worth a try."""

_ESCAPE = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_WRAPPED = (
    re.compile(r"^\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d) (?:std(?:out|err) [FP] )?"),
    re.compile(r"^\[pod/[^\]]+\] "),
    re.compile(r"^[\w.-]+ +\| "),
)
"""A container runtime's time stamp and stream, kubectl's name of a pod, compose's of a service."""
_TEXT_KEYS = ("log", "msg", "message", "textPayload")


def log_lines(log: Path, times: Path | None = None, marks: Sequence[str] = ()) -> Iterator[LogLine]:
    """The lines of a log, of a large one those that have one of the marks; overlong ones are cut.

    InputError if it cannot be read.

    With a file of arrival times, a line in ns for each line of the log, they carry theirs.
    """
    with _readable(log) as file, _opened(times) as stamps:
        large = file.seek(0, 2) > LARGE_BYTES
        file.seek(0)
        wanted = [mark.encode() for mark in marks] if large else []
        read = 0
        for number, line in _numbered(file, wanted):
            stamp = next(islice(stamps, number - read - 1, None), b"").strip()
            read = number
            yield LogLine(number, plain(line), int(stamp) / 1e9 if stamp.isdigit() else None)


def _readable(log: Path) -> BinaryIO:
    try:
        return log.open("rb")
    except OSError as error:
        raise InputError(f"cannot read {log}: {(error.strerror or str(error)).lower()}") from None


def _opened(times: Path | None) -> Any:
    return times.open("rb") if times is not None and times.exists() else io.BytesIO()


def _numbered(file: BinaryIO, marks: Sequence[bytes]) -> Iterator[tuple[int, bytes]]:
    """Lines and their numbers from 1 on, whole chunks of lines at a time."""
    number, rest, overlong = 1, b"", False
    while chunk := file.read(CHUNK_BYTES):
        if overlong:
            end = chunk.find(b"\n")
            if end < 0:
                continue
            chunk, overlong = chunk[end:], False
        data = rest + chunk
        end = data.rfind(b"\n") + 1
        rest = data[end:]
        if len(rest) > MAX_LINE_BYTES:
            rest, overlong = rest[:MAX_LINE_BYTES], True
        if end:
            yield from _within(data[:end], number, marks)
            number += data.count(b"\n", 0, end)
    if rest:
        yield from _within(rest, number, marks)


def _within(data: bytes, number: int, marks: Sequence[bytes]) -> Iterator[tuple[int, bytes]]:
    """The wanted lines of whole lines, of which the first has this number."""
    if not marks:
        for offset, line in enumerate(data.removesuffix(b"\n").split(b"\n")):
            yield number + offset, line[:MAX_LINE_BYTES]
        return
    done = 0
    for start in sorted({start for mark in marks for start in _starts(data, mark)}):
        number += data.count(b"\n", done, start)
        done = start
        end = data.find(b"\n", start)
        yield number, data[start : end if end >= 0 else None][:MAX_LINE_BYTES]


def _starts(data: bytes, mark: bytes) -> Iterator[int]:
    """Where the lines begin that have a mark."""
    found = data.find(mark)
    while found >= 0:
        yield data.rfind(b"\n", 0, found) + 1
        end = data.find(b"\n", found)
        found = data.find(mark, end) if end >= 0 else -1


def plain(line: bytes) -> str:
    """The text an engine wrote: what a terminal would show last of it, out of any wrapping."""
    text = line.decode("utf-8", errors="replace").rstrip("\r\n").rpartition("\r")[2]
    if "\x1b" in text:
        text = _ESCAPE.sub("", text)
    for wrapping in _WRAPPED:
        text = wrapping.sub("", text, count=1)
    return _unwrapped(text) if text.startswith("{") else text


def _unwrapped(text: str) -> str:
    """The message in a line of JSON, as Docker and some engines write them."""
    try:
        values = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text
    if isinstance(values, dict):
        for key in _TEXT_KEYS:
            if isinstance(values.get(key), str):
                return str(values[key]).rstrip("\n")
    return text
