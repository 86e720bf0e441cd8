"""OpenVINO GenAI: continuous batching over a paged KV cache, behind kvroom's own thin server."""

from kvroom.engine import Dialect, Engine, Gauges, Home, LogReader, Place, Probes, Tokenizer
from kvroom.engines.openvino.room import plan
from kvroom.matchup import Settings


def base(place: Place, settings: Settings) -> list[str]:
    """Model and address."""
    return [
        *("--model", place.model, "--name", place.served_model),
        *("--host", place.host, "--port", str(place.port)),
    ]


def max_len(value: int, settings: Settings) -> list[str]:
    """Nothing to set: a request may grow until it fills the pool."""
    return []


read_log = LogReader(
    r"^openvino_genai (?P<version>\S+)",
    r"model loaded in (?P<load_s>[\d.]+) s",
    r"KV cache: (?P<kv_blocks>\d+) blocks of (?P<kv_block_tokens>\d+) tokens, "
    r"(?P<kv_tokens>\d+) tokens, (?P<kv_bytes>\d+) bytes",
    r"(?P<ready>serving on http\S+)",
    r"running: (?P<running>\d+), waiting: (?P<waiting>\d+), "
    r"KV cache usage: (?P<kv_cache_usage_percent>[\d.]+)%",
    r"^ERROR (?P<error>.*\S)",
    r"^(?P<error>\w*(?:Error|Exception): .*\S)",
)  # fmt: skip

ENGINE = Engine(
    name="openvino",
    summary="OpenVINO GenAI's continuous batching on CPU",
    home=Home(
        program="",
        within=("-I", "{servers}/genai_server.py"),
        packages=lambda version: [f"openvino-genai=={version}"],
        disclosure="OpenVINO GenAI's wheels have no HTTP server; the thin one in front is kvroom's",
    ),
    formats=("gguf",),
    base=base,
    knobs={
        "slots": lambda value, settings: ["--max_num_seqs", str(value)],
        "max_len": max_len,
        "kv_cache_dtype": lambda value, settings: ["--KV_CACHE_PRECISION", value],
        "batch_tokens": lambda value, settings: ["--max_num_batched_tokens", str(value)],
        "prefix_cache": lambda value, settings: ["--enable_prefix_caching", str(value).lower()],
        "threads": lambda value, settings: ["--INFERENCE_NUM_THREADS", str(value)],
    },
    dialect=Dialect(
        tokenizer=Tokenizer(path="/tokenize", text_field="prompt"),
        extra={"ignore_eos": True, "return_token_ids": True},
    ),
    probes=Probes(version=("/version", "version")),
    gauges=Gauges(
        names={"running": "running", "waiting": "waiting", "kv_cache_usage": "kv_cache_usage"}
    ),
    ready_line=r"serving on http",
    read_log=read_log,
    log_marks=(
        "openvino_genai",
        "model loaded",
        "KV cache",
        "serving on",
        "ERROR ",
        "Error: ",
        "Exception: ",
    ),
    phases=(
        ("imports", r"^openvino_genai "),
        ("weights", r"^model loaded in"),
        ("KV cache", r"^KV cache: "),
        ("server", r"^serving on http"),
    ),
    log_signature=r"^openvino_genai |OpenVINO",
    room=plan,
    kv_dtypes=("u8", "bf16"),
)
