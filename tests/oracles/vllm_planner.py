"""vLLM's own planner, asked from outside: a case as JSON in, what it plans out.

Runs inside an environment that has vLLM. A case has ``layers`` (kind, number and geometry),
``available``, ``max_len``, ``in_flight`` and ``states`` (pages of state a request may hold).
"""

import json
import sys
from types import SimpleNamespace
from typing import Any

import torch
from vllm.v1.core import kv_cache_utils as planner
from vllm.v1.kv_cache_interface import (
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    MambaSpec,
    MLAAttentionSpec,
    SlidingWindowSpec,
)
from vllm.v1.kv_cache_layout import KVCacheLayout

DTYPES = {1: torch.int8, 2: torch.bfloat16, 4: torch.float32}


def spec_of(layer: dict[str, Any]) -> Any:
    """The real specification object of one layer."""
    if layer["kind"] == "mamba":
        return MambaSpec(
            block_size=layer["block"],
            shapes=((layer["state_bytes"],),),
            dtypes=(torch.int8,),
            page_size_padded=layer["page"],
            mamba_cache_mode=layer["mode"],
            num_speculative_blocks=layer["drafts"],
        )
    common = {
        "block_size": layer["block"],
        "num_kv_heads": layer["heads"],
        "head_size": layer["size"],
        "dtype": DTYPES[layer["bytes"]],
        "dcp_sharded": False,
    }
    if layer["kind"] == "sliding":
        return SlidingWindowSpec(**common, sliding_window=layer["window"])
    if layer["kind"] == "chunked":
        return ChunkedLocalAttentionSpec(**common, attention_chunk_size=layer["window"])
    if layer["kind"] == "mla":
        return MLAAttentionSpec(**{**common, "num_kv_heads": 1})
    return FullAttentionSpec(**common)


def config_of(case: dict[str, Any]) -> Any:
    """Just what the planner reads of a configuration."""
    mode = next((x["mode"] for x in case["layers"] if x["kind"] == "mamba"), "none")
    return SimpleNamespace(
        model_config=SimpleNamespace(
            max_model_len=case["max_len"], original_max_model_len=case["max_len"]
        ),
        parallel_config=SimpleNamespace(
            decode_context_parallel_size=1, tensor_parallel_size=1, pipeline_parallel_size=1
        ),
        scheduler_config=SimpleNamespace(disable_hybrid_kv_cache_manager=False),
        cache_config=SimpleNamespace(
            num_gpu_blocks_override=None,
            mamba_cache_mode=mode,
            prefix_cache_retention_interval=0,
            enable_prefix_caching=True,
            get_resolved_kv_cache_layout=lambda: KVCacheLayout.LBNHC,
        ),
        attention_config=SimpleNamespace(hisparse_config=None),
        device_config=SimpleNamespace(device_type="cuda"),
        speculative_config=None,
        kv_transfer_config=None,
        max_in_flight_tokens=case["in_flight"],
        num_prefill_lookahead_tokens=0,
    )


def plan(case: dict[str, Any]) -> dict[str, Any]:
    """What vLLM plans, or the reason why it does not start."""
    specs = {}
    for number, layer in enumerate(case["layers"]):
        for i in range(layer["layers"]):
            specs[f"{number}.{i}"] = spec_of(layer)
    config = config_of(case)
    try:
        (made,) = planner.get_kv_cache_configs(config, [specs], [case["available"]])
    except (ValueError, NotImplementedError) as error:
        return {"error": str(error)}
    scheduler = planner.generate_scheduler_kv_cache_config([made])
    tokens, concurrency = planner.get_kv_cache_capacity(config, scheduler)
    return {
        "blocks": made.num_blocks,
        "groups": sorted(len(group.layer_names) for group in made.kv_cache_groups),
        "tokens": tokens,
        "concurrency": concurrency,
    }


def main() -> None:
    """A case a line on standard input, its plan a line on standard output."""
    out, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        print(json.dumps(plan(json.loads(line))), file=out, flush=True)


if __name__ == "__main__":
    main()
