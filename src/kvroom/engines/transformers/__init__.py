"""Hugging Face's ``transformers serve``: the models' own code behind an OpenAI server."""

from kvroom.dialect import Dialect
from kvroom.engine import Engine, Home, Place, Probes
from kvroom.log_reader import LogReader
from kvroom.options import Options, option
from kvroom.settings import Settings

_NO_END = '{"eos_token_id": -1}'
"""An end token that no vocabulary has; it takes a generation config as JSON in a text."""


def base(place: Place, settings: Settings) -> Options:
    """Model and address; below ``info`` it says nothing of itself."""
    where = ("--host", place.host, "--port", str(place.port))
    return Options(arguments=(place.model, *where, "--log-level", "info"))


ENGINE = Engine(
    name="transformers",
    summary="Hugging Face's transformers serve",
    home=Home(
        program="transformers",
        subcommand=("serve",),
        within=("-c", "from transformers.cli.transformers import main; main()", "serve"),
        packages=lambda version: [f"transformers[serving]=={version}", "accelerate", "torch"],
        names_model=False,
        disclosure="transformers answers one request after the other unless its flags say "
        "--continuous-batching",
    ),
    formats=("safetensors",),
    base=base,
    knobs={
        "memory_fraction": option("--cb-max-memory-percent"),
        "batch_tokens": option("--cb-max-batch-tokens"),
    },
    cannot={
        "slots": "with --continuous-batching its batch is limited by --cb-max-batch-tokens only",
        "max_len": "a request may grow until the model's own limit",
        "kv_cache_dtype": "its cache has the type of the model",
        "kv_memory": "its cache is sized in blocks (--cb-num-blocks)",
        "text_only": "it loads what the checkpoint's class says",
        "prefix_cache": "blocks of equal beginnings are shared with --continuous-batching, always",
        "chunked_prefill": "prompts are cut at --cb-max-batch-tokens, always",
        "cuda_graphs": "--cb-use-cuda-graph switches them, and takes no size",
        "state_dtype": "it has no option for it",
        "speculative": "its server takes no draft model",
        "tensor_parallel": "it is started with torchrun for that, which kvroom does not do",
        "threads": "the variable OMP_NUM_THREADS says how many",
    },
    env={"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"},
    dialect=Dialect(extra={"generation_config": _NO_END}, forced_by="generation_config"),
    ready_line=r"Uvicorn running on",
    probes=Probes(),
    read_log=LogReader(
        r'^  "transformers_version": "(?P<version>[^"]+)"',
        r'^  "dtype": "(?P<kv_cache_dtype>[^"]+)"',
        r'^  "max_position_embeddings": (?P<max_len>\d+)',
        r"\bCB: (?P<continuous_batching>\w+)",
        r"(?P<ready>Uvicorn running on \S+)",
        r"^(?P<error>\w*(?:Error|Exception)(?!: Task exception).*\S)",
    ),
    log_marks=(
        '"transformers_version',
        '"dtype"',
        '"max_pos',
        "CB: ",
        "Uvicorn",
        "Error",
        "Exception",
    ),
    phases=(
        ("imports", r"^\[transformers\] Loading \S"),
        ("configuration", r"loading weights file"),
        ("weights", r"Loading weights: 100%"),
        ("server", r"Uvicorn running on"),
    ),
    log_signature=r"^\[transformers\]",
)
