"""Headers of safetensors files and their index: true ones, and what strangers may put there."""

import json
import math
import os
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkpoints import (
    BOTH,
    EMBEDDING,
    FIRST,
    INDEXED,
    LAYER,
    SECOND,
    SLOW_S,
    Shapes,
    a_file,
    a_folder,
    a_shard,
    outcome,
    refused,
    weighed,
)
from kvroom.checkpoint import index
from kvroom.checkpoint.index import INDEX
from kvroom.checkpoint.read import read_checkpoint
from kvroom.checkpoint.tensors import BITS, header

# headers that cannot be true


def one(dtype: str, shape: Any, offsets: Any, **more: Any) -> bytes:
    return json.dumps(
        {"a": {"dtype": dtype, "shape": shape, "data_offsets": offsets}, **more}
    ).encode()


@pytest.mark.parametrize(
    ("text", "data", "sentence"),
    [
        (b"[]", 0, "the header cannot be read"),
        (b"{", 0, "the header cannot be read"),
        (b"\xff\xfe", 0, "the header cannot be read"),
        (b'{"a": 5}', 0, "the header cannot be read"),
        (b"{}", 4, "the tensors take 0 bytes, the file has 4"),
        (b'{"a": {}}', 0, "'a': it has no offsets"),
        (b'{"a": ' + b"[" * 100_000, 0, "the header cannot be read"),
        (one("U8", [4], [0, 5]), 5, "'a': 5 bytes are not what the shape [4] of U8 takes"),
        (one("U8", [4], [0, 3]), 3, "'a': 3 bytes are not what the shape [4] of U8 takes"),
        (one("F4", [3], [0, 2]), 2, "2 bytes are not what the shape [3] of F4 takes"),
        (one("U8", [0, 1 << 70], [0, 1]), 1, "1 bytes are not"),
        (one("U8", [10**400, 10**400], [0, 1]), 1, "1 bytes are not"),
        (one("U8", [-4], [0, 4]), 4, "the dimension -4 is negative"),
        (one("U8", [4.0], [0, 4]), 4, "the header cannot be read"),
        (one("U8", [4], [4, 0]), 4, "'a': the offsets 4 to 0 are reversed"),
        (one("U8", [4], [-4, 0]), 4, "negative"),
        (one("U8", [4], [0, 4]), 3, "the tensors take 4 bytes, the file has 3 for them"),
        (one("U8", [4], [0, 4]), 9, "the tensors take 4 bytes, the file has 9 for them"),
        (one("Q3", [4], [0, 1 << 90]), 4, "the tensors take"),
        (one("U8", [4], [4, 8]), 8, "'a': the offsets 4 to 8 leave a gap"),
        (one("U8", [4], [0]), 4, "the header cannot be read"),
        (one("a\nb", [4], [0, 4]), 4, r"'a\nb' is no dtype"),
        (
            b'{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},'
            b'"a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}}',
            8,
            "leave a gap",
        ),
        (
            b'{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},'
            b'"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}}',
            6,
            "'b': the offsets 2 to 6 overlap another tensor",
        ),
    ],
)
def test_a_header_that_cannot_be_true(
    text: bytes, data: int, sentence: str, tmp_path: Path
) -> None:
    folder = a_folder(tmp_path / "m")
    a_file(folder / "model.safetensors", text, data)

    said = refused(folder)
    assert sentence in said
    assert "model.safetensors" in said


@pytest.mark.parametrize(
    ("length", "sentence"),
    [
        (0, "the header cannot be read"),
        (1 << 63, "the header says 9223372036854775808 bytes, the file has"),
        ((1 << 64) - 1, "the header says 18446744073709551615 bytes"),
        (11, "the header says 11 bytes, the file has 18"),
    ],
)
def test_a_length_that_cannot_be_true(length: int, sentence: str, tmp_path: Path) -> None:
    folder = a_folder(tmp_path / "m")
    a_file(folder / "model.safetensors", b'{"a": {}}\n', 0, length)

    assert sentence in refused(folder)


def test_a_length_within_a_sparse_file_is_still_absurd(tmp_path: Path) -> None:
    """A hole of a terabyte costs nothing to make, and must cost nothing to read."""
    folder = a_folder(tmp_path / "m")
    a_file(folder / "model.safetensors", b"", 1 << 40, 1 << 39)

    assert "a header of 549755813888 bytes is absurdly large" in refused(folder)


@pytest.mark.parametrize("size", [0, 7])
def test_a_file_shorter_than_its_length_field(size: int, tmp_path: Path) -> None:
    (a_folder(tmp_path / "m") / "model.safetensors").write_bytes(b"\1" * size)

    assert "is too short to be safetensors" in refused(tmp_path / "m")


def test_a_truncated_shard_is_named_with_what_it_lacks(tmp_path: Path) -> None:
    folder = a_folder(tmp_path / "m", {"model.safetensors": EMBEDDING})
    path = folder / "model.safetensors"
    os.truncate(path, path.stat().st_size - 1)

    assert "the tensors take 12800 bytes, the file has 12799 for them" in refused(folder)


def test_what_lies_there_and_is_no_file(tmp_path: Path) -> None:
    """A pipe would never end, a folder cannot be read, a link may lead nowhere."""
    makers: dict[str, Callable[[Path], None]] = {
        "a-folder": lambda path: path.mkdir(),
        "a-pipe": os.mkfifo,
        "a-dead-link": lambda path: path.symlink_to("nowhere"),
        "a-circle": lambda path: path.symlink_to(path.name),
    }
    for name, make in makers.items():
        folder = a_folder(tmp_path / name)
        make(folder / "x.safetensors")

        assert "x.safetensors" in refused(folder)


def test_a_folder_of_a_hundred_thousand_files_is_refused_at_once(tmp_path: Path) -> None:
    folder = a_folder(tmp_path / "m")
    a_shard(folder / "0.safetensors", {})
    for number in range(1, index.MAX_FILES + 2):
        os.link(folder / "0.safetensors", folder / f"{number}.safetensors")

    began = time.monotonic()
    assert "holds more than 10,000 safetensors files" in refused(folder)
    assert time.monotonic() - began < SLOW_S


def test_many_small_values_are_refused_before_they_are_made(tmp_path: Path) -> None:
    """A header of 64 MiB may hold 1,400,000 empty tensors, a gigabyte of objects."""
    tiny = b'"%07x":{"dtype":"U8","shape":[],"data_offsets":[0,0]}'
    text = b"{" + b",".join(tiny % number for number in range(600_000)) + b"}"
    folder = a_folder(tmp_path / "m")
    a_file(folder / "model.safetensors", text, 0)

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.monotonic()
    assert "the header lists more than 2,000,000 values" in refused(folder)
    assert time.monotonic() - began < SLOW_S
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10


def test_names_out_of_a_file_cannot_write_to_the_terminal(tmp_path: Path) -> None:
    folder = a_folder(tmp_path / "m")
    name = "\x1b[2J" + "a" * 1_000_000
    text = json.dumps({name: {"dtype": "U8", "shape": [1], "data_offsets": [0, 2]}}).encode()
    a_file(folder / "model.safetensors", text, 2)

    assert refused(folder).isprintable()


# headers that are true


def test_metadata_may_use_the_words_of_a_tensor(tmp_path: Path) -> None:
    """Some trainers keep a "shape" there."""
    text = one("U8", [4], [0, 4], __metadata__={"shape": "large", "dtype": "x"})

    assert [t.size for t in header(a_file(tmp_path / "x", text, 4))] == [4]


def test_an_unknown_dtype_is_weighed_by_its_offsets(tmp_path: Path) -> None:
    found = list(header(a_file(tmp_path / "x", one("F3_NEW", [4], [0, 99]), 99)))

    assert [(t.dtype, t.size) for t in found] == [("F3_NEW", 99)]


NAMES = st.text(min_size=1, max_size=20).filter(lambda name: name != "__metadata__")
SHAPES = st.tuples(
    st.sampled_from(sorted(BITS)),
    st.lists(st.integers(0, 9), max_size=3).map(lambda shape: [8, *shape]),
)


@given(shapes=st.dictionaries(NAMES, SHAPES, max_size=8))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_true_header_gives_exact_sizes(shapes: Shapes, tmp_path: Path) -> None:
    found = {t.name: t.size for t in header(a_shard(tmp_path / "x", shapes))}

    assert found == {n: math.prod(s) * BITS[d] // 8 for n, (d, s) in shapes.items()}


@given(data=st.data())
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_header_gives_the_same_total_or_is_refused(
    data: st.DataObject, tmp_path: Path
) -> None:
    path = a_shard(tmp_path / "x", {**EMBEDDING, **LAYER, "odd": ("F4", [3, 2])})
    raw = bytearray(path.read_bytes())
    total, limit = sum(t.size for t in header(path)), raw.index(b"}}") + 2
    for at in data.draw(st.lists(st.integers(0, limit - 1), min_size=1, max_size=4)):
        raw[at] = data.draw(st.integers(0, 255))
    path.write_bytes(raw)

    told = outcome(lambda: sum(t.size for t in header(path)))
    assert told == total or str(path) in str(told)


def test_only_headers_are_read_however_large_the_data(tmp_path: Path) -> None:
    """Eight shards of 64 GiB each, sparse: the exact total, and no time to have read them."""
    folder = a_folder(tmp_path / "m")
    row = {f"model.layers.0.mlp.experts.{n}.w": ("F8_E4M3", [1 << 20, 1 << 12]) for n in range(16)}
    for number in range(8):
        a_shard(folder / f"model-{number}-of-8.safetensors", row)

    read_before = bytes_read()
    assert weighed(folder) == {"experts": 8 * 16 << 32}
    assert bytes_read() - read_before < 1 << 20


def bytes_read() -> int:
    """Through system calls, by this process."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("rchar")))


# which files count

PARTS = {"embeddings": 12_800, "layers": 16_384}


def test_the_index_decides_which_files_count(tmp_path: Path) -> None:
    """Mistral ships consolidated.safetensors beside the shards: the same weights again."""
    twice = {**BOTH, "consolidated.safetensors": {**EMBEDDING, **LAYER}}

    assert weighed(a_folder(tmp_path / "m", twice, INDEXED)) == PARTS


def test_without_an_index_a_consolidated_copy_counts_only_by_itself(tmp_path: Path) -> None:
    copy = {"consolidated.safetensors": {**EMBEDDING, **LAYER}}

    assert weighed(a_folder(tmp_path / "a", {**BOTH, **copy})) == PARTS
    assert weighed(a_folder(tmp_path / "b", copy)) == PARTS


def test_missing_shards_are_named_with_their_number(tmp_path: Path) -> None:
    said = refused(a_folder(tmp_path / "m", {SECOND: LAYER}, INDEXED))

    assert f"{INDEX} names {FIRST}, which is missing (1 of 2 files are)" in said


def test_an_index_alone_gives_the_total(tmp_path: Path) -> None:
    assert weighed(a_folder(tmp_path / "m", index=INDEXED)) == {"other": 29_184}
    floats = {"weight_map": {}, "metadata": {"total_size": 29_184.0}}
    assert weighed(a_folder(tmp_path / "old", index=floats)) == {"other": 29_184}


def test_neither_files_nor_index_means_weights_are_not_known(tmp_path: Path) -> None:
    assert read_checkpoint(str(a_folder(tmp_path / "m"))).weights is None
    assert read_checkpoint(str(a_folder(tmp_path / "i", index={"weight_map": {}}))).weights is None


@pytest.mark.parametrize("size", [-1, 0, True, "many", 1.5, [], 10**30, 1e300])
def test_a_total_that_is_no_size(size: Any, tmp_path: Path) -> None:
    folder = a_folder(tmp_path / "m", index={"metadata": {"total_size": size}, "weight_map": {}})

    assert f"{INDEX}: metadata.total_size: " in refused(folder)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"[]", "is not an index of safetensors"),
        (b'{"weight_map": []}', "is not an index of safetensors"),
        (b'{"weight_map": {"a": 5}}', "is not an index of safetensors"),
        (b'{"a":' * 100_000, "is not an index of safetensors"),
        (b'{"weight_map": {"a": "../../x.safetensors"}}', "is not a shard beside it"),
        (b'{"weight_map": {"a": "/etc/passwd"}}', "is not a shard beside it"),
        (b'{"weight_map": {%s}}' % b",".join([b'"":""'] * 2_000_001), "lists more than"),
    ],
)
def test_an_index_that_cannot_be_true(text: bytes, sentence: str, tmp_path: Path) -> None:
    (a_folder(tmp_path / "m") / INDEX).write_bytes(text)

    assert sentence in refused(tmp_path / "m")
