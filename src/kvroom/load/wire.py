"""Bytes of one answer -> what it says. No I/O: the bytes are all there, with their arrival times.

The answer is read strictly as HTTP/1.1 and server-sent events. Events are cut at any of the three
line endings; comments, unknown fields and blank data are skipped. Of newline-delimited JSON each
line is an event.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator

import msgspec


class Unreadable(Exception):
    """The bytes are not what HTTP, server-sent events or JSON allow."""


class Cut(Exception):
    """The bytes end before the answer does."""


class Event(msgspec.Struct, frozen=True, gc=False):
    """One server-sent event; ``complete_at`` is the offset of its last byte in the raw bytes."""

    name: bytes
    data: bytes
    complete_at: int


class Answer(msgspec.Struct, kw_only=True):
    """A whole answer, taken apart."""

    status: int
    reason: str
    events: list[Event]
    body: bytes
    complete: bool
    """Whether the body ended as HTTP says it must."""


_LINE_END = re.compile(rb"\r\n|\n|\r")
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})(?: ([^\r\n]*))?")
MAX_HEAD_BYTES = 1 << 16
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_answer(raw: bytes, *, closed: bool) -> Answer:
    """Take an answer apart. ``closed`` says whether the server has closed the connection.

    Raises Cut when not even the head is complete, Unreadable when it is not HTTP.
    """
    head_end = raw.find(b"\r\n\r\n", 0, MAX_HEAD_BYTES)
    if head_end < 0:
        if len(raw) >= MAX_HEAD_BYTES or not b"HTTP/1.".startswith(raw[:7]):
            raise Unreadable(f"not an HTTP answer: {raw[:60]!r}")
        raise Cut("the connection closed before the answer began")
    lines = raw[:head_end].split(b"\r\n")
    status = _STATUS.match(lines[0])
    if status is None:
        raise Unreadable(f"not an HTTP answer: {lines[0][:60]!r}")
    headers = dict(_header(line) for line in lines[1:])
    if headers.get(b"content-encoding", b"identity") != b"identity":
        raise Unreadable(f"a compressed answer ({headers[b'content-encoding'].decode()})")
    pieces, complete = _body(raw, head_end + 4, headers, closed)
    body = b"".join(raw[start:end] for start, end in pieces)
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    cut = _CUTTERS.get(kind)
    return Answer(
        status=int(status[1]),
        reason=(status[2] or b"").decode("latin-1"),
        events=list(cut(body, pieces)) if cut else [],
        body=body,
        complete=complete,
    )


def _header(line: bytes) -> tuple[bytes, bytes]:
    name, _, value = line.partition(b":")
    return name.strip().lower(), value.strip()


Pieces = list[tuple[int, int]]


def _body(raw: bytes, start: int, headers: dict[bytes, bytes], closed: bool) -> tuple[Pieces, bool]:
    """Where in the raw bytes the body lies, and whether it is complete."""
    if b"chunked" in headers.get(b"transfer-encoding", b"").lower():
        return _chunks(raw, start)
    if b"content-length" in headers:
        try:
            length = int(headers[b"content-length"])
        except ValueError:
            raise Unreadable("a content-length that is no number") from None
        return [(start, min(len(raw), start + length))], len(raw) >= start + length
    return [(start, len(raw))], closed


def _chunks(raw: bytes, at: int) -> tuple[Pieces, bool]:
    pieces: Pieces = []
    while (line_end := raw.find(b"\r\n", at)) >= 0:
        try:
            size = int(raw[at:line_end].partition(b";")[0], 16)
        except ValueError:
            raise Unreadable(f"a broken chunk length: {raw[at : at + 20]!r}") from None
        if size < 0:
            raise Unreadable("a negative chunk length")
        if size == 0:
            return pieces, True
        start = line_end + 2
        pieces.append((start, min(len(raw), start + size)))
        at = start + size + 2
        if raw[start + size : at] not in (b"\r\n", b"\r", b""):
            raise Unreadable("a chunk longer than it says")
        if at > len(raw):
            break
    return pieces, False


def _events(body: bytes, pieces: Pieces) -> Iterator[Event]:
    """Events whose last line is complete; each with its place in the raw bytes."""
    ends = _running_ends(pieces)
    name, data = b"", []
    at, complete_at = 0, 0
    if body.startswith(BYTE_ORDER_MARK):
        at = len(BYTE_ORDER_MARK)
    for match in _LINE_END.finditer(body, at):
        line = body[at : match.start()]
        at = match.end()
        if line.startswith(b"data:"):
            data.append(line[6:] if line[5:6] == b" " else line[5:])
            complete_at = match.start()
        elif line.startswith(b"event:"):
            name = line[6:].strip()
        elif not line:
            if data:
                yield Event(name, b"\n".join(data), _raw_offset(complete_at, ends, pieces))
            name, data = b"", []
    if data:
        yield Event(name, b"\n".join(data), _raw_offset(complete_at, ends, pieces))


def _lines(body: bytes, pieces: Pieces) -> Iterator[Event]:
    """Lines that are complete, as events; each with its place in the raw bytes."""
    ends, at = _running_ends(pieces), 0
    while (end := body.find(b"\n", at)) >= 0:
        if line := body[at:end].strip():
            yield Event(b"", line, _raw_offset(end, ends, pieces))
        at = end + 1


_CUTTERS = {b"text/event-stream": _events, b"application/x-ndjson": _lines}


def _running_ends(pieces: Pieces) -> list[int]:
    total, ends = 0, []
    for start, end in pieces:
        total += end - start
        ends.append(total)
    return ends


def _raw_offset(offset: int, ends: list[int], pieces: Pieces) -> int:
    """Offset in the raw bytes of an offset in the body."""
    index = bisect_left(ends, offset + 1)
    before = ends[index - 1] if index else 0
    return pieces[index][0] + offset - before
