"""Which safetensors files make up a model: the index decides, where there is one."""

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from kvroom.checkpoint.tensors import DAMAGED, MALFORMED, MAX_VALUES, shown
from kvroom.errors import InputError

INDEX = "model.safetensors.index.json"
MAX_FILES = 10_000
MAX_BYTES = 1 << 50
"""No checkpoint comes near a pebibyte."""


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """``model.safetensors.index.json``: which file holds which tensor."""

    weight_map: dict[str, str] = {}
    metadata: dict[str, msgspec.Raw] = {}

    @property
    def shards(self) -> list[str]:
        """The files it names, each once."""
        return sorted(set(self.weight_map.values()))


_decode_index = msgspec.json.Decoder(Index).decode


def parse_index(name: str, text: bytes) -> Index:
    """An index; InputError if it is not one, or names files outside its folder."""
    if text.count(b":") > MAX_VALUES:
        raise InputError(f"{name} lists more than {MAX_VALUES:,} tensors")
    try:
        index = _decode_index(text)
    except MALFORMED as error:
        raise InputError(f"{name} is not an index of safetensors: {error}", DAMAGED) from None
    shards = index.shards
    if len(shards) > MAX_FILES:
        raise InputError(f"{name} names more than {MAX_FILES:,} files")
    for shard in shards:
        if "/" in shard or "\0" in shard or not shard.endswith(".safetensors"):
            raise InputError(f"{name}: weight_map: {shown(shard)} is not a shard beside it")
    return index


def total_size(name: str, index: Index) -> int | None:
    """Bytes of the weights as the index says, None where it does not."""
    raw = index.metadata.get("total_size")
    if raw is None:
        return None
    value = msgspec.json.decode(raw)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) is not int or not 0 < value < MAX_BYTES:
        raise InputError(f"{name}: metadata.total_size: {shown(value)} is not a size in bytes")
    return value


def chosen(names: Iterable[str], index: Index | None, index_name: str) -> list[str]:
    """Of the safetensors files there are, those that make up the model, each tensor once.

    The index decides where there is one: some models come twice, as ``consolidated.safetensors``
    beside shards. InputError if files that it names are missing, unless there are none at all.
    """
    there = set(names)
    shards = index.shards if index is not None else []
    if not shards:
        merged = {name for name in there if name.startswith("consolidated")}
        return sorted(there - merged or there)
    missing = [shard for shard in shards if shard not in there]
    if there and missing:
        raise InputError(
            f"{index_name} names {missing[0]}, which is missing "
            f"({len(missing)} of {len(shards)} files are)",
            "fetch the missing files, or leave only config.json and the index",
        )
    return [] if missing else shards


def safetensors_in(folder: Path) -> list[str]:
    """Names of the safetensors files in a folder; InputError if there are absurdly many."""
    found: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".safetensors"):
                found.append(entry.name)
            if len(found) > MAX_FILES:
                raise InputError(f"{folder} holds more than {MAX_FILES:,} safetensors files")
    return found
