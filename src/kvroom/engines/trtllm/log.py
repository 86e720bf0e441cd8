"""What TensorRT-LLM says of itself: lines of 0.8 to 1.3.0rc29.

Sizing lines come twice, for the dry run and for good; "Allocated" counts the slots of recurrent
states as blocks of tokens.
"""

from kvroom.log_reader import LogReader

read_log = LogReader(
    r"TensorRT-LLM version: (?P<version>\S+)",
    r"max_seq_len=(?P<max_len>\d+), max_num_requests=\d+, max_num_tokens=(?P<batch_tokens>\d+), "
    r"max_batch_size=(?P<slots>\d+)",
    r"chunked_prefill=(?P<chunked_prefill>True|False), cache_reuse=(?P<prefix_cache>True|False)",
    r"KV Cache config against kv_cache_dtype=\"(?P<kv_cache_dtype>\w+)",
    r"Use (?P<weights_bytes__GB>[\d.]+) GB for model weights",
    r"Model init total -- (?P<load_s>[\d.]+)s",
    r"loading (?:model )?weights \(inside torch\).*: (?P<weights_bytes__GiB>[\d.]+) GiB",
    r"dynamically allocated during inference.*: (?P<activation_bytes__GiB>[\d.]+) GiB",
    r"Peak memory during memory usage profiling.*?: (?P<peak_bytes__GiB>[\d.]+) GiB",
    r"available KV cache memory when calculating max tokens: (?P<available_bytes__GiB>[\d.]+) GiB",
    r"fraction is set (?P<memory_fraction>[\d.]+\d)",
    r"(?:kv size per token is|kv size is) (?P<kv_bytes_per_token>\d+)"
    r"(?: bytes/token(?: \+ (?P<kv_fixed_bytes>\d+) bytes fixed cost)?)?",
    r"device total memory (?P<card_bytes__GiB>[\d.]+) GiB",
    r"(?:temporary kv cache memory during profiling|tmp kv_mem) "
    r"(?P<temporary_kv_bytes__GiB>[\d.]+)",
    r"total: (?P<card_bytes__GiB>[\d.]+) GiB, available: (?P<available_bytes__GiB>[\d.]+) GiB",
    r"umber of tokens per block: (?P<kv_block_tokens>\d+)",
    r"tokens per block=(?P<kv_block_tokens>\d+), primary blocks=(?P<kv_blocks>\d+)",
    r"Max KV cache blocks per sequence: (?P<blocks_per_sequence>\d+)",
    r"Number of blocks in KV cache primary pool: (?P<kv_blocks>\d+)",
    r"Allocate (?P<kv_bytes>\d+) bytes for k/v cache",
    r"Using (?P<kv_tokens>\d+) tokens in paged KV cache",
    r"Allocated (?P<kv_bytes__GiB>[\d.]+) GiB for max tokens in paged KV cache "
    r"\((?P<kv_allocated_tokens>\d+)\)",
    r"Adjusted max_seq_len to (?P<max_len>\d+)",
    r"maxInputLen: (?P<max_prompt_tokens>\d+)",
    r"attn_backend='(?P<attention_backend>\w+)'",
    r"Selected hybrid KV cache manager: (?P<kv_cache_manager>\w+)",
    r"Creating CUDA graph instances for (?P<graph_sizes>\d+) batch sizes",
    r"Building JIT module (?P<jit_module>[\w.-]+)",
    r"Loading JIT ops: (?P<jit_module>\S+)",
    r"num_scheduled_requests[ =:]+(?P<running>\d+)",
    r"kv_cache_util = (?P<kv_cache_usage>[\d.]+)",
    r"(?P<ready>Application startup complete)",
    r"(?P<error>(?:\w+\.)*\w+(?:Error|Exception): (?!Executor worker returned error).*\S)",
    r"^(?:\[[^\]]*\] ?)*(?P<error>CUDA out of memory.*\S)",
    r"(?P<error>Impossible to fit in any sequence in kvCache)",
    r"(?P<wrapped_error>Executor worker returned error)",
)  # fmt: skip
