"""A labelled case of a folder -> what kvroom would be given: options, model, load, log.

The cases are told by people: options with two values, figures in a sentence instead of a line. What
can be taken literally is; what a sentence says of a log is turned into the engine's own line first,
so that everything goes through the same reader. What is expected of the answer is never looked at.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml
from sentences import lines as engine_lines
from shapes import SYNTHETIC, architecture

from kvroom import engines
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
    asked = workload(f"{told.workload}; {'; '.join(told.flags)}")
    length = _number(told.flags, r"max[- ]model[- ]len (\d+)") or 0
    texts = engine_lines(told.engine, told.log_lines, length, asked.concurrency or 0)
    lines = [LogLine(n, text) for n, text in enumerate(texts, start=1)]
    log = read(engine, lines, "log") if lines else None
    options, settings = _options(told, engine.name)
    shape = architecture(told.architecture, told.model)
    pool = None if set(SYNTHETIC) & set(told.architecture) else _pool(told)
    return gather(
        Known(
            engine=engine.name,
            version=_version(told.version),
            settings=settings,
            options=options,
            load=asked,
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
    return re.sub(r"\s*\(.*\)|\s+(?:/|vs|->)\s.*|,\s.*", "", flag)


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
    return _number(told.flags, r"(?:--block-size|block size) (\d+)") or told.architecture.get(
        "tokens_per_block"
    )


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
