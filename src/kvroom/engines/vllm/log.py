"""What vLLM says of itself: lines of 0.6 to 0.33.

Files: v1/core/kv_cache_utils.py, v1/engine/core.py, v1/worker/*.py, compilation/*.py,
platforms/interface.py, v1/metrics/loggers.py. "KV cache size" was two lines before 0.28 and said
"GPU" on every device before 0.30.
"""

from kvroom.log_reader import LogReader

read_log = LogReader(
    # what was asked for
    r"\bversion (?P<version>\d+\.\d+\.\d\S*)\s*$",
    r"Initializing an? (?:V1 )?LLM engine \(v(?P<version>[^)\s]+)\)",
    r"LLM engine \(.*, dtype=torch\.(?P<dtype>\w+)",
    r"LLM engine \(.* max_seq_len=(?P<max_len>\d+)",
    r"LLM engine \(.* tensor_parallel_size=(?P<tensor_parallel>\d+)",
    r"LLM engine \(.*[ (]speculative_config=(?P<speculative>None|SpeculativeConfig\([^)]*\))",
    r"LLM engine \(.* kv_cache_dtype=(?P<kv_cache_dtype>\w+)",
    r"LLM engine \(.* enable_prefix_caching=(?P<prefix_cache>True|False)",
    r"LLM engine \(.* enable_chunked_prefill=(?P<chunked_prefill>True|False)",
    r"LLM engine \(.*cudagraph_mode': <CUDAGraphMode\.(?P<cuda_graphs>\w+)",
    r"non-default args: .*'max_num_seqs': (?P<slots>\d+)",
    r"non-default args: .*'max_num_batched_tokens': (?P<batch_tokens>\d+)",
    r"non-default args: .*'gpu_memory_utilization': (?P<memory_fraction>[\d.]+)",
    r"non-default args: .*'language_model_only': (?P<text_only>True|False)",
    r"non-default args: .*'mamba_ssm_cache_dtype': '(?P<state_dtype>\w+)'",
    r"Resolved architecture: (?P<architecture>\w+)",
    r"Using max model len (?P<max_len>\d+)",
    r"Auto-fit max_model_len: reduced from \d+ to (?P<max_len>\d+)",
    r"max_num_batched_tokens=(?P<batch_tokens>\d+)",
    r"'kv_cache_memory_bytes': (?P<kv_bytes>(?P<kv_memory>\d+))",
    r"non-default args: .*'block_size': (?P<asked_block_tokens>\d+)",
    r"Using (?P<kv_cache_dtype>\w+) data type to store kv cache",
    r"Mamba cache mode is set to '(?P<state_cache_mode>\w+)'",
    # weights and kernels
    r"Checkpoint size: (?P<checkpoint_bytes__GiB>[\d.]+) GiB",
    r"Loading (?:model )?weights took (?P<load_s>[\d.]+) seconds",
    r"Loading model weights took (?P<weights_bytes__GiB>[\d.]+) GB",
    r"Model loading took (?P<weights_bytes__GiB>[\d.]+) GiB(?: memory)?"
    r"(?: and (?P<model_load_s>[\d.]+) seconds)?",
    r"Using (?P<attention_backend>\w+(?: Attention)?) (?:attention )?backend (?:out of|on V1)",
    r"Using (?P<attention_backend>\w+) attention backend",
    r"is not supported with (?P<attention_backend>\w+?) ?[Bb]ackend",
    r"Using FlashAttention version (?P<flash_attention>\d)",
    r"Using (?P<gdn_prefill_kernel>\w+) GDN prefill kernel",
    # compiling
    r"Dynamo bytecode transform time: (?P<dynamo_s>[\d.]+) s",
    r"Compiling a graph for compile range .* takes (?P<graph_compile_s>[\d.]+) s",
    r"(?P<compile_cache>Directly load .*(?:from the cache|AOT compilation))",
    r"Compiling model again due to a load failure.*reason: (?P<compile_cache_failed>.*\S)",
    r"torch\.compile t(?:akes|ook) (?P<compile_s>[\d.]+) s in total",
    r"Building JIT module (?P<jit_module>[\w.-]+)",
    r"(?P<jit_during_inference>JIT compilation.* during inference: \S+)",
    # memory
    r"Initial profiling/warmup run took (?P<profiling_s>[\d.]+) s",
    r"Estimated CUDA graph memory: (?P<graph_estimate_bytes__GiB>[\d.]+) GiB",
    r"equivalent to --gpu-memory-utilization=(?P<memory_fraction_without_graphs>[\d.]+)",
    r"Available KV cache memory: (?P<kv_bytes__GiB>(?P<available_bytes__GiB>[\d.]+)) GiB",
    r"total_gpu_memory=(?P<card_bytes__GiB>[\d.]+)GiB.* "
    r"peak_torch_memory=(?P<peak_bytes__GiB>[\d.]+)GiB.* "
    r"non_torch_memory=(?P<context_bytes__GiB>[\d.]+)GiB "
    r"kv_cache_size=(?P<kv_bytes__GiB>[\d.]+)GiB",
    r"Setting attention block size to (?P<kv_block_tokens>\d+) tokens",
    r"Padding mamba page size by (?P<state_padding_percent>[\d.]+)%",
    r"Add (?P<padding_layers>\d+) padding layers, may waste at most "
    r"(?P<padding_waste_percent>[\d.]+)%",
    r"group(?: |_block_)sizes[ =][\[(](?P<group_block_tokens>[\d, ]+)[\])]",
    r"(?:# )?[GC]PU blocks: (?P<kv_blocks>\d+), # CPU blocks",
    r"KV cache size: (?P<kv_tokens>[\d,]+) tokens",
    r"Maximum concurrency for (?P<concurrency_tokens>[\d,]+) tokens per request: "
    r"(?P<max_concurrency>[\d.]+)x",
    # the end of the start
    r"Graph capturing finished in (?P<graph_capture_s>[\d.]+) secs?, took "
    r"(?P<graph_bytes__GiB>[\d.]+) GiB",
    r"init engine \(profile, create kv cache, warmup model\) took (?P<engine_init_s>[\d.]+) s"
    r"(?:econds)?(?: \(compilation: (?P<compilation_s>[\d.]+) s)?",
    r"(?P<ready>Application startup complete)",
    # while it runs
    r"Running: (?P<running>\d+)(?: reqs)?, Waiting: (?P<waiting>\d+)(?: reqs)?.*?"
    r"KV cache usage: (?P<kv_cache_usage_percent>[\d.]+)%"
    r"(?:, Prefix cache hit rate: (?P<prefix_hit_rate_percent>[\d.]+)%)?",
    r"prompt throughput: (?P<prompt_tokens_per_s>[\d.]+) tokens/s, "
    r"Avg generation throughput: (?P<generation_tokens_per_s>[\d.]+) tokens/s",
    r"Preemptions: (?P<preempted>\d+)",
    r"WARNING .*\] (?P<ignored_setting>.*(?:deprecated|has no effect|is ignored).*)",
    r"(?P<error>The model's max seq len \(\d+\) is larger than .*\d)",
    r"(?:^|\] |\) )(?P<error>(?:\w+\.)*\w+(?:Error|Exception): "
    r"(?!Engine core initialization failed|EngineCore encountered an issue).*\S)",
    r"(?:^|\] )(?P<error>CUDA out of memory.*\S)",
)
