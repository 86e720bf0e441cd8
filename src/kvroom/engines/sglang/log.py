"""What SGLang says of itself: lines of 0.5.16 to 0.5.23. "GB" is 2**30 bytes."""

from kvroom.log_reader import LogReader

read_log = LogReader(
    r"server_args=.*?version='(?P<version>[^']+)'",
    r"server_args=.*?context_length=(?P<max_len>\d+)",
    r"server_args=.*?tp_size=(?P<tensor_parallel>\d+)",
    r"server_args=.*?kv_cache_dtype='(?P<kv_cache_dtype>\w+)'",
    r"server_args=.*?disable_radix_cache=(?P<prefix_cache_off>True|False)",
    r"server_args=.*?max_running_requests=(?P<slots>\d+)",
    r"server_args=.*?mamba_ssm_dtype='(?P<state_dtype>\w+)'",
    r"server_args=.*?speculative_algorithm=(?P<speculative>None|'\w+')",
    r"mem_fraction_static=(?P<memory_fraction>[\d.]+)",
    r"Load weight end\..*avail mem=(?P<free_after_load_bytes__GB>[\d.]+) GB, "
    r"mem usage=(?P<weights_bytes__GB>[\d.]+) GB",
    r"Load weight end\. elapsed=(?P<load_s>[\d.]+) s",
    r"Use (?P<attention_backend>\w+) (?:attention )?backend (?:by default|as)",
    r"Using (?P<attention_backend>\w+) as attention backend",
    r"Mamba Cache is allocated\. max_mamba_cache_size: (?P<state_slots>\d+),"
    r"\s+conv_state size: (?P<conv_state_bytes__GB>[\d.]+) ?GB, "
    r"ssm_state size: (?P<ssm_state_bytes__GB>[\d.]+) ?GB",
    r"KV Cache is allocated\. (?:dtype: (?P<kv_cache_dtype>[\w.]+), )?"
    r"#tokens: (?P<kv_tokens>\d+)(?:, KV size: (?P<kv_bytes__GB>[\d.]+) GB)?",
    r"max_total_num_tokens[= ](?P<kv_tokens>[\d,]*\d)",
    r"max_running_requests=(?P<slots>\d+), context_len=(?P<max_len>\d+)",
    r"chunked_prefill_size=(?P<chunk_tokens>-?\d+)",
    r"available_gpu_mem=(?P<free_bytes__GB>[\d.]+) GB",
    r"max_running_requests is capped to (?P<slots>\d+) by the mamba state cache "
    r"\(max_mamba_cache_size=(?P<state_slots>\d+), (?P<slots_per_request>\d+) state slots",
    r"reduced from the requested \d+ to (?P<slots>\d+) \(per dp worker\)",
    r"CUDA graph begin\..*bs=\[(?:\d+, )*(?P<largest_graph>\d+)\]",
    r"CUDA graph end\..*elapsed=(?P<graph_capture_s>[\d.]+) s, "
    r"mem usage=(?P<graph_bytes__GB>[\d.]+) GB",
    r"Decode batch.*?#running-req: (?P<running>\d+)",
    r"Decode batch.*?(?<!swa )token usage: (?P<kv_cache_usage>[\d.]+)",
    r"Decode batch.*?#full token: (?P<used_tokens>\d+)",
    r"Decode batch.*?mamba usage: (?P<state_usage>[\d.]+)",
    r"Decode batch.*?cuda graph: (?P<cuda_graph>True|False)",
    r"gen throughput \(token/s\): (?P<generation_tokens_per_s>[\d.]+)(?:, #queue-req: "
    r"(?P<waiting>\d+))?",
    r"Retract requests\. #retracted_reqs: (?P<retracted>\d+)",
    r"(?P<ready>The server is fired up and ready to roll)",
    r"exceeds the maximum allowed length \((?P<max_prompt_tokens>\d+) tokens\)",
    r"(?P<error>(?:\w+\.)*\w+(?:Error|Exception): .*\S)",
)  # fmt: skip
