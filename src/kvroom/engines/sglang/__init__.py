"""SGLang: planned and attached to; kvroom does not start it yet."""

from kvroom.engine import Dialect, Engine, Gauges, LogReader, Probes
from kvroom.engines.sglang.room import plan, share

# Wordings of 0.5.16 to 0.5.23. "GB" in its log is 2**30 bytes.
read_log = LogReader(
    r"server_args=.*?version='(?P<version>[^']+)'",
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

ENGINE = Engine(
    name="sglang",
    summary="SGLang's OpenAI server",
    home=None,
    dialect=Dialect(extra={"ignore_eos": True}),
    probes=Probes(ready="/ready"),
    gauges=Gauges(
        names={
            "sglang:num_running_reqs": "running",
            "sglang:num_queue_reqs": "waiting",
            "sglang:token_usage": "kv_cache_usage",
            "sglang:num_retracted_requests_total": "preempted",
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
    kv_dtypes=("auto", "fp8_e4m3"),
    share=share,
)
