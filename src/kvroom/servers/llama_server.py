"""llama.cpp's own HTTP server out of the ``xllamacpp`` wheel, started with llama-server's flags.

Runs inside a contender's environment and needs nothing of kvroom. The server, its scheduler and its
endpoints are llama.cpp's C++; this file only turns flags into parameters. A flag it does not know
is refused, never ignored.
"""

import argparse
import signal
from importlib import metadata
from typing import Any

import xllamacpp

FLASH_ATTENTION = {
    "on": xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_ENABLED,
    "off": xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED,
    "auto": xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_AUTO,
}

INTEGERS = {
    "n_ctx": ("-c", "--ctx-size"),
    "n_parallel": ("-np", "--parallel"),
    "n_batch": ("-b", "--batch-size"),
    "n_ubatch": ("-ub", "--ubatch-size"),
    "n_gpu_layers": ("-ngl", "--gpu-layers"),
    "n_threads_http": ("--threads-http",),
    "cache_ram_mib": ("-cram", "--cache-ram"),
    "n_ctx_checkpoints": ("-ctxcp", "--ctx-checkpoints"),
    "verbosity": ("-lv", "--verbosity"),
}
SWITCHES = {
    "kv_unified": ("-kvu", "--kv-unified"),
    "swa_full": ("--swa-full",),
    "ctx_shift": ("--context-shift",),
    "cache_prompt": ("--cache-prompt",),
    "cont_batching": ("-cb", "--cont-batching"),
    "warmup": ("--warmup",),
    "endpoint_metrics": ("--metrics",),
    "endpoint_slots": ("--slots",),
}


def arguments() -> argparse.Namespace:
    """The flags given, by parameter name; what was not given is absent."""
    parser = argparse.ArgumentParser(
        prog="llama-server", allow_abbrev=False, argument_default=argparse.SUPPRESS
    )
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("-a", "--alias", default="model")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("-t", "--threads", type=int)
    parser.add_argument("-tb", "--threads-batch", type=int)
    parser.add_argument("-ctk", "--cache-type-k", type=tensor_type)
    parser.add_argument("-ctv", "--cache-type-v", type=tensor_type)
    parser.add_argument("-fa", "--flash-attn", choices=FLASH_ATTENTION)
    for name, flags in INTEGERS.items():
        parser.add_argument(*flags, dest=name, type=int)
    for name, flags in SWITCHES.items():
        parser.add_argument(*flags, dest=name, action=argparse.BooleanOptionalAction)
    return parser.parse_args()


def tensor_type(name: str) -> Any:
    """The ggml type of a KV cache type name such as ``q8_0``."""
    try:
        return getattr(xllamacpp.ggml_type, f"GGML_TYPE_{name.upper()}")
    except AttributeError:
        raise argparse.ArgumentTypeError(f"unknown cache type {name!r}") from None


def parameters(given: argparse.Namespace) -> Any:
    """llama.cpp's parameter block with the given flags set and its defaults elsewhere."""
    values = vars(given)
    params = xllamacpp.CommonParams()
    params.model.path = values.pop("model")
    params.model_alias = {values.pop("alias")}
    params.hostnames = [values.pop("host")]
    params.port = values.pop("port")
    params.endpoint_metrics = params.endpoint_slots = params.endpoint_props = True
    if "flash_attn" in values:
        params.flash_attn_type = FLASH_ATTENTION[values.pop("flash_attn")]
    threads = values.pop("threads", None)
    if threads is not None:
        params.cpuparams.n_threads = threads
        params.cpuparams_batch.n_threads = values.pop("threads_batch", threads)
    for name, value in values.items():
        setattr(params, name, value)
    return params


def main() -> None:
    """Serve until a signal says stop."""
    given = arguments()
    signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    print(f"xllamacpp {metadata.version('xllamacpp')}", flush=True)
    server = xllamacpp.Server(parameters(given))
    print(f"serving on {server.listening_address}", flush=True)
    signal.sigwait(signals)
    del server


if __name__ == "__main__":
    main()
