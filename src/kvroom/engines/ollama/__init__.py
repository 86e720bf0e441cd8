"""Ollama: set by environment variables, asked by its own endpoint, which can leave templates out.

Facts: envconfig/config.go, server/sched.go and llm/llama_server.go of fb3076099 (0.33).
"""

from collections.abc import Iterable, Iterator
from typing import Any

from kvroom.cells import share
from kvroom.checkpoint.architecture import Architecture
from kvroom.dialect import Dialect, Prompt
from kvroom.engine import Engine, Home, Place, Probes
from kvroom.engines.ollama.room import SINGLE_SLOT, plan
from kvroom.llamalog import MARKS, PATTERNS, summed
from kvroom.log_reader import LogReader
from kvroom.options import Options, variable
from kvroom.records import Fact, LogLine
from kvroom.settings import Settings

MODELFILE = "Modelfile"


def base(place: Place, settings: Settings) -> Options:
    """Address, a model that stays loaded, and the file that says which model it is."""
    env = {"OLLAMA_HOST": f"{place.host}:{place.port}", "OLLAMA_KEEP_ALIVE": "-1"}
    return Options(env=env, files={MODELFILE: f"FROM {place.model}\n"})


def created(place: Place) -> list[list[str]]:
    """The GGUF file enters Ollama's own store under the name it is served by."""
    return [["create", place.served_model, "-f", f"{place.files}/{MODELFILE}"]]


def kv_cache_dtype(value: str, settings: Settings) -> Options:
    """For all models of the server; a quantised cache needs flash attention, so that is set too."""
    quantised = {} if value == "f16" else {"OLLAMA_FLASH_ATTENTION": "1"}
    return Options(env={"OLLAMA_KV_CACHE_TYPE": value, **quantised})


def cuda_graphs(value: bool | int, settings: Settings) -> Options:
    """On where the build has them; only a variable switches them off, and no size is set."""
    return Options(env={} if value else {"GGML_CUDA_DISABLE_GRAPHS": "1"})


def cautions(settings: Settings, model: Architecture) -> Iterator[str]:
    """Families that Ollama serves one request at a time, whatever is asked."""
    family = model.family.removesuffix("_text")
    if settings.slots is not None and settings.slots > 1 and family in SINGLE_SLOT:
        yield f"Ollama runs {family} with one slot, not the {settings.slots} that are asked for"


def generate(model: str, prompt: Prompt, output_tokens: int) -> dict[str, Any]:
    """The body of ``/api/generate``: no template, no silent cut of the prompt."""
    return {
        "model": model,
        "prompt": prompt,
        "raw": True,
        "stream": True,
        "truncate": False,
        "options": {"num_predict": output_tokens, "temperature": 0, "seed": 0},
    }


# Ollama starts llama-server and passes its lines on without their prefix.
_read = LogReader(
    r"Listening on \S+ \(version (?P<version>[^)]+)\)",
    r"(?P<ready>llama-server started in (?P<load_s>[\d.]+) seconds)",
    r"default_num_ctx=(?P<default_context_tokens>\d+)",
    r"KvSize:(?P<context_tokens>\d+)",
    *PATTERNS,
    r"offloading (?P<layers_on_gpu>\d+) repeating layers to GPU",
    r"(?P<output_layer>offloading output layer to CPU)",
    r"(?P<truncated>truncating input prompt)",
    r"msg=\"(?P<ignored_setting>quantized kv cache requested but flash attention disabled)\"",
    r"(?P<forced_slots>model architecture does not currently support parallel requests)",
    r"level=ERROR .*?(?:msg=\"(?P<error>[^\"]+)|error=\"?(?P<cause>[^\"]+))",
)


def read_log(lines: Iterable[LogLine], file: str) -> Iterator[Fact]:
    """Facts of the log, sums of parts included."""
    return summed(_read, lines, file)


ENGINE = Engine(
    name="ollama",
    summary="Ollama, which starts llama.cpp's server",
    home=Home(
        program="ollama",
        subcommand=("serve",),
        image="ollama/ollama:{version}",
        setup=created,
    ),
    formats=("gguf", "safetensors"),
    base=base,
    knobs={
        "slots": variable("OLLAMA_NUM_PARALLEL"),
        "max_len": variable("OLLAMA_CONTEXT_LENGTH"),
        "kv_cache_dtype": kv_cache_dtype,
        "cuda_graphs": cuda_graphs,
    },
    cannot={
        "kv_memory": "its cache is as large as slots and max_len ask for",
        "memory_fraction": "OLLAMA_GPU_OVERHEAD keeps memory free",
        "batch_tokens": "it chooses 512, 1024 or 2048 by the length of the context",
        "prefix_cache": "it always reuses what a slot holds, and has no switch for it",
        "chunked_prefill": "prompts are always computed in pieces",
        "text_only": "a model without a projector is text only",
        "state_dtype": "recurrent states are always float32",
        "speculative": "it has no option for it",
        "tensor_parallel": "it spreads layers over cards by itself",
        "threads": "it is an option of a request (body: {options: {num_thread: ...}})",
    },
    cautions=cautions,
    caches={"OLLAMA_MODELS": "ollama"},
    effective={"max_len": "slot_tokens"},
    dialect=Dialect(
        path="/api/generate",
        body=generate,
        forced_by=None,
        prompt_count=("prompt_eval_count",),
    ),
    probes=Probes(
        ready="/",
        version=("/api/version", "version"),
        load=("/api/generate", {"model": "{model}", "keep_alive": -1}),
    ),
    ready_line=r"llama-server started in|llama runner started in",
    read_log=read_log,
    log_marks=(
        *MARKS,
        "Listening",
        "llama-server",
        "num_ctx",
        "KvSize",
        "offload",
        "truncating",
        "quantized kv",
        "parallel requests",
        "level=ERROR",
    ),
    log_signature=r"level=[A-Z]+ source=|\bOLLAMA_",
    room=plan,
    kv_dtypes=("f16", "q8_0"),
    share=share,
    takes_what_is_left=False,
)
