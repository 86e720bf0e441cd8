"""Adapters read real logs as they were printed, and wordings of many versions."""

from pathlib import Path
from typing import Any

import pytest

from kvroom import engines
from kvroom.engine import Engine
from kvroom.log_reader import last
from kvroom.records import Fact, LogLine

LOGS = Path(__file__).parent / "logs"
ADAPTERS = [engines.engine(name) for name in engines.names()]


def by_name(engine: Engine) -> str:
    return engine.name


@pytest.mark.parametrize("engine", ADAPTERS, ids=by_name)
def test_any_text_can_be_read_as_a_log(engine: Engine) -> None:
    odd = [
        "",
        "\x00",
        "KV cache size: , tokens",
        "size = MiB ( cells",
        "Error: " * 2000,
        "] " * 999,
    ]
    list(engine.read_log((LogLine(i, text) for i, text in enumerate(odd, 1)), "engine.log"))


def facts_of(log: str) -> list[Fact]:
    engine, _, name = log.partition("/")
    lines = (LOGS / engine / f"{name}.log").read_text(errors="replace").splitlines()
    numbered = (LogLine(i, line) for i, line in enumerate(lines, start=1))
    return list(engines.engine(engine).read_log(numbered, "engine.log"))


EXPECTED: dict[str, dict[str, Any]] = {
    "llamacpp/2026.10.11549-4-f16": {
        "version": "2026.10.11549",
        "slots": 4,
        "kv_tokens": 1024,
        "kv_bytes": 22.5 * 2**20,
        "kv_cache_dtype": "f16",
        "weights_bytes": 92.1 * 2**20,
        "kv_unified": "false",
    },
    "llamacpp/2026.10.11549-8-q8_0": {
        "slots": 8,
        "kv_tokens": 2048,
        "kv_bytes": 23.91 * 2**20,
        "kv_cache_dtype": "q8_0",
    },
    "openvino/2026.4.1.0-28-blocks": {
        "version": "2026.4.1.0",
        "kv_blocks": 28,
        "kv_block_tokens": 32,
        "kv_tokens": 896,
        "kv_bytes": 12_257_280,
    },
    "openvino/2026.4.1.0-512-blocks": {"kv_tokens": 16_384, "kv_bytes": 224_133_120},
    "vllm/0.31.0-cpu-bf16-20MiB": {
        "version": "0.31.0",
        "kv_tokens": 896,
        "kv_bytes": 20 << 20,
        "max_concurrency": 1.75,
        "checkpoint_bytes": 0.25 * 2**30,
        "ready": "Application startup complete",
    },
    "vllm/0.31.0-cpu-fp8-20MiB": {"kv_tokens": 1792, "kv_bytes": 20 << 20, "max_concurrency": 3.5},
    "vllm/0.31.0-cpu-bf16-512MiB": {"kv_tokens": 23_296, "max_concurrency": 45.5},
    "transformers/5.24.0-cpu-batched": {
        "version": "5.24.0",
        "max_len": 8192,
        "continuous_batching": "True",
        "ready": "Uvicorn running on http://127.0.0.1",
    },
    "vllm/0.31.0-cpu-broken-torchaudio": {"error": "OSError: Could not load this library"},
}


@pytest.mark.parametrize("log", EXPECTED)
def test_real_logs(log: str) -> None:
    facts = facts_of(log)

    for name, value in EXPECTED[log].items():
        fact = last(facts, name)
        assert fact is not None, f"no {name}"
        if isinstance(value, str):
            assert str(fact.value).startswith(value)
        else:
            assert fact.value == pytest.approx(value)
        assert fact.source.file == "engine.log"
        assert fact.source.line > 0


@pytest.mark.parametrize("log", [log for log in EXPECTED if "broken" not in log])
def test_engines_that_served_well_report_no_error(log: str) -> None:
    assert last(facts_of(log), "error") is None


@pytest.mark.parametrize("log", sorted(p for p in EXPECTED if "broken" not in p))
def test_every_log_of_an_engine_that_served_has_a_ready_line(log: str) -> None:
    assert last(facts_of(log), "ready") is not None


def test_every_recorded_log_is_expected_to_say_something() -> None:
    kept = {str(p.relative_to(LOGS).with_suffix("")) for p in LOGS.rglob("*.log")}

    assert kept == set(EXPECTED)


WORDINGS: dict[str, tuple[str, list[str], dict[str, Any]]] = {
    "vLLM 0.10, two lines": (
        "vllm",
        [
            "GPU KV cache size: 26,656 tokens",
            "Maximum concurrency for 4,096 tokens per request: 6.51x",
        ],
        {"kv_tokens": 26_656, "max_concurrency": 6.51},
    ),
    "vLLM 0.31 on a GPU": (
        "vllm",
        [
            "(EngineCore pid=1) INFO 12-01 05:44:53 [gpu_worker.py:693] "
            "Available KV cache memory: 6.53 GiB",
            "(EngineCore pid=1) INFO 12-01 05:44:53 [kv_cache_utils.py:2464] GPU KV cache size: "
            "46,421 tokens, Maximum concurrency for 4,096 tokens per request: 11.33x",
            "Using FLASHINFER attention backend out of potential backends: ['FLASHINFER'].",
            "Setting attention block size to 784 tokens to ensure that attention page size is >= "
            "mamba page size.",
        ],
        {
            "kv_tokens": 46_421,
            "kv_bytes": 6.53 * 2**30,
            "max_concurrency": 11.33,
            "attention_backend": "FLASHINFER",
            "kv_block_tokens": 784,
        },
    ),
    "vLLM, the cause and not its wrapper": (
        "vllm",
        [
            "(EngineCore pid=1) ERROR 12-01 05:44:53 [core.py:1] ValueError: No available memory "
            "for the cache blocks.",
            "RuntimeError: Engine core initialization failed. See root cause above.",
        ],
        {"error": "ValueError: No available memory for the cache blocks."},
    ),
    "llama.cpp, sized twice": (
        "llamacpp",
        [
            "llama_context: constructing llama_context",
            "llama_kv_cache: size = 45.00 MiB ( 512 cells, 30 layers, 4/4 seqs), K (f16): 22 MiB",
            "llama_context: constructing llama_context",
            "llama_kv_cache: size = 22.50 MiB ( 256 cells, 30 layers, 4/4 seqs), K (f16): 11 MiB",
        ],
        {"kv_tokens": 1024, "kv_bytes": 22.5 * 2**20},
    ),
    "llama.cpp with sliding windows: two caches of one context": (
        "llamacpp",
        [
            "llama_context: constructing llama_context",
            "llama_kv_cache: size = 8.00 MiB ( 4096 cells, 1 layers, 4/4 seqs), K (f16): 4.00 MiB",
            "llama_kv_cache: size = 10.00 MiB ( 1024 cells, 5 layers, 4/4 seqs), K (f16): 5.00 MiB",
        ],
        {"kv_tokens": 16_384, "kv_bytes": 18 * 2**20},
    ),
    "llama-server built from source": (
        "llamacpp",
        ["srv init: build_info: b11434-0c1e57098", "srv main: server is listening on http://x:1"],
        {"version": "b11434-0c1e57098", "ready": "listening on http://x:1"},
    ),
}


@pytest.mark.parametrize("wording", WORDINGS)
def test_wordings(wording: str) -> None:
    engine, lines, expected = WORDINGS[wording]
    numbered = (LogLine(i, line) for i, line in enumerate(lines, start=1))
    facts = list(engines.engine(engine).read_log(numbered, "engine.log"))

    for name, value in expected.items():
        fact = last(facts, name)
        assert fact is not None, f"no {name}"
        assert fact.value == (value if isinstance(value, str) else pytest.approx(value))
