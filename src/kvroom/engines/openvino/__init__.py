"""OpenVINO GenAI: continuous batching over a paged KV cache, behind kvroom's own thin server."""

from kvroom.dialect import Dialect, Tokenizer
from kvroom.engine import Engine, Gauges, Home, Place, Probes
from kvroom.engines.openvino.room import plan
from kvroom.log_reader import LogReader
from kvroom.options import Options, option
from kvroom.settings import Settings


def base(place: Place, settings: Settings) -> Options:
    """Model and address."""
    model = ("--model", place.model, "--name", place.served_model)
    return Options(arguments=(*model, "--host", place.host, "--port", str(place.port)))


def max_len(value: int, settings: Settings) -> Options:
    """Nothing to set: a request may grow until it fills the pool."""
    return Options()


def prefix_cache(on: bool, settings: Settings) -> Options:
    """Blocks of equal beginnings are shared."""
    return Options(arguments=("--enable_prefix_caching", str(on).lower()))


def chunked_prefill(on: bool, settings: Settings) -> Options:
    """Its scheduler calls it splitting and fusing."""
    return Options(arguments=("--dynamic_split_fuse", str(on).lower()))


read_log = LogReader(
    r"^openvino_genai (?P<version>\S+)",
    r"max_num_batched_tokens: (?P<batch_tokens>\d+)",
    r"max_num_seqs: (?P<slots>\d+)",
    r"dynamic_split_fuse: (?P<chunked_prefill>\w+)",
    r"enable_prefix_caching: (?P<prefix_cache>\w+)",
    r"'INFERENCE_NUM_THREADS': (?P<threads>\d+)",
    r"'KV_CACHE_PRECISION': '?(?P<kv_cache_dtype>\w+)",
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
        "slots": option("--max_num_seqs"),
        "max_len": max_len,
        "kv_cache_dtype": option("--KV_CACHE_PRECISION"),
        "batch_tokens": option("--max_num_batched_tokens"),
        "prefix_cache": prefix_cache,
        "chunked_prefill": chunked_prefill,
        "threads": option("--INFERENCE_NUM_THREADS"),
    },
    cannot={
        "kv_memory": "its cache is sized in blocks (--num_kv_blocks) or whole GB (--cache_size)",
        "memory_fraction": "its cache is sized in blocks (--num_kv_blocks)",
        "text_only": "it loads text models here",
        "cuda_graphs": "it computes on the CPU here",
        "state_dtype": "it has no option for it",
        "speculative": "kvroom's thin server in front of it does not pass a draft model on",
        "tensor_parallel": "it computes on one device",
    },
    dialect=Dialect(
        tokenizer=Tokenizer(path="/tokenize", text_field="prompt"),
        extra={"ignore_eos": True, "return_token_ids": True},
    ),
    probes=Probes(version=("/version", "version")),
    gauges=Gauges(
        names={name: name for name in ("running", "waiting", "kv_cache_usage", "generation_tokens")}
    ),
    ready_line=r"serving on http",
    read_log=read_log,
    log_marks=(
        "openvino_genai",
        "SchedulerConfig",
        "properties {",
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
    pool_option="--num_kv_blocks",
)
