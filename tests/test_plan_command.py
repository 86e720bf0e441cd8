"""``kvroom plan`` as a user types it: what is printed, what is refused, what a log settles."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import golden
from conftest import Kvroom
from kvroom.checkpoint.architecture import Architecture
from kvroom.engines import engine, names
from kvroom.errors import InputError
from kvroom.fit import fit
from kvroom.memory import Span, before_the_pool, card, cards
from kvroom.plan.question import Gain, Planned, Refused
from kvroom.room import Share
from kvroom.settings import Settings
from rooms import GIB, an_ask, answer, dense, gemma4_26b, qwen_hybrid

ROOT = Path(__file__).parent.parent
HYBRID = ROOT / "examples" / "rtx5090-hybrid" / "model"
LOAD = ("--prompt", "474", "--output", "256", "--concurrency", "32", "--max-len", "4096")

TRTLLM_LOG = """\
[10/12/2026-09:49:23] [TRT-LLM] [I] [_torch] Peak memory during memory usage profiling (torch + \
non-torch): 30.13 GiB, available KV cache memory when calculating max tokens: 3.45 GiB, fraction \
is set 0.85, kv size per token is 65536 bytes/token + 2588737536 bytes fixed cost. device total \
memory 31.36 GiB, temporary kv cache memory during profiling 2.84 GiB
[TRT-LLM] [I] [batchmgr][RANK 0] [MemUsageChange] Allocated 2.84 GiB for max tokens in paged KV \
cache (9248).
[TRT-LLM] [I] [batchmgr][RANK 0] [MemUsageChange] Allocated 3.45 GiB for max tokens in paged KV \
cache (18144).
"""


# what is told


@pytest.mark.parametrize("words", [(), ("--explain",)])
def test_the_table_and_what_to_change(words: tuple[str, ...], kvroom: Kvroom) -> None:
    done = kvroom("plan", HYBRID, "--available", "6GiB", "--slots", "32", *LOAD, *words)

    assert done.returncode == 0, done.stderr
    golden.check(f"plan{''.join(words)}.txt", done.stdout)


def test_an_estimate_is_an_interval_all_the_way(kvroom: Kvroom) -> None:
    done = kvroom(
        "plan", HYBRID, "--card", "RTX 5090", "--slots", "32", *LOAD, "--engine", "vllm", "--json"
    )
    bf16 = json.loads(done.stdout)
    low, high = (bf16["estimated_from"]["available"][end] for end in ("low", "high"))

    assert low < 6.53 * GIB < high
    assert [other["kv_cache_dtype"] for other in bf16["others"]] == ["fp8"]
    assert bf16["levels"][0]["fit"][0] < 33 < bf16["levels"][0]["fit"][1]


def test_without_an_engine_every_one_that_loads_the_model_is_asked(kvroom: Kvroom) -> None:
    done = kvroom("plan", HYBRID, "--available", "6GiB", *LOAD, "--slots", "8", "--json")
    told = json.loads(done.stdout)

    assert {one["engine"] for one in told} == {"ollama", "sglang", "trtllm", "vllm"}


def test_a_log_settles_what_rounding_leaves_open(kvroom: Kvroom, tmp_path: Path) -> None:
    """3.45 GiB are 532 to 535 blocks; the tokens in the last "Allocated" line are 534 of them."""
    log = tmp_path / "engine.log"
    log.write_text(TRTLLM_LOG)
    done = kvroom(
        "plan", HYBRID, "--engine", "trtllm", "--log", log, "--slots", "32", *LOAD, "--json"
    )
    told = json.loads(done.stdout)

    assert told["blocks"] == 534
    assert {c["setting"]: c["running"] for c in told["changes"]} == {
        "kv_cache_dtype": 32,
        "slots": 28,
    }
    assert {c["agrees"] for c in told["checks"] if c["source"]} == {True}
    assert {c["wording"]: c["source"] for c in told["checks"]}["Allocated (GiB)"] == "engine.log:3"


def test_a_log_tells_the_cache_type_it_is_of(kvroom: Kvroom, tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_text(
        "INFO [cache.py:357] Using fp8 data type to store kv cache. It reduces the memory\n"
        "INFO [gpu_worker.py:693] Available KV cache memory: 6.14 GiB\n"
        "GPU KV cache size: 58,254 tokens, Maximum concurrency for 4,096 tokens per request: "
        "14.22x\n"
    )
    done = kvroom(
        "plan", HYBRID, "--engine", "vllm", "--log", log, "--slots", "32", *LOAD, "--json"
    )
    told = json.loads(done.stdout)

    assert (told["kv_cache_dtype"], told["blocks"]) == ("fp8", 128)
    assert {c["agrees"] for c in told["checks"] if c["source"]} == {True}


def test_a_log_of_other_settings_disagrees(kvroom: Kvroom, tmp_path: Path) -> None:
    """fp8 is planned, the log is of bf16: bytes a token differ, and it is said."""
    log = tmp_path / "engine.log"
    log.write_text(TRTLLM_LOG)
    done = kvroom(
        "plan", HYBRID, "--engine", "trtllm", "--log", log, "--slots", "32", *LOAD,
        "--kv-cache-dtype", "fp8",
    )  # fmt: skip

    assert done.returncode == 0
    line = next(row for row in done.stdout.splitlines() if "kv size per token" in row)
    assert line.split()[-4:] == ["32,768", "65,536", "no!", "engine.log:1"]


# what is refused


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        (["--card", "RTX 5900"], "the card 'RTX 5900' is not known", "did you mean 'RTX 5090'?"),
        (["--card", "abacus"], "the card 'abacus' is not known", "give --memory instead"),
        (["--card", "L4", "--memory", "24GiB"], "both --card and --memory are given", "name one"),
        (["--memory-fraction", "1.2"], "--memory-fraction 1.2 is not between 0 and 1", "0.9"),
        (["--memory-fraction", "0"], "--memory-fraction 0.0 is not between 0 and 1", "0.9"),
        (["--memory", "0"], "--memory 0: no card has that much memory", "such as 24GiB"),
        (["--available", "9999999GiB"], "--available 9999999GiB: no card has that", "such as"),
        (["--available", "-3GiB"], "--available: '-3GiB' is not a size", ""),
        (["--available", "20M"], "--available: '20M' is not a size", ""),
        (["--concurrency", "1,zwei"], "--concurrency '1,zwei' is not a list", "such as 1,8,32"),
        (["--concurrency", "0"], "--concurrency '0' is not a list of numbers", "such as"),
        (["--engine", "vlm"], "unknown engine 'vlm'", "did you mean 'vllm'"),
        (["--log", "nowhere.log"], "--log is the log of one engine", "name it with --engine"),
        (["--engine", "vllm", "--log", "no.log"], "cannot read no.log: no such file", ""),
        (
            ["--engine", "vllm", "--engine-version", "new", "--available", "6GiB"],
            "'new' is not a version",
            "",
        ),
        (
            ["--engine", "vllm", "--kv-cache-dtype", "fp7", "--available", "6GiB"],
            "unknown data type 'fp7'",
            "known: ",
        ),
        (["--engine", "openai"], "nothing is known of how openai sizes its KV cache", ""),
    ],
)
def test_bad_input_is_one_sentence(words: list[str], error: str, hint: str, kvroom: Kvroom) -> None:
    done = kvroom("plan", HYBRID, *words)

    assert done.returncode == 2
    assert error in done.stderr
    assert hint in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("option", ["--slots", "--max-len", "--prompt", "--output", "--block-size"])
@pytest.mark.parametrize("value", ["0", "-1", "1e9", "99999999999999999999"])
def test_sizes_that_cannot_be_are_refused(option: str, value: str, kvroom: Kvroom) -> None:
    done = kvroom("plan", HYBRID, "--engine", "vllm", "--available", "6GiB", option, value)

    assert done.returncode == 2
    assert option in done.stderr


def test_a_log_of_another_engine_is_no_log(kvroom: Kvroom, tmp_path: Path) -> None:
    log = tmp_path / "other.log"
    log.write_text("hello\n" * 100)
    done = kvroom("plan", HYBRID, "--engine", "vllm", "--log", log)

    assert done.returncode == 2
    assert "has no line that vllm is known to print" in done.stderr


def test_an_engine_that_would_not_start_says_what_would_let_it(kvroom: Kvroom) -> None:
    """The default of 256 requests wants 256 pages of state; there are 136."""
    done = kvroom("plan", HYBRID, "--engine", "vllm", "--available", "6.53GiB", *LOAD,
                  "--kv-cache-dtype", "bf16")  # fmt: skip

    assert done.returncode == 2
    assert "max_num_seqs (256) exceeds the 136 blocks" in done.stderr
    assert "none runs; 32 with slots: 32." in done.stderr


# cards and what is gone before the pool


def test_every_card_has_memory_and_bandwidth() -> None:
    for one in cards():
        assert 0 < one.memory.low <= one.memory.high
        assert one.bandwidth_gb_s > 0
        assert card(f"NVIDIA {one.name.lower()}") == one


@given(
    memory=st.integers(8, 200),
    weights=st.integers(0, 200),
    fraction=st.floats(0.05, 1),
    of=st.sampled_from(["total", "rest", "static"]),
)
def test_an_estimate_has_its_ends_in_order_and_fits_the_card(
    memory: int, weights: int, fraction: float, of: Any
) -> None:
    total = Span(memory * GIB, memory * GIB)
    made = before_the_pool(
        total, weights * GIB, dense(32, 8, 128, hidden=4096, vocab=128_256),
        Share(of, fraction, 8192, 256, (0.1, 2.5)),
    )  # fmt: skip

    assert 0 <= made.available.low <= made.available.high < total.high


@pytest.mark.parametrize(
    ("name", "weights", "ask", "measured"),
    [
        ("vllm", 19.05, {"slots": 32}, 6.53),
        ("vllm", 19.05, {"slots": 32, "kv_cache_dtype": "fp8"}, 6.14),
        ("trtllm", 21.54, {"slots": 32, "memory_fraction": 0.85}, 3.45),
    ],
)
def test_the_founding_case_lies_within_the_estimate(
    name: str, weights: float, ask: dict[str, Any], measured: float
) -> None:
    told = answer(
        name, msgspec.structs.replace(qwen_hybrid(), hidden=5120, vocab=248_320),
        memory=31.36 * GIB, weights=weights * GIB, max_len=4096, **ask,
    )  # fmt: skip

    assert isinstance(told, Planned), told
    assert told.before is not None
    assert told.before.available.low < measured * GIB < told.before.available.high


@pytest.mark.parametrize(("tokens", "measured"), [(20_000, 3.81), (29_000, 2.89)])
def test_longer_steps_take_what_they_took(tokens: int, measured: float) -> None:
    """Llama 3.1 8B on a 3090, vLLM 0.6.4, which then measured with a step of full length."""
    told = answer(
        "vllm", msgspec.structs.replace(dense(32, 8, 128), hidden=4096, vocab=128_256),
        memory=23.58 * GIB, weights=14.99 * GIB, version="0.6.4", batch_tokens=tokens, max_len=2048,
    )  # fmt: skip

    assert isinstance(told, Planned), told
    assert told.before is not None
    assert told.before.available.low < measured * GIB < told.before.available.high


# invariants of every room


ROOMS = [name for name in names() if engine(name).room]
SHAPES = [dense(32, 8, 128), qwen_hybrid(), gemma4_26b()]


@given(
    name=st.sampled_from(ROOMS),
    shape=st.sampled_from(SHAPES),
    gib=st.integers(1, 60),
    more=st.integers(0, 20),
    slots=st.integers(1, 64),
    prompt=st.integers(1, 3000),
    output=st.integers(1, 1000),
)
def test_more_memory_never_lets_fewer_requests_run(
    name: str, shape: Architecture, gib: int, more: int, slots: int, prompt: int, output: int
) -> None:
    planner = engine(name).room
    assert planner is not None
    running = []
    for available in (gib * GIB, (gib + more) * GIB):
        try:
            made = planner(an_ask(shape, available, slots=slots, max_len=4096))
        except InputError:
            running.append(0)
            continue
        found = fit(made, prompt, output, 64)
        assert found.running + found.waiting == 64
        assert found.preempted <= found.waiting
        assert found.running <= made.slots
        running.append(found.running)

    assert running[0] <= running[1]


@given(
    name=st.sampled_from(ROOMS),
    shape=st.sampled_from(SHAPES),
    gib=st.integers(1, 12),
    slots=st.integers(1, 64),
    concurrency=st.integers(1, 48),
)
def test_every_change_does_what_it_says(
    name: str, shape: Architecture, gib: int, slots: int, concurrency: int
) -> None:
    ask: dict[str, Any] = {"slots": slots, "max_len": 4096, "kv_memory": gib * GIB}
    told = answer(name, shape, concurrency=concurrency, **ask)

    for change in told.changes:
        assert change.running > (change.instead_of or 0)
        then = answer(name, shape, concurrency=concurrency, **changed(ask, change))
        assert isinstance(then, Planned)
        assert then.fits[0][0].running == change.running


def changed(ask: dict[str, Any], change: Gain) -> dict[str, Any]:
    assert change.setting in Settings.__struct_fields__
    return ask | {change.setting: change.value}


def test_a_change_of_memory_is_named_where_the_pool_is_an_estimate() -> None:
    """A larger fraction, or leaving the encoder out, makes the pool itself larger."""
    told = answer(
        "vllm", msgspec.structs.replace(dense(32, 8, 128), hidden=4096, vocab=32_000),
        memory=24 * GIB, weights=12 * GIB, card_bytes=24 * GIB, slots=64, max_len=4096,
        memory_fraction=0.8, concurrency=64,
    )  # fmt: skip

    assert "memory_fraction" in {change.setting for change in told.changes}
    assert not isinstance(told, Refused) or told.hint
