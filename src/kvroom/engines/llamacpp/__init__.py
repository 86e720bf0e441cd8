"""llama.cpp: ``llama-server`` from the PATH, or the same server out of the ``xllamacpp`` wheel."""

from collections.abc import Iterable, Iterator

from kvroom.cells import share
from kvroom.dialect import Dialect, Tokenizer
from kvroom.engine import Engine, Gauges, Home, Place, Probes
from kvroom.engines.llamacpp.room import AUTO_SLOTS, plan
from kvroom.llamalog import MARKS, PATTERNS, summed
from kvroom.log_reader import LogReader
from kvroom.options import Options, option, switch
from kvroom.records import Fact, LogLine
from kvroom.settings import Settings, Speculative

MEMORY_LINES = "4"
"""The verbosity from which the library prints its buffer sizes."""


def base(place: Place, settings: Settings) -> Options:
    """Model, address, and a log that shows the memory."""
    model = ("-m", place.model, "-a", place.served_model)
    address = ("--host", place.host, "--port", str(place.port))
    return Options(arguments=(*model, *address, "--metrics", "-lv", MEMORY_LINES))


def context(max_len: int, settings: Settings) -> Options:
    """``-c`` is the whole pool, which the slots (4 unless set) divide among themselves."""
    return Options(arguments=("-c", str(max_len * (settings.slots or AUTO_SLOTS))))


def kv_cache_dtype(value: str, settings: Settings) -> Options:
    """Keys and values alike."""
    return Options(arguments=("-ctk", value, "-ctv", value))


def prefix_cache(on: bool, settings: Settings) -> Options:
    """Reuse inside a slot and the host-memory cache of idle prompts go together."""
    off = ("--no-cache-prompt", "--cache-ram", "0")
    return Options(arguments=("--cache-prompt",) if on else off)


def cuda_graphs(value: bool | int, settings: Settings) -> Options:
    """On where the build has them; only a variable switches them off, and no size is set."""
    return Options(env={} if value else {"GGML_CUDA_DISABLE_GRAPHS": "1"})


def speculative(value: Speculative, settings: Settings) -> Options:
    """The model's own head, n-grams of the text so far, or a draft model."""
    kind, limit = {
        "mtp": ("draft-mtp", "--spec-draft-n-max"),
        "ngram": ("ngram-simple", "--spec-ngram-simple-size-m"),
        "draft": ("draft-simple", "--spec-draft-n-max"),
    }[value.method]
    draft = ("--spec-draft-model", value.model) if value.model else ()
    return Options(arguments=("--spec-type", kind, *draft, limit, str(value.tokens)))


_read = LogReader(
    r"^xllamacpp (?P<version>\S+)",
    r"build_info: (?P<version>b[1-9]\S*)",
    *PATTERNS,
    r"(?P<ready>listening on http\S+)",
    r"system_info: n_threads = (?P<threads>\d+)",
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
        image="ghcr.io/ggml-org/llama.cpp:server-cuda-{version}",
        image_program="/app/llama-server",
        disclosure="llama.cpp's own HTTP server, in the portable CPU build of the xllamacpp wheel",
    ),
    formats=("gguf",),
    base=base,
    knobs={
        "slots": option("-np"),
        "max_len": context,
        "kv_cache_dtype": kv_cache_dtype,
        "batch_tokens": option("-b"),
        "prefix_cache": prefix_cache,
        "text_only": switch(on="--no-mmproj"),
        "cuda_graphs": cuda_graphs,
        "speculative": speculative,
        "threads": option("-t"),
    },
    cannot={
        "kv_memory": "its cache is as large as slots and max_len ask for",
        "memory_fraction": "its cache is as large as slots and max_len ask for; "
        "--fit-target keeps memory free",
        "chunked_prefill": "prompts are always computed in pieces of batch_tokens",
        "state_dtype": "recurrent states are always float32",
        "tensor_parallel": "--split-mode tensor shares layers among all cards that it sees",
    },
    caches={"CUDA_CACHE_PATH": "cuda"},
    effective={"max_len": "slot_tokens"},
    dialect=Dialect(
        tokenizer=Tokenizer(path="/tokenize", text_field="content", extra={"add_special": False}),
        extra={"ignore_eos": True},
    ),
    probes=Probes(version=("/props", "build_info")),
    gauges=Gauges(
        names={
            "llamacpp:requests_processing": "running",
            "llamacpp:requests_deferred": "waiting",
            "llamacpp:tokens_predicted_total": "generation_tokens",
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
