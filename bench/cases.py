"""A labelled case of a folder -> what kvroom would be given: options, model, load, log.

The cases are told by people: options with two values, figures in a sentence instead of a line. What
can be taken literally is; what a sentence says of a log is turned into the engine's own line first,
so that everything goes through the same reader. What is expected of the answer is never looked at.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from kvroom import engines
from kvroom.checkpoint.architecture import Architecture, Attention, State
from kvroom.checkpoint.read import Checkpoint
from kvroom.explain.asked import flags as as_options
from kvroom.explain.case import Case, Load
from kvroom.explain.gather import Known, gather
from kvroom.explain.log import read
from kvroom.memory import Span
from kvroom.options import Options
from kvroom.records import LogLine
from kvroom.settings import Settings, Speculative

GIB = 1 << 30
FORKS = {"ik_llama.cpp": "llamacpp", "llama.cpp": "llamacpp", "tensorrt-llm": "trtllm"}


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """A case as its file has it, without the answer."""

    id: str
    engine: str
    version: str
    model: str
    architecture: dict[str, Any]
    hardware: str
    flags: list[str]
    workload: str
    log_lines: list[str]


def load(file: Path) -> tuple[Told, dict[str, Any]]:
    """What is given, and apart from it what is expected."""
    data = yaml.safe_load(file.read_text(encoding="utf-8"))
    given = {name: data.get(name) or kind() for name, kind in DEFAULTS.items()}
    given |= {name: str(given[name]) for name in ("id", "version", "model", "hardware", "workload")}
    given["flags"] = [str(flag) for flag in given["flags"]]
    given["log_lines"] = [str(line) for line in given["log_lines"]]
    return msgspec.convert(given, Told, strict=False), data["expected"]


DEFAULTS: Mapping[str, Any] = {
    "id": str, "engine": str, "version": str, "model": str, "architecture": dict, "hardware": str,
    "flags": list, "workload": str, "log_lines": list,
}  # fmt: skip


def case(told: Told) -> Case:
    """The case as ``kvroom explain`` would have it."""
    engine = engines.engine(FORKS.get(told.engine.lower(), told.engine))
    lines = [LogLine(n, text) for n, text in enumerate(_lines(told), start=1)]
    log = read(engine, lines, "log") if lines else None
    options, settings = _options(told, engine.name)
    shape = _architecture(told)
    pool = _pool(told)
    return gather(
        Known(
            engine=engine.name,
            version=_version(told.version),
            settings=settings,
            options=options,
            load=workload(f"{told.workload}; {'; '.join(told.flags)}"),
            checkpoint=Checkpoint(name=told.model, architecture=shape, weights=None)
            if shape
            else None,
            available=pool,
            memory=_card_bytes(told.hardware),
            card=_card(told.hardware),
            on_cpu="cpu" in told.hardware.lower() and "gpu" not in told.hardware.lower(),
            block_tokens=_block(told),
            state_slots=_number(told.flags, r"max-mamba-cache-size (\d+)"),
            overcommit=any("MAX_UTILIZATION" in flag for flag in told.flags),
        ),
        log,
    )


# The log ------------------------------------------------------------------------------------------

NUMBER = r"(?P<n>\d[\d,.]*\d|\d)"
SENTENCES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "vllm": (
        (rf"available KV {NUMBER} GiB", "Available KV cache memory: {n} GiB"),
        (rf"attention block {NUMBER} tokens", "Setting attention block size to {n} tokens"),
        (rf"tokens, (?:max concurrency )?{NUMBER}x", "Maximum concurrency for {max_len} tokens "
         "per request: {n}x"),
        (rf"Maximum concurrency {NUMBER}x", "Maximum concurrency for {max_len} tokens per "
         "request: {n}x"),
        (r"kv=0\.(?P<n>\d{1,3}).*?running=(?P<r>\d+)", "Running: {r} reqs, Waiting: 0 reqs, "
         "GPU KV cache usage: {percent}%"),
        (r"^running=(?P<n>\d+)", "Running: {n} reqs, Waiting: 0 reqs, GPU KV cache usage: 0.0%"),
        (rf"torch\.compile {NUMBER} s", "torch.compile takes {n} s in total"),
        (rf"CUDA graph capture.*?{NUMBER} s", "Graph capturing finished in {n} secs, took 0 GiB"),
        (rf"profiling / warmup {NUMBER} s", "Initial profiling/warmup run took {n} s"),
        (rf"weight load .* {NUMBER} s", "Loading weights took {n} seconds"),
    ),
    "sglang": (
        (r"^K=(?P<n>\d+):", "Mamba Cache is allocated. max_mamba_cache_size: {n}, conv_state size: "
         "0GB, ssm_state size: 0GB"),
        (rf"\({NUMBER} GB free", "available_gpu_mem={{n}} GB"),
    ),
}  # fmt: skip


def _lines(told: Told) -> Iterator[str]:
    """The lines, each sentence among them followed by the line that it tells of."""
    length = _number(told.flags, r"max[- ]model[- ]len (\d+)") or 0
    for line in told.log_lines:
        yield line
        for pattern, template in SENTENCES.get(told.engine, ()):
            found = re.search(pattern, line)
            if found and "[" not in line[:5]:
                words = {**found.groupdict(), "max_len": f"{length:,}"}
                words["percent"] = (
                    f"{float('0.' + words['n']) * 100:.1f}" if words["n"].isdigit() else ""
                )
                yield template.format(**words)


# Options ------------------------------------------------------------------------------------------

PROSE: tuple[tuple[str, str], ...] = (
    ("slots", r"(?:max_num_seqs|max_batch_size|max_running_requests|n_parallel)\D{0,12}(\d+)"),
    ("slots", r"(\d+) parallel sequences"),
    ("max_len", r"(?:max[_ ]model[_ ]len|max_seq_len|context_length)\D{0,12}(\d+)"),
    ("batch_tokens", r"max_num_(?:batched_)?tokens\D{0,14}(\d+)(?!\d|k)"),
    ("memory_fraction", r"(?:free_gpu_mem\w*_fraction|mem-fraction|fraction)\D{0,12}(0?\.\d+)"),
    ("kv_cache_dtype", r"(fp8_e4m3|fp8) KV"),
)


def _options(told: Told, engine: str) -> tuple[Options, Settings]:
    """What can be split as a shell would, and what sentences say in our words."""
    words = [flag for flag in told.flags if re.match(r"--?[a-z]|[A-Z][A-Z0-9_]+=", flag)]
    found: dict[str, Any] = {}
    for flag in (flag for flag in told.flags if flag not in words or flag.startswith("trtllm")):
        for setting, pattern in PROSE:
            match = re.search(pattern, flag)
            if match and setting not in found:
                found[setting] = match[1]
        if re.search(r"prefix caching on", flag, re.I):
            found["prefix_cache"] = True
    drafts = re.search(r"(?:num_speculative_tokens\W+|speculative tokens |dflash_tokens=)(\d+)",
                       " ".join(told.flags), re.I)  # fmt: skip
    if drafts:
        found["speculative"] = Speculative(tokens=int(drafts[1]))
    context = _number(told.flags, r"(?:num_ctx|n_ctx) (\d+)")
    if context and engine in ("ollama", "llamacpp"):
        found["max_len"] = context
    return as_options(tuple(_clean(word) for word in words)), msgspec.convert(
        found, Settings, strict=False
    )


def _clean(flag: str) -> str:
    """An option without the remark behind it."""
    return re.sub(r"\s*\(.*\)|\s+(?:/|vs|->)\s.*", "", flag)


# Everything else ----------------------------------------------------------------------------------


def _version(text: str) -> str:
    found = re.match(r"v?\d+\.\d+[\w.+-]*|b\d+", text)
    if found:
        return found[0].rstrip(".")
    found = re.search(r"\b(\d+\.\d+)\b", text)
    return found[1] if (found and "vLLM" in text) or (found and "line" in text) else ""


def _number(texts: list[str], pattern: str) -> int | None:
    found = re.search(pattern, " ; ".join(texts))
    return int(found[1].replace(",", "")) if found else None


def _card(hardware: str) -> str:
    found = re.search(
        r"(?:RTX (?:PRO )?\d{4}(?: Ti)?|H\d00|H20|A\d00|B200|L40S?|RTX 6000 Ada)", hardware
    )
    return found[0] if found else ""


def _card_bytes(hardware: str) -> Span | None:
    found = re.search(r"\b(\d+(?:\.\d+)?) ?(?:GB|GiB)\b", re.sub(r"pool.*|KV.*", "", hardware))
    size = int(float(found[1]) * GIB) if found else 0
    return Span(size, size) if size else None


def _block(told: Told) -> int | None:
    """Tokens of a page, where an option or the engine's build says so."""
    return _number(told.flags, r"--block-size (\d+)") or told.architecture.get("tokens_per_block")


POOL = re.compile(
    r"(?:pool|KV cache) ~?([\d.]+) GiB|([\d.]+) GiB KV(?: budget)? per|pool \S+ ([\d.]+) GiB"
)


def _pool(told: Told) -> Span | None:
    """Bytes of the pool, where a sentence gives them."""
    found = POOL.search("; ".join((*told.log_lines, told.hardware)))
    if found is None or told.engine in ("ollama", "llamacpp"):
        return None
    size = float(next(filter(None, found.groups())))
    return Span(int((size - 0.005) * GIB), int((size + 0.005) * GIB))


def workload(text: str) -> Load:
    """Lengths and numbers out of a sentence."""
    text = text.replace("~", "")
    lengths = _lengths(text)
    return Load(
        prompt=lengths[0],
        output=lengths[1],
        concurrency=_concurrency(text),
        conversations=_conversations(text),
        rate="req/s" in text or "open-loop" in text,
    )


def _count(text: str) -> int:
    scale = 1000 if text[-1] in "kK" else 1
    return round(float(text.rstrip("kK").replace(",", "")) * scale)


TOKENS = r"(\d[\d,.]*k?|\d+)"


def _lengths(text: str) -> tuple[int | None, int | None]:
    pairs = (rf"{TOKENS} in ?/ ?{TOKENS} out", r"\b(\d{3,})/(\d{3,})[ ,]")
    for pattern in pairs:
        if found := re.search(pattern, text, re.I):
            return _count(found[1]), _count(found[2])
    singles = (
        rf"close to {TOKENS} tokens",
        rf"prompts? of {TOKENS}",
        rf"{TOKENS}[- ](?:token|word) prompt",
        rf"{TOKENS} prompts",
        rf"prompts? (?:above|of) {TOKENS} tokens",
        rf"(?:request|inputs?) (?:above|longer than) {TOKENS}",
    )
    for pattern in singles:
        if found := re.search(pattern, text, re.I):
            return _count(found[1]), None
    if re.search(r"\bshort (?:requests|prompts)\b", text):
        return 16, 16
    return None, None


def _concurrency(text: str) -> int | None:
    if found := re.search(r"concurrency (\d+)|N = (?:\d+/)*(\d+)", text):
        return int(found[1] or found[2])
    counted = re.search(
        r"(?:(\d+)-)?(\d+) (?:(?:concurrent|long|short|parallel|very long|simultaneous) ?)*"
        r"(?:requests|prompts|chats|users|agents|decodes|streams|clients|sessions)",
        text,
    )
    if counted:
        queued = re.search(r"\+ (\d+) queued", text)
        return int(counted[2]) + (int(queued[1]) if queued else 0)
    if found := re.search(r"batch (\d+)", text):
        return int(found[1])
    if re.search(r"\b(?:single|one) (?:\w+ )?(?:request|prompt|user|stream|long prompt)", text):
        return 1
    return None


def _conversations(text: str) -> int | None:
    if found := re.search(r"(\d+) distinct conversations", text):
        return int(found[1])
    several = re.search(r"prefix reuse|two-turn|round-robin over several|sessions|multi-turn", text)
    return 2 if several else None


# The model ----------------------------------------------------------------------------------------


def _architecture(told: Told) -> Architecture | None:
    """Layers by kind; None where the shape is not told."""
    shape = told.architecture
    attention, states = tuple(_attention(shape)), tuple(_states(shape))
    if not attention and not states:
        return None
    head = next((a for a in attention if a.kind in ("full", "mla")), None)
    draft = msgspec.structs.replace(head, layers=1) if head and shape.get("mtp_layers") else None
    return Architecture(
        family=_family(told),
        attention=attention,
        states=states,
        ssm_dtype="float32" if shape.get("gdn_v_heads") else None,
        draft=draft,
        dtype="float16" if "fp16" in told.model else "bfloat16",
    )


def _family(told: Told) -> str:
    name = told.model.lower()
    if "gemma-4" in name:
        return "gemma4_text"
    if told.architecture.get("gdn_v_heads"):
        return "qwen3_5_text" if told.architecture["gdn_v_heads"] == 48 else "qwen3_next"
    return "kimi_linear" if "kimi" in name else "llama"


def _attention(shape: Mapping[str, Any]) -> Iterator[Attention]:
    linear = sum(shape.get(name, 0) for name in ("linear_layers", "kda_layers", "mamba_layers"))
    if shape.get("kv_lora_rank"):
        layers = shape.get("mla_layers") or shape["layers"] - linear
        width = shape["kv_lora_rank"] + shape.get("qk_rope_head_dim", 0)
        yield Attention(kind="mla", layers=layers, kv_heads=1, key_dim=width, value_dim=0)
        return
    if shape.get("swa_layers") and shape.get("swa_head_dim"):
        yield _heads(
            "full", shape["full_layers"], shape["global_kv_heads"], shape["global_head_dim"]
        )
        yield _heads("sliding", shape["swa_layers"], shape["swa_kv_heads"], shape["swa_head_dim"],
                     shape["sliding_window"])  # fmt: skip
        return
    if shape.get("swa_groups"):
        yield _heads("full", shape.get("global_groups", 1), 2, 512)
        yield _heads("sliding", shape["swa_groups"], 8, 256, shape["sliding_window"])
        return
    heads, size = shape.get("kv_heads"), shape.get("head_dim")
    if heads and size and shape.get("layers"):
        yield _heads("full", shape.get("full_attention_layers") or shape["layers"] - linear, heads,
                     size)  # fmt: skip
    elif shape.get("key_length") and shape.get("heads"):
        yield Attention(kind="full", layers=shape["layers"], kv_heads=shape["heads"],
                        key_dim=shape["key_length"], value_dim=shape["value_length"])  # fmt: skip


def _heads(kind: Any, layers: int, heads: int, size: int, window: int | None = None) -> Attention:
    return Attention(
        kind=kind, layers=layers, kv_heads=heads, key_dim=size, value_dim=size, window=window
    )


def _states(shape: Mapping[str, Any]) -> Iterator[State]:
    columns = shape.get("conv_kernel", 4) - 1
    if shape.get("gdn_v_heads"):
        size = shape["gdn_head_dim"]
        yield State(
            kind="gated_delta_net",
            layers=shape["linear_layers"],
            conv_channels=2 * shape["gdn_k_heads"] * size + shape["gdn_v_heads"] * size,
            conv_columns=columns,
            recurrent=shape["gdn_v_heads"] * size * size,
        )
    elif shape.get("kda_layers") and shape.get("kda_heads"):
        heads, size = shape["kda_heads"], shape["kda_head_dim"]
        yield State(
            kind="kda",
            layers=shape["kda_layers"],
            conv_channels=3 * heads * size,
            conv_columns=columns,
            recurrent=heads * size * size,
        )
