"""Headers of safetensors files: names, dtypes, shapes and sizes of tensors, never their values.

A header comes from strangers. Its length, its tensors and their offsets are checked against the
file before anything is believed; a shard costs a few milliseconds, whatever it weighs.
"""

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import msgspec

from kvroom.errors import InputError

MAX_HEADER_BYTES = 100 << 20
LENGTH = struct.Struct("<Q")

BITS = {
    "F64": 64, "F32": 32, "F16": 16, "BF16": 16, "I64": 64, "I32": 32, "I16": 16, "I8": 8, "U8": 8,
    "U16": 16, "U32": 32, "U64": 64, "BOOL": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F4": 4,
    "F6_E2M3": 6, "F6_E3M2": 6, "C64": 64,
}  # fmt: skip


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One tensor in a header."""

    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return self.data_offsets[1] - self.data_offsets[0]


class Tensor(msgspec.Struct, frozen=True, gc=False):
    """A tensor's name, storage dtype and bytes."""

    name: str
    dtype: str
    size: int


_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_entry = msgspec.json.Decoder(Entry).decode


def tensors_of(folder: Path) -> list[Tensor]:
    """All tensors of the safetensors files in a folder, by their headers."""
    return [tensor for path in sorted(folder.glob("*.safetensors")) for tensor in header(path)]


def header(path: Path) -> Iterator[Tensor]:
    """The tensors of one file; InputError if its header cannot be true."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            text = _header_text(path, file.read(LENGTH.size), size, file.read)
    except OSError as error:
        raise InputError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    yield from parse(str(path), text, size - LENGTH.size - len(text))


def _header_text(path: Path, start: bytes, size: int, read: object) -> bytes:
    if len(start) < LENGTH.size:
        raise InputError(f"{path} is too short to be safetensors")
    (length,) = LENGTH.unpack(start)
    if length > size - LENGTH.size:
        raise InputError(f"{path}: the header says {length} bytes, the file has {size}")
    if length > MAX_HEADER_BYTES:
        raise InputError(f"{path}: a header of {length} bytes is absurdly large")
    return read(length)  # type: ignore[operator,no-any-return]


def parse(name: str, text: bytes, data_bytes: int) -> Iterator[Tensor]:
    """The tensors of a header's JSON; offsets must tile the data without overlap."""
    try:
        entries = {key: _entry(raw) for key, raw in _decode(text).items() if key != "__metadata__"}
    except (msgspec.DecodeError, RecursionError) as error:
        raise InputError(f"{name}: the header cannot be read: {error}") from None
    end = 0
    for key, entry in sorted(entries.items(), key=lambda pair: pair[1].data_offsets):
        _check(name, key, entry, end)
        end = entry.data_offsets[1]
        yield Tensor(key, entry.dtype, entry.size)
    if end > data_bytes:
        raise InputError(f"{name}: tensors take {end} bytes, the file has {data_bytes}")


def _check(name: str, key: str, entry: Entry, previous_end: int) -> None:
    start, end = entry.data_offsets
    if not previous_end <= start <= end:
        raise InputError(f"{name}: {key}: the offsets {start} to {end} overlap another tensor")
    bits = BITS.get(entry.dtype)
    if bits is None:
        return
    elements = 1
    for size in entry.shape:
        if size < 0:
            raise InputError(f"{name}: {key}: a negative dimension")
        elements *= size
    if elements * bits != 8 * entry.size and elements * bits > 8 * entry.size:
        raise InputError(f"{name}: {key}: {entry.size} bytes cannot hold its shape")
