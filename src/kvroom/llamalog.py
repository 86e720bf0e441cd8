"""Lines of llama.cpp's library, as llama-server and Ollama print them: patterns and sums."""

from collections.abc import Iterable, Iterator

import msgspec

from kvroom.log_reader import LogReader
from kvroom.records import Fact, LogLine

MARKS = (
    "llama_",
    "buffer size",
    "n_threads",
    "model tensors",
    "KV self size",
    "graph splits",
    "offloaded ",
    "n_slots",
    "n_ctx_slot",
    "new slot",
    "rror",
    "failed",
    "Context size",
)

PATTERNS = (
    r"llama_context: (?P<_context>constructing)",
    r"(?:llama_context|llama_new_context_with_model): n_seq_max\s+= (?P<slots>\d+)",
    r"(?:llama_context|llama_new_context_with_model): n_ctx\s+= (?P<context_tokens>\d+)",
    r"n_ctx_(?:seq|per_seq)\s+= (?P<slot_tokens>\d+)",
    r"(?:llama_context|llama_new_context_with_model): n_batch\s+= (?P<batch_tokens>\d+)",
    r"n_ubatch\s+= (?P<micro_batch_tokens>\d+)",
    r"kv_unified\s+= '?(?P<kv_unified>\w+)",
    r"(?:llama_context|llama_new_context_with_model): flash_attn\s+= (?P<flash_attention>\w+)",
    r"(?P<flash_attention>Flash Attention enabled)",
    r"(?P<_loading>loading model tensors)",
    r"model buffer size =\s*(?P<_weights__MiB>[\d.]+) MiB",
    r"KV buffer size =\s*(?P<kv_part_bytes__MiB>[\d.]+) MiB",
    r"compute buffer size =\s*(?P<compute_bytes__MiB>[\d.]+) MiB",
    r"KV self size\s+=\s*(?P<kv_bytes__MiB>[\d.]+) MiB, (?:c\^KV|K) \((?P<kv_cache_dtype>\w+)\)",
    r"kv_size = (?P<kv_tokens>\d+).* type_k = '(?P<kv_cache_dtype>\w+)'",
    r"llama_kv_cache: size =\s*(?P<_cache__MiB>[\d.]+) MiB \(\s*(?P<_cells>\d+) cells,"
    r"\s*\d+ layers,\s*\d+/(?P<_streams>\d+) seqs\), K \((?P<kv_cache_dtype>\w+)\)",
    r"llama_memory_recurrent: size =\s*(?P<state_bytes__MiB>[\d.]+) MiB "
    r"\(\s*(?P<state_slots>\d+) cells",
    r"graph splits = (?P<graph_splits>\d+)",
    r"offloaded (?P<layers_on_gpu>\d+)/(?P<layers>\d+) layers to GPU",
    r"n_slots = (?P<slots>\d+), n_ctx_slot = (?P<slot_tokens>\d+)",
    r"n_slots=(?P<slots>\d+)|n_ctx_slot=(?P<slot_tokens>\d+)",
    r"new slot, n_ctx = (?P<slot_tokens>\d+)",
    r"(?P<error>Context size has been exceeded|failed to find free space in the KV cache)",
)

_SUMS = {"_weights": "weights_bytes", "_cache": "kv_bytes"}
"""Parts, and what they are parts of. Names with an underscore stay inside."""


def summed(read: LogReader, lines: Iterable[LogLine], file: str) -> Iterator[Fact]:
    """Facts of the log; parts of the weights, and the caches of one context, are summed too.

    A model with sliding-window layers prints two caches: the bytes add up, while the tokens a
    request may hold are those of the larger one. Cells are printed per stream.
    """
    sums = dict.fromkeys(_SUMS, 0.0)
    tokens = cells = 0.0
    for fact in read(lines, file):
        if not fact.name.startswith("_"):
            yield fact
        match fact.name, fact.value:
            case "_context", _:
                sums["_cache"] = tokens = 0.0
            case "_loading", _:
                sums["_weights"] = 0.0
            case "_weights" | "_cache" as part, float(value):
                sums[part] += value
                yield msgspec.structs.replace(
                    fact, name=_SUMS[part], value=sums[part], unit="bytes"
                )
            case "_cells", float(value):
                cells = value
            case "_streams", float(value):
                tokens = max(tokens, cells * value)
                yield msgspec.structs.replace(fact, name="kv_tokens", value=tokens, unit="tokens")
