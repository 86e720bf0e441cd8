"""Facts of engines' logs: lines as engines of many versions printed them, however they come."""

import importlib
import json
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import Kvroom
from kvroom import engines, loglines
from kvroom.analyse.facts import told
from kvroom.analyse.recognise import recognise
from kvroom.errors import InputError
from kvroom.log_reader import LogReader, literal
from kvroom.loglines import CHUNK_BYTES, MAX_LINE_BYTES, log_lines, plain
from kvroom.records import Fact, LogLine

LOGS = Path(__file__).parent / "logs"
GIB, MIB = 1 << 30, 1 << 20
Facts = dict[str, float | str]


def facts(name: str, lines: Sequence[str]) -> list[Fact]:
    numbered = [LogLine(number, line) for number, line in enumerate(lines, start=1)]
    return list(engines.engine(name).read_log(numbered, "engine.log"))


# lines that others published

VLLM = "vllm"
LINES: list[tuple[str, str, Facts]] = [
    (VLLM, "INFO [kv_cache_utils.py:1319] GPU KV cache size: 290,864 tokens",
     {"kv_tokens": 290_864}),
    (VLLM, "Maximum concurrency for 32,768 tokens per request: 33.04x",
     {"max_concurrency": 33.04, "concurrency_tokens": 32_768}),
    (VLLM, "(EngineCore pid=1) INFO 12-01 05:35:17 [kv_cache_utils.py:2464] CPU KV cache size: "
     "18,724 tokens, Maximum concurrency for 1,024 tokens per request: 18.29x",
     {"kv_tokens": 18_724, "max_concurrency": 18.29}),
    (VLLM, "INFO [gpu_worker.py:349] Available KV cache memory: 2.30 GiB",
     {"kv_bytes": 2.3 * GIB, "available_bytes": 2.3 * GIB}),
    (VLLM, "WARNING [kv_cache_utils.py:1152] Add 6 padding layers, may waste at most 60.00% KV "
     "cache memory", {"padding_layers": 6, "padding_waste_percent": 60}),
    (VLLM, "WARNING [gpu_model_runner.py:4199] CUDAGraphMode.FULL_AND_PIECEWISE is not supported "
     "with TritonMLABackend backend (support: AttentionCGSupport.NEVER)",
     {"attention_backend": "TritonMLA"}),
    (VLLM, "INFO [interface.py:931] Setting attention block size to 7808 tokens to ensure that "
     "attention page size is >= mamba page size.", {"kv_block_tokens": 7808}),
    (VLLM, "INFO [interface.py:952] Padding mamba page size by 1.27% to ensure that mamba page "
     "size and attention page size are exactly equal.", {"state_padding_percent": 1.27}),
    (VLLM, "ValueError: max_num_seqs (1024) exceeds available Mamba cache blocks (939).",
     {"error": "ValueError: max_num_seqs (1024) exceeds available Mamba cache blocks (939)."}),
    (VLLM, "INFO [gpu_model_runner.py:6042] Estimated CUDA graph memory: 6.24 GiB total",
     {"graph_estimate_bytes": 6.24 * GIB}),
    (VLLM, "CUDA graph memory profiling is enabled (default since v0.21.0). The current "
     "--gpu-memory-utilization=0.6200 is equivalent to --gpu-memory-utilization=0.5413 without "
     "CUDA graph memory profiling.", {"memory_fraction_without_graphs": 0.5413}),
    (VLLM, "Running: 0, Waiting: 1, GPU KV cache usage: 0.0%",
     {"running": 0, "waiting": 1, "kv_cache_usage_percent": 0}),
    (VLLM, "INFO [model.py:1685] Using max model len 262144", {"max_len": 262_144}),
    (VLLM, "ValueError: To serve at least one request with the models's max seq len (221000), "
     "(10.12 GiB KV cache is needed, which is larger than the available KV cache memory (5.59 "
     "GiB). Based on the available memory, the estimated maximum model length is 122080.",
     {"error": "ValueError: To serve at least one request with the models's max seq len (221000), "
      "(10.12 GiB KV cache is needed, which is larger than the available KV cache memory (5.59 "
      "GiB). Based on the available memory, the estimated maximum model length is 122080."}),
    (VLLM, "Loading model weights took 14.9888 GB", {"weights_bytes": 14.9888 * GIB}),
    (VLLM, "Memory profiling results: total_gpu_memory=23.58GiB initial_memory_usage=15.34GiB "
     "peak_torch_memory=17.06GiB memory_usage_post_profile=15.35GiB non_torch_memory=0.35GiB "
     "kv_cache_size=3.81GiB gpu_memory_utilization=0.90",
     {"card_bytes": 23.58 * GIB, "peak_bytes": 17.06 * GIB, "kv_bytes": 3.81 * GIB}),
    (VLLM, "# GPU blocks: 1478, # CPU blocks: 2048", {"kv_blocks": 1478}),
    (VLLM, "The model's max seq len (29000) is larger than the maximum number of tokens that can "
     "be stored in KV cache (23648).", {}),
    (VLLM, "INFO [backends.py:319] Compiling a graph for compile range (1, 8000) takes 2219.43 s",
     {"graph_compile_s": 2219.43}),
    (VLLM, "INFO [monitor.py:34] torch.compile takes 2222.52 s in total", {"compile_s": 2222.52}),
    (VLLM, "INFO 06-19 23:05:01 [loader.py:447] Loading weights took 0.69 seconds",
     {"load_s": 0.69}),
    (VLLM, "INFO 06-19 23:05:01 [gpu_model_runner.py:1273] Model loading took 3.4213 GiB and "
     "0.902026 seconds", {"weights_bytes": 3.4213 * GIB, "model_load_s": 0.902026}),
    (VLLM, "INFO 06-19 23:05:09 [backends.py:426] Dynamo bytecode transform time: 7.51 s",
     {"dynamo_s": 7.51}),
    (VLLM, "INFO 06-19 23:05:09 [backends.py:115] Directly load the compiled graph for shape None "
     "from the cache",
     {"compile_cache": "Directly load the compiled graph for shape None from the cache"}),
    (VLLM, "INFO 06-19 23:05:35 [gpu_model_runner.py:1608] Graph capturing finished in 17 secs, "
     "took 0.48 GiB", {"graph_capture_s": 17, "graph_bytes": 0.48 * GIB}),
    (VLLM, "INFO 06-19 23:05:35 [core.py:162] init engine (profile, create kv cache, warmup "
     "model) took 34.11 seconds", {"engine_init_s": 34.11}),
    (VLLM, "(EngineCore pid=52138) INFO 10-12 10:03:20 [core.py:373] init engine (profile, create "
     "kv cache, warmup model) took 655.77 s (compilation: 59.47 s)",
     {"engine_init_s": 655.77, "compilation_s": 59.47}),
    (VLLM, "2026-10-12 09:53:26,059 - INFO - core.py:564 - flashinfer.jit: Building JIT module "
     "gemm_sm120; this can take several minutes on first use.", {"jit_module": "gemm_sm120"}),
    (VLLM, "Engine 000: Avg prompt throughput: 23999.9 tokens/s, Avg generation throughput: 35.4 "
     "tokens/s, Running: 16 reqs, Waiting: 84 reqs, GPU KV cache usage: 30.9%, Prefix cache hit "
     "rate: 0.0%",
     {"running": 16, "waiting": 84, "kv_cache_usage_percent": 30.9, "prefix_hit_rate_percent": 0,
      "prompt_tokens_per_s": 23_999.9, "generation_tokens_per_s": 35.4}),
    (VLLM, "group_block_sizes=(640, 4, 640, 640, 640)",
     {"group_block_tokens": "640, 4, 640, 640, 640"}),
    (VLLM, "INFO [cuda.py:527] Using FLASH_ATTN attention backend out of potential backends: "
     "['FLASH_ATTN', 'FLASHINFER'].", {"attention_backend": "FLASH_ATTN"}),
    ("trtllm", "[TensorRT-LLM][INFO] Memory usage when calculating max tokens in paged kv cache: "
     "total: 39.39 GiB, available: 21.89 GiB",
     {"card_bytes": 39.39 * GIB, "available_bytes": 21.89 * GIB}),
    ("trtllm", "[TensorRT-LLM][INFO] Number of blocks in KV cache primary pool: 631",
     {"kv_blocks": 631}),
    ("trtllm", "[TensorRT-LLM][INFO] Allocate 69524783104 bytes for k/v cache. ",
     {"kv_bytes": 69_524_783_104}),
    ("trtllm", "[TensorRT-LLM][INFO] Using 132608 tokens in paged KV cache.",
     {"kv_tokens": 132_608}),
    ("trtllm", "[TensorRT-LLM][INFO] Max KV cache blocks per sequence: 65 [window size=2051], "
     "tokens per block=32, primary blocks=116617, secondary blocks=0",
     {"blocks_per_sequence": 65, "kv_block_tokens": 32, "kv_blocks": 116_617}),
    ("trtllm", "[TensorRT-LLM][INFO] Number of tokens per block: 32.", {"kv_block_tokens": 32}),
    ("trtllm", "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 78.30 GiB for max tokens in paged "
     "KV cache (3731744).", {"kv_bytes": 78.3 * GIB, "kv_allocated_tokens": 3_731_744}),
    ("trtllm", "[10/12/2026-09:48:53] [TRT-LLM] [I] [_torch] Memory used at after loading weights "
     "(inside torch) in memory usage profiling: 21.54 GiB", {"weights_bytes": 21.54 * GIB}),
    ("trtllm", "[TRT-LLM] [I] Peak memory during memory usage profiling (torch + non-torch): 30.13 "
     "GiB, available KV cache memory when calculating max tokens: 3.45 GiB, fraction is set 0.85, "
     "kv size per token is 65536 bytes/token + 2588737536 bytes fixed cost. device total memory "
     "31.36 GiB, temporary kv cache memory during profiling 2.84 GiB",
     {"peak_bytes": 30.13 * GIB, "available_bytes": 3.45 * GIB, "memory_fraction": 0.85,
      "kv_bytes_per_token": 65_536, "kv_fixed_bytes": 2_588_737_536,
      "temporary_kv_bytes": 2.84 * GIB}),
    ("trtllm", "RuntimeError: Executor worker returned error",
     {"wrapped_error": "Executor worker returned error"}),
    ("trtllm", "CUDA out of memory. Tried to allocate 3.47 GiB. GPU 7 has a total capacity of "
     "178.35 GiB of which 3.28 GiB is free.",
     {"error": "CUDA out of memory. Tried to allocate 3.47 GiB. GPU 7 has a total capacity of "
      "178.35 GiB of which 3.28 GiB is free."}),
    ("trtllm", "[TensorRT-LLM][INFO] TRT GptModel maxInputLen: 8192 = min(maxSequenceLen - 1, "
     "maxNumTokens) since context FMHA and usePackedInput are enabled",
     {"max_prompt_tokens": 8192}),
    ("sglang", "[2026-05-24 03:51:44 TP0] Decode batch, #running-req: 4, #full token: 2642688, "
     "full token usage: 1.00, #swa token: 14592, swa token usage: 0.06, cuda graph: True, gen "
     "throughput (token/s): 429.34, #queue-req: 3",
     {"running": 4, "waiting": 3, "used_tokens": 2_642_688, "kv_cache_usage": 1.0,
      "cuda_graph": "True", "generation_tokens_per_s": 429.34}),
    ("sglang", "Capture target decode CUDA graph begin. backend=full, num_tokens_per_req=1, "
     "bs=[1, 2, 4, 8, 12, 16, 24, 32], avail mem=7.10 GB", {"largest_graph": 32}),
    ("sglang", "Capture target decode CUDA graph end. elapsed=0.89 s, mem usage=0.15 GB, avail "
     "mem=6.95 GB", {"graph_capture_s": 0.89, "graph_bytes": 0.15 * GIB}),
    ("sglang", "max_total_num_tokens=2980168, chunked_prefill_size=4096, max_prefill_tokens=16384, "
     "max_running_requests=4096, context_len=32768, available_gpu_mem=6.95 GB",
     {"kv_tokens": 2_980_168, "slots": 4096, "max_len": 32_768, "chunk_tokens": 4096}),
    ("sglang", "Load weight end. quant=fp8, fmt=e4m3, avail mem=12.25 GB, mem usage=125.65 GB.",
     {"weights_bytes": 125.65 * GIB, "free_after_load_bytes": 12.25 * GIB}),
    ("sglang", "ValueError: Loaded weights leave no GPU memory for the KV cache under "
     "--mem-fraction-static=0.88.",
     {"error": "ValueError: Loaded weights leave no GPU memory for the KV cache under "
      "--mem-fraction-static=0.88."}),
    ("sglang", "max_running_requests is capped to 9 by the mamba state cache "
     "(max_mamba_cache_size=47, 5 state slots per request). To raise it: increase "
     "--mamba-full-memory-ratio", {"slots": 9, "state_slots": 47, "slots_per_request": 5}),
    ("sglang", "before: max_total_num_tokens 1,741 (46.9 GB free left unused)",
     {"kv_tokens": 1741}),
    ("sglang", "Input length (3034 tokens) exceeds the maximum allowed length (1735 tokens)",
     {"max_prompt_tokens": 1735}),
    ("llamacpp", "0.02.505.689 I slot   load_model: id  0 | task -1 | new slot, n_ctx = 1024",
     {"slot_tokens": 1024}),
    ("llamacpp", "Context size has been exceeded.", {"error": "Context size has been exceeded"}),
    ("llamacpp", "llama_memory_recurrent: size =  448.88 MiB (     3 cells,  65 layers,  3 seqs  "
     "0 rs_seq), R (f32):   16.88 MiB, S (f32):  432.00 MiB",
     {"state_bytes": 448.88 * MIB, "state_slots": 3}),
    ("llamacpp", "llama_new_context_with_model: KV self size  = 1166.62 MiB, c^KV (q8_0): 1166.62 "
     "MiB, kv^T: not used", {"kv_bytes": 1166.62 * MIB, "kv_cache_dtype": "q8_0"}),
    ("llamacpp", 'INFO [ init] initializing slots | tid="1" timestamp=1742136993 n_slots=1',
     {"slots": 1}),
    ("llamacpp", "slot update_slots: id  3 | task 173 | forcing full prompt re-processing due to "
     "lack of cache data", {"full_reprocessing": "forcing full prompt re-processing"}),
    ("ollama", "KvSize:131072", {"context_tokens": 131_072}),
    ("ollama", 'level=WARN source=server.go:257 msg="quantized kv cache requested but flash '
     'attention disabled" type=q4_0',
     {"ignored_setting": "quantized kv cache requested but flash attention disabled"}),
    ("ollama", "llama_new_context_with_model: n_ctx      = 24576", {"context_tokens": 24_576}),
    ("ollama", "llama_new_context_with_model: KV self size  = 3072.00 MiB, K (f16): 1536.00 MiB, "
     "V (f16): 1536.00 MiB", {"kv_bytes": 3072 * MIB, "kv_cache_dtype": "f16"}),
    ("ollama", "llama_new_context_with_model: graph splits = 180", {"graph_splits": 180}),
    ("ollama", "llama_new_context_with_model: n_ctx_per_seq = 2048", {"slot_tokens": 2048}),
    ("ollama", "llama_kv_cache_init: kv_size = 8192, offload = 1, type_k = 'f16', type_v = 'f16', "
     "n_layer = 28, can_shift = 1", {"kv_tokens": 8192, "kv_cache_dtype": "f16"}),
    ("ollama", 'level=INFO source=ggml.go:494 msg="offloaded 42/43 layers to GPU"',
     {"layers_on_gpu": 42, "layers": 43}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "line", "expected"), LINES, ids=[f"{name}-{line[:40]}" for name, line, _ in LINES]
)
def test_lines_of_many_versions(name: str, line: str, expected: Facts) -> None:
    found = {fact.name: fact.value for fact in facts(name, ["", line])}

    assert found, "nothing is read"
    assert expected.items() <= found.items()
    assert all(fact.source.line == 2 for fact in facts(name, ["", line]))


def test_a_wrapper_is_not_the_cause() -> None:
    lines = [
        "AttributeError: 'NoneType' object has no attribute 'load_weights'",
        "RuntimeError: Executor worker returned error",
    ]
    last = told(facts("trtllm", lines))[0].last

    assert last.value == "AttributeError: 'NoneType' object has no attribute 'load_weights'"


# what makes it fast loses nothing

RECORDED = [(path.parent.name, path) for path in sorted(LOGS.glob("*/*.log"))]


def reader_of(name: str) -> LogReader:
    module = importlib.import_module(f"kvroom.engines.{name}")
    reader: LogReader = getattr(module, "_read", None) or module.read_log
    return reader


def lines_of(name: str) -> list[str]:
    """All that we have of an engine: its logs, and lines that others published."""
    logs = (line.text for of, path in RECORDED if of == name for line in log_lines(path))
    return [*logs, *(line for of, line, _ in LINES if of == name)]


@pytest.mark.parametrize("name", ["llamacpp", "ollama", "openvino", "sglang", "trtllm", "vllm"])
def test_every_line_that_a_pattern_finds_has_its_literal(name: str) -> None:
    found = [
        (needed, line)
        for needed, pattern in reader_of(name).patterns
        for line in lines_of(name)
        if pattern.search(line)
    ]

    assert found
    assert all(needed in line for needed, line in found)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("KV cache size: (?P<a>[0-9]+) tokens", "KV cache size: "),
        ("(?P<ready>Application startup complete)", "Application startup complete"),
        ("took (?P<s>[0-9.]+) s(?:econds)?", "took "),
        ("(?:Loading|Model) weights", " weights"),
        ("abc|defgh", ""),
        (r"a\.b(?!longer text)cde", "cde"),
        ("colou?rs", "colo"),
    ],
)
def test_literals_of_patterns(pattern: str, text: str) -> None:
    assert literal(pattern) == text


@pytest.mark.parametrize(("name", "path"), RECORDED, ids=[p.name for _, p in RECORDED])
def test_marks_lose_no_fact_of_a_large_log(
    name: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engines.engine(name)
    whole = list(engine.read_log(log_lines(path, marks=engine.log_marks), path.name))
    monkeypatch.setattr(loglines, "LARGE_BYTES", 0)

    assert whole == list(engine.read_log(log_lines(path, marks=engine.log_marks), path.name))
    assert whole


def test_every_engine_that_reads_has_marks_and_a_signature() -> None:
    for name in engines.names():
        engine = engines.engine(name)
        if list(engine.read_log([], "")) or engine.log_marks:
            assert engine.log_signature, name


# however a log comes

LINE = "GPU KV cache size: 46,421 tokens"


@pytest.mark.parametrize(
    "wrapped",
    [
        f"\x1b[36m(EngineCore pid=1)\x1b[0;0m \x1b[32mINFO\x1b[0m {LINE}",
        f"Loading: 10%|#\rLoading: 90%|####\r{LINE}",
        json.dumps({"log": LINE + "\n", "stream": "stderr", "time": "2026-10-12T09:53:26Z"}),
        json.dumps({"severity": "INFO", "message": LINE}),
        f"2026-10-12T09:53:26.059123456Z stdout F {LINE}",
        f"2026-10-12T09:53:26.059Z {LINE}",
        f"[pod/vllm-0/vllm] {LINE}",
        f"vllm-1  | {LINE}",
        f"(Worker_TP1 pid=7) INFO 10-12 09:52:25 [kv_cache_utils.py:2464] {LINE}\r",
    ],
)
def test_a_line_is_read_out_of_any_wrapping(wrapped: str, tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_bytes(b"\xff\xfe not text\n" + wrapped.encode() + b"\n")
    reader = engines.engine("vllm")
    (fact,) = reader.read_log(log_lines(log, marks=reader.log_marks), log.name)

    assert (fact.name, fact.value, fact.source.line) == ("kv_tokens", 46_421, 2)


@given(st.binary(max_size=300))
def test_any_bytes_are_a_line(data: bytes) -> None:
    assert "\x1b[" not in plain(b"\x1b[31m" + data.replace(b"\x1b", b""))


@given(
    lines=st.lists(
        st.sampled_from([b"", b"x" * 10, b"MARK", b"a MARK b MARK", b"\rMARK", b"y" * 90])
    ),
    ended=st.booleans(),
)
def test_numbers_are_those_of_the_file(
    lines: list[bytes], ended: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    log = tmp_path_factory.mktemp("l") / "x.log"
    log.write_bytes(b"\n".join(lines) + (b"\n" if lines and ended else b""))
    everyone = {line.number: line.text for line in log_lines(log)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loglines, "LARGE_BYTES", -1)
        marked = {line.number: line.text for line in log_lines(log, marks=["MARK"])}

    assert marked == {number: text for number, text in everyone.items() if "MARK" in text}
    assert all(plain(lines[number - 1]) == text for number, text in everyone.items())


def test_lines_across_chunks_and_overlong_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line of three chunks is cut, and the numbers after it hold."""
    monkeypatch.setattr(loglines, "LARGE_BYTES", 0)
    log = tmp_path / "x.log"
    log.write_bytes(b"a\n" + b"z" * (3 * CHUNK_BYTES) + b"MARK\nMARK at 3\n" + b"b\n" * CHUNK_BYTES)
    (line,) = log_lines(log, marks=["MARK"])
    longest = max(len(line.text) for line in log_lines(log))

    assert (line.number, line.text) == (3, "MARK at 3")
    assert longest == MAX_LINE_BYTES


def test_times_belong_to_their_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loglines, "LARGE_BYTES", 0)
    log, times = tmp_path / "x.log", tmp_path / "x.times"
    log.write_text("a\nMARK\nb\nMARK\n")
    times.write_text("1000000000\n2000000000\n3000000000\n4000000000\n")

    assert [line.at_s for line in log_lines(log, times, ["MARK"])] == [2.0, 4.0]


# whose log it is


@pytest.mark.parametrize(("name", "path"), RECORDED, ids=[p.name for _, p in RECORDED])
def test_a_real_log_is_recognised(name: str, path: Path) -> None:
    assert recognise(log_lines(path), path.name) == name


@pytest.mark.parametrize(
    ("name", "line"),
    [(name, line) for name, line, _ in LINES if name in ("trtllm", "sglang") and "[" in line[:30]],
)
def test_single_lines_with_a_prefix_are_recognised(name: str, line: str) -> None:
    assert recognise([LogLine(1, line)], "x.log") == name


def test_a_log_that_nobody_wrote() -> None:
    with pytest.raises(InputError, match="no engine is known to print it") as raised:
        recognise([LogLine(1, "hello")], "x.log")
    assert raised.value.hint == "name it with --engine"


# put together


def test_a_fact_that_is_said_often_is_told_once() -> None:
    lines = [f"Running: {n} reqs, Waiting: 0 reqs, GPU KV cache usage: {n}.0%" for n in (3, 9, 1)]
    running = {one.last.name: one for one in told(facts("vllm", lines))}["running"]

    assert (running.last.value, running.times, running.low, running.high) == (1, 3, 1, 9)
    assert (running.first.source.line, running.last.source.line) == (1, 3)


def test_different_texts_are_kept_up_to_a_bound() -> None:
    lines = [f"flashinfer.jit: Building JIT module m{n}; wait" for n in chain(range(40), range(40))]
    (module,) = told(facts("vllm", lines))

    assert module.values == [f"m{n}" for n in range(16)]
    assert module.times == 80


def test_the_command_lists_facts_with_their_lines(kvroom: Kvroom) -> None:
    path = LOGS / "vllm" / "0.31.0-cpu-bf16-20MiB.log"
    shown, data = kvroom("explain", "--facts", path), kvroom("explain", "--facts", path, "--json")
    told_facts = json.loads(data.stdout)["facts"]

    assert json.loads(data.stdout)["engine"] == "vllm"
    assert told_facts["kv_tokens"]["value"] == 896
    assert told_facts["kv_tokens"]["source"].startswith(f"{path.name}:")
    assert told_facts["running"]["high"] > 1
    row = next(line for line in shown.stdout.splitlines() if line.startswith(" kv_tokens"))
    assert row.split()[1] == "896"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["nowhere.log"], "cannot read nowhere.log: no such file"),
        (["."], "cannot read .: is a directory"),
    ],
)
def test_a_log_that_is_not_there(words: list[str], error: str, kvroom: Kvroom) -> None:
    done = kvroom("explain", "--facts", *words)

    assert done.returncode == 2
    assert error in done.stderr
