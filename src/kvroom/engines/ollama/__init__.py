"""Ollama: planned and attached to; kvroom does not start it yet."""

from kvroom.cells import share
from kvroom.engine import Dialect, Engine, Probes, log_reader
from kvroom.engines.ollama.room import plan

# Ollama starts llama-server and passes its lines on without their prefix.
read_log = log_reader(
    r"Listening on \S+ \(version (?P<version>[^)]+)\)",
    r"llama-server started in (?P<load_s>[\d.]+) seconds",
    r"llama_kv_cache: size =\s*(?P<kv_bytes__MiB>[\d.]+) MiB",
    r"(?P<error>model architecture does not currently support parallel requests)",
)

ENGINE = Engine(
    name="ollama",
    summary="Ollama, which starts llama.cpp's server",
    home=None,
    dialect=Dialect(),
    probes=Probes(ready="/", version=("/api/version", "version")),
    read_log=read_log,
    room=plan,
    kv_dtypes=("f16", "q8_0"),
    share=share,
    takes_what_is_left=False,
)
