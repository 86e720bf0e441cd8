"""Ollama: planned, read and attached to; kvroom does not start it yet."""

from collections.abc import Iterable, Iterator

from kvroom.cells import share
from kvroom.engine import Dialect, Engine, LogReader, Probes
from kvroom.engines.ollama.room import plan
from kvroom.llamalog import MARKS, PATTERNS, summed
from kvroom.records import Fact, LogLine

# Ollama starts llama-server and passes its lines on without their prefix.
_read = LogReader(
    r"Listening on \S+ \(version (?P<version>[^)]+)\)",
    r"(?P<ready>llama-server started in (?P<load_s>[\d.]+) seconds)",
    r"default_num_ctx=(?P<default_context_tokens>\d+)",
    r"KvSize:(?P<context_tokens>\d+)",
    *PATTERNS,
    r"offloading (?P<layers_on_gpu>\d+) repeating layers to GPU",
    r"(?P<output_layer>offloading output layer to CPU)",
    r"(?P<truncated>truncating input prompt)",
    r"msg=\"(?P<ignored_setting>quantized kv cache requested but flash attention disabled)\"",
    r"(?P<forced_slots>model architecture does not currently support parallel requests)",
    r"level=ERROR .*?(?:msg=\"(?P<error>[^\"]+)|error=\"?(?P<cause>[^\"]+))",
)


def read_log(lines: Iterable[LogLine], file: str) -> Iterator[Fact]:
    """Facts of the log, sums of parts included."""
    return summed(_read, lines, file)


ENGINE = Engine(
    name="ollama",
    summary="Ollama, which starts llama.cpp's server",
    home=None,
    dialect=Dialect(),
    probes=Probes(ready="/", version=("/api/version", "version")),
    read_log=read_log,
    log_marks=(
        *MARKS,
        "Listening",
        "llama-server",
        "num_ctx",
        "KvSize",
        "offload",
        "truncating",
        "quantized kv",
        "parallel requests",
        "level=ERROR",
    ),
    log_signature=r"level=[A-Z]+ source=|\bOLLAMA_",
    room=plan,
    kv_dtypes=("f16", "q8_0"),
    share=share,
    takes_what_is_left=False,
)
