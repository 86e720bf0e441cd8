"""SGLang: its launcher inside an environment or an image."""

from kvroom.dialect import Dialect, Tokenizer
from kvroom.engine import Engine, Gauges, Home, Place, Probes
from kvroom.engines.sglang.log import read_log
from kvroom.engines.sglang.room import plan, share
from kvroom.options import Options, option, switch
from kvroom.settings import Settings, Speculative


def base(place: Place, settings: Settings) -> Options:
    """Model, address, and the gauges, which are off by default."""
    model = ("--model-path", place.model, "--served-model-name", place.served_model)
    return Options(
        arguments=(*model, "--host", place.host, "--port", str(place.port), "--enable-metrics")
    )


def batch_tokens(value: int, settings: Settings) -> Options:
    """A chunk of the prompt is what one step computes; without chunks, the prompts together."""
    whole = settings.chunked_prefill is False
    name = "--max-prefill-tokens" if whole else "--chunked-prefill-size"
    return Options(arguments=(name, str(value)))


def chunked_prefill(value: bool, settings: Settings) -> Options:
    """On by default; its size is ``batch_tokens``."""
    return Options(arguments=() if value else ("--chunked-prefill-size", "-1"))


def cuda_graphs(value: bool | int, settings: Settings) -> Options:
    """Graphs of decode steps; a number is the largest batch captured."""
    if value is False:
        return Options(arguments=("--disable-decode-cuda-graph", "--disable-prefill-cuda-graph"))
    if value is True:
        return Options()
    return Options(arguments=("--cuda-graph-max-bs-decode", str(value)))


def speculative(value: Speculative, settings: Settings) -> Options:
    """A chain: as many steps as tokens are guessed, and one more to check."""
    chain = ("--speculative-num-steps", str(value.tokens), "--speculative-eagle-topk", "1")
    checked = ("--speculative-num-draft-tokens", str(value.tokens + 1))
    chosen = {
        "mtp": ("--speculative-algorithm", "NEXTN", *chain, *checked),
        "ngram": (
            *("--speculative-algorithm", "NGRAM"),
            *("--speculative-num-draft-tokens", str(value.tokens)),
        ),
        "draft": (
            *("--speculative-algorithm", "STANDALONE"),
            *("--speculative-draft-model-path", value.model or ""),
            *(*chain, *checked),
        ),
    }[value.method]
    return Options(arguments=chosen)


ENGINE = Engine(
    name="sglang",
    summary="SGLang's OpenAI server",
    home=Home(
        program="sglang",
        subcommand=("serve",),
        within=("-m", "sglang.launch_server"),
        packages=lambda version: [f"sglang=={version}"],
        image="lmsysorg/sglang:v{version}",
    ),
    formats=("safetensors",),
    base=base,
    knobs={
        "slots": option("--max-running-requests"),
        "max_len": option("--context-length"),
        "kv_cache_dtype": option("--kv-cache-dtype"),
        "memory_fraction": option("--mem-fraction-static"),
        "batch_tokens": batch_tokens,
        "prefix_cache": switch(on="", off="--disable-radix-cache"),
        "chunked_prefill": chunked_prefill,
        "text_only": switch(on="--language-model-only"),
        "cuda_graphs": cuda_graphs,
        "state_dtype": option("--mamba-ssm-dtype"),
        "speculative": speculative,
        "tensor_parallel": option("--tp-size"),
    },
    cannot={
        "kv_memory": "its pool is sized by memory_fraction, or in tokens by --max-total-tokens",
        "threads": "it computes on cards",
    },
    caches={
        "SGLANG_CACHE_DIR": "sglang",
        "SGLANG_DG_CACHE_DIR": "deep_gemm",
        "TRITON_CACHE_DIR": "triton",
        "TORCHINDUCTOR_CACHE_DIR": "inductor",
        "FLASHINFER_WORKSPACE_BASE": "flashinfer",
        "DG_JIT_CACHE_DIR": "deep_gemm",
        "CUDA_CACHE_PATH": "cuda",
    },
    effective={"prefix_cache": "!prefix_cache_off", "batch_tokens": "chunk_tokens"},
    dialect=Dialect(
        tokenizer=Tokenizer(
            path="/tokenize", text_field="prompt", extra={"add_special_tokens": False}
        ),
        extra={"ignore_eos": True},
    ),
    probes=Probes(ready="/ready", version=("/server_info", "version")),
    gauges=Gauges(
        names={
            "sglang:num_running_reqs": "running",
            "sglang:num_queue_reqs": "waiting",
            "sglang:token_usage": "kv_cache_usage",
            "sglang:num_retracted_requests_total": "preempted",
            "sglang:generation_tokens_total": "generation_tokens",
        }
    ),
    ready_line=r"The server is fired up",
    read_log=read_log,
    log_marks=(
        "#running-req",
        "server_args=",
        "Load weight end",
        "backend",
        "allocated",
        "max_total_num",
        "max_running",
        "graph",
        "Retract",
        "fired up",
        "maximum allowed",
        "Error: ",
        "Exception: ",
    ),
    phases=(
        ("imports", r"server_args="),
        ("weights", r"Load weight end"),
        ("KV cache", r"Cache is allocated|Memory pool end"),
        ("graphs", r"CUDA graph end"),
        ("server", r"The server is fired up"),
    ),
    log_signature=r"server_args=|#running-req|sglang|--mem-fraction-static",
    room=plan,
    block_option="--page-size",
    kv_dtypes=("auto", "fp8_e4m3"),
    share=share,
)
