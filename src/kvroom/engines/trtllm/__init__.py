"""TensorRT-LLM's PyTorch backend: ``trtllm-serve``, set by a config file."""

from typing import Any

from kvroom.dialect import Dialect
from kvroom.engine import Engine, Home, Known, Place, Probes
from kvroom.engines.trtllm.log import read_log
from kvroom.engines.trtllm.room import plan, share
from kvroom.options import Options, key
from kvroom.settings import Settings, Speculative


def base(place: Place, settings: Settings) -> Options:
    """Model, address, and a log that shows the sizing lines."""
    address = ("--host", place.host, "--port", str(place.port))
    return Options(arguments=(place.model, *address, "--log_level", "info"))


def cuda_graphs(value: bool | int, settings: Settings) -> Options:
    """Padding lets a batch of any size up to the largest use the next larger graph."""
    if value is False:
        return Options(config={"cuda_graph_config": None})
    largest = {} if value is True else {"max_batch_size": value}
    return Options(config={"cuda_graph_config": {"enable_padding": True, **largest}})


def speculative(value: Speculative, settings: Settings) -> Options:
    """MTP heads, n-grams of the text so far, or a draft model."""
    chosen: dict[str, Any] = {
        "mtp": {"decoding_type": "MTP", "num_nextn_predict_layers": value.tokens},
        "ngram": {"decoding_type": "NGram", "max_draft_len": value.tokens},
        "draft": {
            "decoding_type": "Draft_Target",
            "max_draft_len": value.tokens,
            "speculative_model": value.model,
        },
    }[value.method]
    return Options(config={"speculative_config": chosen})


ENGINE = Engine(
    name="trtllm",
    summary="TensorRT-LLM's PyTorch backend (trtllm-serve)",
    home=Home(
        program="trtllm-serve",
        subcommand=("serve",),
        image="nvcr.io/nvidia/tensorrt-llm/release:{version}",
        config_option="--extra_llm_api_options",  # releases before 1.2 do not know --config
        names_model=False,
    ),
    formats=("safetensors",),
    base=base,
    knobs={
        "slots": key("max_batch_size"),
        "max_len": key("max_seq_len"),
        "kv_cache_dtype": key("kv_cache_config.dtype"),
        "kv_memory": lambda value, settings: key("kv_cache_config.max_gpu_total_bytes")(
            int(value), settings
        ),
        "memory_fraction": key("kv_cache_config.free_gpu_memory_fraction"),
        "batch_tokens": key("max_num_tokens"),
        "prefix_cache": key("kv_cache_config.enable_block_reuse"),
        "chunked_prefill": key("enable_chunked_prefill"),
        "text_only": key("disable_mm_encoder"),
        "cuda_graphs": cuda_graphs,
        "state_dtype": key("kv_cache_config.mamba_ssm_cache_dtype"),
        "speculative": speculative,
        "tensor_parallel": key("tensor_parallel_size"),
    },
    cannot={"threads": "it computes on cards"},
    known=(
        Known(
            option="disable_mm_encoder",
            value=True,
            versions=("1.3.0rc29",),
            error="AttributeError: 'NoneType' object has no attribute 'load_weights'",
            cause="the option takes the vision encoder away, and the weight loader still calls it",
            remedy="leave it out (text_only: false): the vision encoder then stays loaded and "
            "costs its memory, until a release loads the weights without it",
            source="Qwen3.8-27B-NVFP4 on 1.3.0rc29; loader changes in TensorRT-LLM #18387",
        ),
    ),
    twins={
        "--max_batch_size": "max_batch_size",
        "--max_num_tokens": "max_num_tokens",
        "--max_seq_len": "max_seq_len",
        "--tensor_parallel_size": "tensor_parallel_size",
        "--tp_size": "tensor_parallel_size",
        "--free_gpu_memory_fraction": "kv_cache_config.free_gpu_memory_fraction",
        "--kv_cache_free_gpu_memory_fraction": "kv_cache_config.free_gpu_memory_fraction",
        "--kv_cache_dtype": "kv_cache_config.dtype",
        "--enable_chunked_prefill": "enable_chunked_prefill",
    },
    caches={
        "TRITON_CACHE_DIR": "triton",
        "TORCHINDUCTOR_CACHE_DIR": "inductor",
        "FLASHINFER_WORKSPACE_BASE": "flashinfer",
        "DG_JIT_CACHE_DIR": "deep_gemm",
        "CUDA_CACHE_PATH": "cuda",
    },
    dialect=Dialect(extra={"ignore_eos": True}),
    probes=Probes(version=("/version", "version")),
    ready_line=r"Application startup complete",
    read_log=read_log,
    log_marks=(
        "TRT-LLM]",
        "TensorRT-LLM",
        "JIT",
        "startup complete",
        "rror",
        "Exception: ",
        "emory",
    ),
    phases=(
        ("imports", r"TensorRT-LLM version"),
        ("weights", r"Model init total|loading (?:model )?weights"),
        ("profiling", r"available KV cache memory when calculating"),
        ("KV cache", r"for max tokens in paged KV cache"),
        ("graphs", r"CUDA graph warmup for batch size"),
        ("server", r"Application startup complete"),
    ),
    log_signature=r"\[TRT-LLM\]|\[TensorRT-LLM\]|tensorrt_llm",
    room=plan,
    block_option="kv_cache_config.tokens_per_block",
    kv_dtypes=("auto", "fp8"),
    share=share,
)
