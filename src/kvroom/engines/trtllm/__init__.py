"""TensorRT-LLM's PyTorch backend: planned and attached to; kvroom does not start it yet."""

from kvroom.engine import Dialect, Engine, Probes, log_reader
from kvroom.engines.trtllm.room import plan, share

# Wordings: TensorRT-LLM 1.3.0rc29. "Allocated" is printed once for the dry run and once for good,
# and counts the slots of recurrent states as blocks of tokens.
read_log = log_reader(
    r"Allocated (?P<kv_bytes__GiB>[\d.]+) GiB for max tokens in paged KV cache "
    r"\((?P<kv_allocated_tokens>\d+)\)",
    r"available KV cache memory when calculating max tokens: (?P<available_bytes__GiB>[\d.]+) GiB",
    r"(?:kv size per token is|KV size per token is) (?P<kv_bytes_per_token>\d+)"
    r"(?: bytes/token(?: \+ (?P<kv_fixed_bytes>\d+) bytes fixed cost)?)?",
    r"TensorRT-LLM version: (?P<version>\S+)",
    r"(?P<ready>Application startup complete)",
    r"(?P<error>\b[A-Z]\w*Error: .*\S)",
)

ENGINE = Engine(
    name="trtllm",
    summary="TensorRT-LLM's PyTorch backend (trtllm-serve)",
    home=None,
    dialect=Dialect(extra={"ignore_eos": True}),
    probes=Probes(version=("/version", "version")),
    ready_line=r"Application startup complete",
    read_log=read_log,
    room=plan,
    kv_dtypes=("auto", "fp8"),
    share=share,
)
