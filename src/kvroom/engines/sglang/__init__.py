"""SGLang: planned and attached to; kvroom does not start it yet."""

from kvroom.engine import Dialect, Engine, Probes, log_reader
from kvroom.engines.sglang.room import plan, share

# Wordings: SGLang 0.5.23. "GB" in its log is 2**30 bytes.
read_log = log_reader(
    r"KV Cache is allocated.*#tokens: (?P<kv_tokens>\d+)",
    r"max_total_num_tokens=(?P<kv_tokens>\d+)",
    r"max_running_requests=(?P<slots>\d+)",
    r"max_mamba_cache_size: (?P<state_slots>\d+)",
    r"capped to (?P<slots>\d+) by the mamba state cache "
    r"\(max_mamba_cache_size=(?P<state_slots>\d+)",
    r"(?P<ready>The server is fired up and ready to roll)",
    r"(?P<error>\b[A-Z]\w*Error: .*\S)",
)

ENGINE = Engine(
    name="sglang",
    summary="SGLang's OpenAI server",
    home=None,
    dialect=Dialect(extra={"ignore_eos": True}),
    probes=Probes(ready="/ready"),
    ready_line=r"The server is fired up",
    read_log=read_log,
    room=plan,
    kv_dtypes=("auto", "fp8_e4m3"),
    share=share,
)
