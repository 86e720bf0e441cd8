"""Headers of safetensors files: names, dtypes, shapes and sizes of tensors, never their values.

A header comes from strangers. Its length, its tensors and their offsets are checked against the
file before anything is believed, and by the rules of the format itself: tensors tile the data
without a gap. A shard costs about a millisecond, whatever it weighs.
"""

import os
import re
import reprlib
import stat
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from kvroom.errors import InputError

DAMAGED = "the file is damaged or incomplete: fetch it again"

MAX_HEADER_BYTES = 64 << 20
MAX_VALUES = 2_000_000
"""Commas in a header or an index: with five to a tensor, 400,000 tensors."""
MAX_TENSORS = 2_000_000

LENGTH = struct.Struct("<Q")

BITS = {
    "F64": 64, "F32": 32, "F16": 16, "BF16": 16, "I64": 64, "I32": 32, "I16": 16, "I8": 8, "U8": 8,
    "U16": 16, "U32": 32, "U64": 64, "BOOL": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "C64": 64,
}  # fmt: skip

_DTYPE = re.compile(r"\w{1,32}", re.ASCII)


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One tensor in a header. ``__metadata__`` lies beside the tensors and has no offsets."""

    dtype: str = ""
    shape: tuple[int, ...] = ()
    data_offsets: tuple[int, int] = (-1, -1)


class Tensor(msgspec.Struct, frozen=True, gc=False):
    """A tensor's name, storage dtype and bytes."""

    name: str
    dtype: str
    size: int


_decode = msgspec.json.Decoder(dict[str, Entry]).decode
_decode_raw = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_entry = msgspec.json.Decoder(Entry).decode

MALFORMED = (msgspec.DecodeError, RecursionError)


def shown(text: object) -> str:
    """A name or value out of a file, safe and short enough to be printed."""
    return _short.repr(text)


_short = reprlib.Repr()
_short.maxstring = _short.maxother = 100


def tensors_of(files: Iterable[Path]) -> Iterator[Tensor]:
    """All tensors of safetensors files, by their headers, one file in memory at a time."""
    return bounded(tensor for path in files for tensor in header(path))


def bounded(tensors: Iterable[Tensor]) -> Iterator[Tensor]:
    """These tensors; InputError when they are more than any model has."""
    for number, tensor in enumerate(tensors):
        if number >= MAX_TENSORS:
            raise InputError(f"the checkpoint has more than {MAX_TENSORS:,} tensors")
        yield tensor


def header(path: Path) -> Iterator[Tensor]:
    """The tensors of one file; InputError if its header cannot be true."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            facts = os.fstat(descriptor)
            if not stat.S_ISREG(facts.st_mode):
                raise InputError(f"{path} is not a file", "move it out of the model folder")
            length = header_length(str(path), file.read(LENGTH.size), facts.st_size)
            text = file.read(length)
    except OSError as error:
        raise InputError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    return parse(str(path), text, facts.st_size - LENGTH.size - length)


def header_length(name: str, start: bytes, size: int) -> int:
    """Bytes of the JSON after these first eight of a file of ``size`` bytes."""
    if len(start) < LENGTH.size:
        raise InputError(f"{name} is too short to be safetensors", DAMAGED)
    (length,) = LENGTH.unpack(start)
    if length > size - LENGTH.size:
        raise InputError(f"{name}: the header says {length} bytes, the file has {size}", DAMAGED)
    if length > MAX_HEADER_BYTES:
        raise InputError(f"{name}: a header of {length} bytes is absurdly large")
    return int(length)


def parse(name: str, text: bytes, data_bytes: int) -> Iterator[Tensor]:
    """The tensors of a header's JSON; InputError unless they tile ``data_bytes`` exactly."""
    entries = _entries(name, text)
    order = sorted([(*entry.data_offsets, key) for key, entry in entries.items()])
    end = 0
    for start, stop, key in order:
        entry = entries[key]
        if start != end or stop < start:
            raise InputError(f"{name}: {shown(key)}: {_misplaced(start, stop, end)}", DAMAGED)
        end = stop
        _check_shape(name, key, entry)
        yield Tensor(key, entry.dtype, stop - start)
    if end != data_bytes:
        raise InputError(
            f"{name}: the tensors take {shown(end)} bytes, the file has {data_bytes} for them",
            DAMAGED,
        )


def _misplaced(start: int, stop: int, end: int) -> str:
    if start < 0 or stop < 0:
        return "it has no offsets, or negative ones"
    where = f"the offsets {shown(start)} to {shown(stop)}"
    if stop < start:
        return f"{where} are reversed"
    return f"{where} {'overlap another tensor' if start < end else 'leave a gap before it'}"


def _entries(name: str, text: bytes) -> dict[str, Entry]:
    """Checked for their number before any is made."""
    if text.count(b",") > MAX_VALUES:
        raise InputError(f"{name}: the header lists more than {MAX_VALUES:,} values")
    try:
        try:
            entries = _decode(text)
        except msgspec.ValidationError:  # __metadata__ may use a tensor's keys for other things
            raws = _decode_raw(text)
            entries = {key: _entry(raw) for key, raw in raws.items() if key != "__metadata__"}
    except MALFORMED as error:
        raise InputError(f"{name}: the header cannot be read: {error}", DAMAGED) from None
    entries.pop("__metadata__", None)
    return entries


def _check_shape(name: str, key: str, entry: Entry) -> None:
    """Bytes must be what dtype and shape make; of an unknown dtype the offsets tell the bytes."""
    bits = BITS.get(entry.dtype)
    if bits is None:
        if not _DTYPE.fullmatch(entry.dtype):
            raise InputError(f"{name}: {shown(key)}: {shown(entry.dtype)} is no dtype")
        return
    start, stop = entry.data_offsets
    wanted = 8 * (stop - start)
    for size in entry.shape:
        if size < 0:
            raise InputError(f"{name}: {shown(key)}: the dimension {shown(size)} is negative")
        bits = min(bits * size, wanted + 1) if size else 0
    if bits != wanted:
        raise InputError(
            f"{name}: {shown(key)}: {stop - start} bytes are not what the shape "
            f"{shown(list(entry.shape))} of {entry.dtype} takes",
            DAMAGED,
        )
