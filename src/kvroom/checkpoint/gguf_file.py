"""A GGUF file: metadata by key, tensors by header, never their values.

A file comes from strangers. Its head is read here in one bounded pass: every count and length is
held against the bytes that are left before anything is read for it, and the texts of a vocabulary
are counted, not kept.
"""

import math
import re
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from kvroom.checkpoint.tensors import Tensor, shown
from kvroom.errors import InputError

DAMAGED = (ValueError, LookupError, TypeError, ArithmeticError, MemoryError, OSError)
"""What the reader runs into when counts, offsets or texts of a file are not what they should be."""

FETCH_AGAIN = "the file is damaged or incomplete: fetch it again"

MAX_HEAD_BYTES = 256 << 20
MAX_ITEMS = 4_000_000
"""Of all arrays together; a vocabulary of 262,144 with scores, types and merges has a third."""
MAX_KEPT = 4096
"""Elements of an array, or bytes of a text, that are kept."""
MAX_TENSORS = 1_000_000
MAX_COUNT = 1 << 24
MAX_DIMENSIONS = 4
SMALLEST_FIELD = 8 + 4 + 1
SMALLEST_TENSOR = 8 + 4 + 4 + 8

_SCALARS = {
    number: struct.Struct("<" + code)
    for number, code in zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIifBQqd", strict=True)
}
_STRING, _ARRAY, _BOOL = 8, 9, 7
_U32, _U64 = _SCALARS[4], _SCALARS[10]


class Listed(msgspec.Struct, frozen=True):
    """An array or a text of which only the length was kept."""

    length: int

    def __repr__(self) -> str:
        return f"<{self.length} elements>"


class GgufHead:
    """The metadata and the tensors of a GGUF file, read once and checked; no weights are read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fields: dict[str, Any] = {}
        self.tensors: list[Tensor] = []
        try:
            with path.open("rb") as file:
                _Pass(self, file).read()
        except OSError as error:
            raise InputError(f"{path}: {(error.strerror or str(error)).lower()}") from None
        except ValueError as error:
            raise InputError(f"{path} cannot be read as GGUF: {error}", FETCH_AGAIN) from None

    @property
    def family(self) -> str:
        """``general.architecture``."""
        family = self.fields.get("general.architecture")
        if family is None:
            raise self.lacks("general.architecture")
        if not isinstance(family, str) or not re.fullmatch(r"[\w.-]{1,64}", family, re.ASCII):
            raise self.wrong("general.architecture", f"{shown(family)} is no name of a family")
        return family

    def value(self, key: str) -> Any:
        """The value of a key of this file's family, None if there is none."""
        return self.fields.get(f"{self.family}.{key}")

    def count(self, key: str, default: int | None = None, least: int = 0) -> int:
        """A whole number of this file's family; InputError if it is missing or absurd."""
        value = self.value(key)
        if value is None:
            if default is None:
                raise self.lacks(f"{self.family}.{key}")
            return default
        return self._whole(key, value, least)

    def each(self, key: str, layers: int, default: list[int] | None = None) -> list[int]:
        """A whole number for each layer, which a file may give once for all of them."""
        value = self.value(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, list):
            return [self.count(key)] * layers
        if len(value) < layers:
            raise self.wrong(f"{self.family}.{key}", f"{len(value)} values for {layers} layers")
        return [self._whole(key, one, 0) for one in value[:layers]]

    def _whole(self, key: str, value: object, least: int) -> int:
        if not isinstance(value, int):
            raise self.wrong(f"{self.family}.{key}", f"{shown(value)} is not a whole number")
        if not least <= value <= MAX_COUNT:
            raise self.wrong(f"{self.family}.{key}", f"{value} is out of all bounds")
        return int(value)

    def lacks(self, key: str) -> InputError:
        """The error that a key is missing."""
        hint = "give the first file of a split model" if "split.no" in self.fields else FETCH_AGAIN
        return InputError(f"{self.path} has no metadata key {key!r}", hint)

    def wrong(self, key: str, why: str) -> InputError:
        """The error that a key cannot be right."""
        return InputError(f"{self.path}: {key}: {why}", FETCH_AGAIN)


class _Pass:
    """One pass over the head of a file; ValueError says what is wrong with it."""

    def __init__(self, head: GgufHead, file: BinaryIO) -> None:
        self.head = head
        self.file = file
        self.size = file.seek(0, 2)
        self.left = min(self.size, MAX_HEAD_BYTES)
        self.items = MAX_ITEMS
        file.seek(0)

    def read(self) -> None:
        if self.take(4) != b"GGUF":
            raise ValueError("it does not begin with GGUF")
        version = self.number(_U32)
        if version not in (2, 3):
            raise ValueError(f"its version is {version}; 2 and 3 are known")
        tensors, fields = self.number(_U64), self.number(_U64)
        if tensors > min(MAX_TENSORS, self.left // SMALLEST_TENSOR):
            raise ValueError(f"it has no room for the {tensors} tensors it counts")
        if fields > self.left // SMALLEST_FIELD:
            raise ValueError(f"it has no room for the {fields} metadata keys it counts")
        for _ in range(fields):
            self.field()
        self.tensors([self.tensor() for _ in range(tensors)])

    def take(self, count: int) -> bytes:
        self.leave(count)
        data = self.file.read(count)
        if len(data) < count:
            raise ValueError("it ends within its metadata")
        return data

    def leave(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            cut = self.size <= MAX_HEAD_BYTES
            raise ValueError(
                "it ends within its metadata" if cut
                else f"its metadata takes more than {MAX_HEAD_BYTES >> 20} MiB"
            )  # fmt: skip

    def skip(self, count: int) -> None:
        self.leave(count)
        self.file.seek(count, 1)

    def number(self, kind: struct.Struct) -> Any:
        return kind.unpack(self.take(kind.size))[0]

    def name(self) -> str:
        length = self.number(_U64)
        if length > MAX_KEPT:
            raise ValueError(f"a name of {length} bytes is absurdly long")
        return self.take(length).decode()

    def text(self) -> str | Listed:
        """A text; of a long one, such as a chat template, only the length."""
        length = self.number(_U64)
        if length > MAX_KEPT:
            self.skip(length)
            return Listed(length)
        return self.take(length).decode(errors="replace")

    def field(self) -> None:
        key = self.name()
        if key in self.head.fields:
            raise ValueError(f"the key {shown(key)} is there twice")
        kind = self.number(_U32)
        self.head.fields[key] = self.array(key) if kind == _ARRAY else self.scalar(key, kind)

    def scalar(self, key: str, kind: int) -> Any:
        if kind == _STRING:
            return self.text()
        if kind not in _SCALARS:
            raise ValueError(f"the key {shown(key)} has the unknown type {kind}")
        value = self.number(_SCALARS[kind])
        return bool(value) if kind == _BOOL else value

    def array(self, key: str) -> list[Any] | Listed:
        kind, length = self.number(_U32), self.number(_U64)
        if kind != _STRING and kind not in _SCALARS:
            raise ValueError(f"the key {shown(key)} lists the unknown type {kind}")
        self.items -= length
        if self.items < 0 or length > self.left:
            raise ValueError(f"the key {shown(key)} lists {length} values, which is absurd")
        if kind == _STRING:
            for _ in range(length):
                self.skip(self.number(_U64))
            return Listed(length)
        size = _SCALARS[kind].size
        if length > MAX_KEPT:
            self.skip(length * size)
            return Listed(length)
        return [one for (one,) in _SCALARS[kind].iter_unpack(self.take(length * size))]

    def tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        """Name, dimensions, type and offset."""
        name, dimensions = self.name(), self.number(_U32)
        if dimensions > MAX_DIMENSIONS:
            raise ValueError(f"the tensor {shown(name)} has {dimensions} dimensions")
        shape = struct.unpack(f"<{dimensions}Q", self.take(8 * dimensions))
        return name, shape, self.number(_U32), self.number(_U64)

    def tensors(self, found: Iterable[tuple[str, tuple[int, ...], int, int]]) -> None:
        """They follow each other, each aligned, as llama.cpp demands."""
        alignment = self.head.fields.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
            raise ValueError(f"general.alignment: {shown(alignment)} is no power of two")
        start = _aligned(self.file.tell(), alignment)
        end = 0
        for name, shape, kind, offset in found:
            tensor = _tensor(name, shape, kind)
            if offset != end:
                raise ValueError(f"the tensor {shown(name)} is not where the one before it ends")
            if start + offset + tensor.size > self.size:
                raise ValueError(f"the tensor {shown(name)} reaches beyond the end of the file")
            end = _aligned(offset + tensor.size, alignment)
            self.head.tensors.append(tensor)


def _aligned(position: int, alignment: int) -> int:
    return -(-position // alignment) * alignment


def _tensor(name: str, shape: tuple[int, ...], kind: int) -> Tensor:
    import gguf

    try:
        dtype = gguf.GGMLQuantizationType(kind)
        block, size = gguf.GGML_QUANT_SIZES[dtype]
    except (ValueError, KeyError):
        raise ValueError(
            f"the tensor {shown(name)} has the type {kind}, which this gguf package does not know"
        ) from None
    if shape and shape[0] % block:
        raise ValueError(f"the rows of {shown(name)} are no whole blocks of {dtype.name}")
    return Tensor(name, dtype.name, math.prod(shape) // block * size)


class GgufFile:
    """An open GGUF file with all its values; its head is checked before they are read."""

    def __init__(self, path: Path) -> None:
        import gguf

        GgufHead(path)
        self.path = path
        try:
            self.reader: Any = gguf.GGUFReader(path)
        except DAMAGED as error:
            raise InputError(f"{path} cannot be read as GGUF: {error}", FETCH_AGAIN) from None

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key; InputError if it is missing and has no default."""
        field = self.reader.fields.get(key)
        if field is not None:
            return field.contents()
        if default is None:
            raise InputError(f"{self.path} has no metadata key {key!r}", FETCH_AGAIN)
        return default


# all files of a model

_SPLIT = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf")


def gguf_tensors(head: GgufHead) -> Iterator[Tensor]:
    """The tensors of a model, of its other files too where it is split; InputError if one lacks."""
    yield from head.tensors
    count = head.fields.get("split.count", 1)
    if not isinstance(count, int) or count < 2:
        return
    named = _SPLIT.fullmatch(head.path.name)
    if named is None or int(named[3]) != count:
        raise head.wrong("split.count", f"one of {count} files, and not named like one of them")
    others = [
        head.path.with_name(f"{named[1]}-{number:05}-of-{count:05}.gguf")
        for number in range(1, count + 1)
    ]
    missing = [path for path in others if not path.is_file()]
    if missing:
        raise InputError(
            f"{missing[0]} is missing ({len(missing)} of {count} files of the model are)",
            "fetch the missing files",
        )
    for path in others:
        if path.name != head.path.name:
            yield from GgufHead(path).tensors
