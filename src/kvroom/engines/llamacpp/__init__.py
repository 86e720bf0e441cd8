"""llama.cpp: ``llama-server`` from the PATH, or the same server out of the ``xllamacpp`` wheel."""

from collections.abc import Iterable, Iterator

from kvroom.cells import share
from kvroom.engine import Dialect, Engine, Gauges, Home, LogReader, Place, Probes, Tokenizer
from kvroom.engines.llamacpp.room import AUTO_SLOTS, plan
from kvroom.llamalog import MARKS, PATTERNS, summed
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


_read = LogReader(
    r"^xllamacpp (?P<version>\S+)",
    r"build_info: (?P<version>b[1-9]\S*)",
    *PATTERNS,
    r"(?P<ready>listening on http\S+)",
    r"truncated = (?P<truncated>1)",
    r"(?P<full_reprocessing>forcing full prompt re-processing)",
    r" E (?P<error>.*\S)",
)


def read_log(lines: Iterable[LogLine], file: str) -> Iterator[Fact]:
    """Facts of the log, sums of parts included."""
    return summed(_read, lines, file)


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
    gauges=Gauges(
        names={
            "llamacpp:requests_processing": "running",
            "llamacpp:requests_deferred": "waiting",
        }
    ),
    ready_line=r"listening on http",
    read_log=read_log,
    log_marks=(*MARKS, "xllamacpp", "build_info", "listening", "truncated = 1", "forcing", " E "),
    phases=(
        ("metadata", r"loading model tensors"),
        ("weights", r"llama_context: constructing"),
        ("KV cache", r"llama_(?:kv_cache|memory_recurrent): size"),
        ("graphs", r"sched_reserve: reserve took|graph splits"),
        ("server", r"listening on http|serving on http"),
    ),
    log_signature=r"^xllamacpp |\bllama_server\b|\bsrv  |\bslot  |^\d+\.\d\d\.\d{3}\.\d{3} [IWED] ",
    room=plan,
    kv_dtypes=("f16", "q8_0"),
    share=share,
    takes_what_is_left=False,
)
