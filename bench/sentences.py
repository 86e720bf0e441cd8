"""What a sentence says of a log -> the line that the engine itself prints for it."""

import re
from collections.abc import Iterator, Mapping, Sequence

NUMBER = r"(?P<n>\d[\d,.]*\d|\d)"
CONCURRENCY = "Maximum concurrency for {length} tokens per request: {n}x"
STATES = (
    "Mamba Cache is allocated. max_mamba_cache_size: {n}, conv_state size: 0GB, ssm_state size: 0GB"
)
RUNNING = "Running: {r} reqs, Waiting: {waiting} reqs, GPU KV cache usage: "
SAID: Mapping[str, tuple[tuple[str, str], ...]] = {
    "vllm": (
        (rf"available KV {NUMBER} GiB", "Available KV cache memory: {n} GiB"),
        (rf"attention block {NUMBER} tokens", "Setting attention block size to {n} tokens"),
        (rf"tokens, (?:max concurrency )?{NUMBER}x", CONCURRENCY),
        (rf"Maximum concurrency {NUMBER}x", CONCURRENCY),
        (rf"kv={NUMBER}.*?running=(?P<r>\d+)", RUNNING + "{percent}%"),
        (r"^running=(?P<r>\d+)", RUNNING + "0.0%"),
        (
            rf"prefix cache hit rate falls to 0.*?{NUMBER}% pool",
            "Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: {n}%, "
            "Prefix cache hit rate: 0.0%",
        ),
        (rf"max_model_len capped at ~?{NUMBER}", "Using max model len {n}"),
        (rf"torch\.compile {NUMBER} s", "torch.compile takes {n} s in total"),
        (rf"CUDA graph capture.*?{NUMBER} s", "Graph capturing finished in {n} secs, took 0 GiB"),
        (rf"profiling / warmup {NUMBER} s", "Initial profiling/warmup run took {n} s"),
        (rf"weight load .* {NUMBER} s", "Loading weights took {n} seconds"),
        (r"preemptions?[:=] ?(?P<n>\d+)", "Preemptions: {n}"),
    ),
    "sglang": (
        (r"^K=(?P<n>\d+):", STATES),
        (r"^(?P<n>\d+) slots:", STATES),
        (rf"\({NUMBER} GB free", "available_gpu_mem={n} GB"),
    ),
    "trtllm": (
        (rf"mean batch {NUMBER}", "num_scheduled_requests = {n}"),
        (r"(?P<n>\d+) active", "num_scheduled_requests = {n}"),
    ),
}


def lines(engine: str, told: Sequence[str], length: int, asked: int) -> Iterator[str]:
    """The lines as told, each sentence among them followed by the engine's own line.

    Of the requests that were asked, those that do not run are taken to wait.
    """
    for line in told:
        yield line
        for pattern, template in SAID.get(engine, ()):
            found = re.search(pattern, line)
            if found and "[" not in line[:10]:
                words = {**found.groupdict(), "length": f"{length:,}"}
                words["waiting"] = str(max(0, asked - int(words.get("r") or asked)))
                words["percent"] = f"{100 * float(words['n']):.1f}" if "kv=" in pattern else ""
                yield template.format(**words)
