"""The plan equals what engines print: the founding case to the block, logs of real engines here,
and figures that others published with the inputs that make them."""

import json
from pathlib import Path
from typing import Any

import pytest

from conftest import Kvroom
from kvroom.checkpoint.architecture import Architecture, Attention, State
from kvroom.engines import engine, names
from kvroom.errors import InputError
from kvroom.fit import fit
from rooms import GIB, dense, qwen_hybrid, room

ROOT = Path(__file__).parent.parent
HYBRID = ROOT / "examples" / "rtx5090-hybrid" / "model"

# the founding case

TRT_BF16 = {
    "bytes_per_token": 65_536,
    "fixed_bytes": 2_588_737_536,
    "state_slots": 33,
    "blocks": 534,
    "block_tokens": 32,
    "tokens": 17_088,
    "blocks_per_request": 23,
    "fit": 23,
    "waiting": 9,
    "binds": "kv",
}
VLLM_BF16 = {"blocks": 136, "block_tokens": 784, "blocks_per_request": 4, "fit": 33, "waiting": 0}
VLLM_FP8 = {"blocks": 128, "block_tokens": 1568, "blocks_per_request": 4, "fit": 31, "waiting": 1}


@pytest.mark.parametrize(
    ("words", "expected", "logged", "concurrency"),
    [
        (
            ["--engine", "trtllm", "--kv-cache-dtype", "bf16", "--available", "3.4545GiB"],
            TRT_BF16,
            18_144,
            None,
        ),
        (
            ["--engine", "vllm", "--kv-cache-dtype", "bf16", "--available", "6.53GiB"],
            VLLM_BF16,
            46_421,
            11.33,
        ),
        (
            ["--engine", "vllm", "--kv-cache-dtype", "fp8", "--available", "6.14GiB"],
            VLLM_FP8,
            58_254,
            14.22,
        ),
    ],
)
def test_the_founding_case_to_the_block(
    words: list[str],
    expected: dict[str, Any],
    logged: int,
    concurrency: float | None,
    kvroom: Kvroom,
) -> None:
    load = ["--slots", "32", "--max-len", "4096", "--prompt", "474", "--output", "256"]
    done = kvroom("plan", HYBRID, *words, *load, "--concurrency", "32", "--json")

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert expected.items() <= told.items()
    assert logged in told["expected_log"].values()
    if concurrency is not None:
        assert round(told["max_concurrency"], 2) == concurrency


def test_fewer_slots_let_more_requests_run() -> None:
    """One state slot of TensorRT-LLM costs 1,197 tokens: 28 slots run 28, 32 run 23, 40 run 10."""
    running = {}
    for slots in (28, 32, 40):
        made = room("trtllm", qwen_hybrid(), 3537 << 20, slots=slots, max_len=4096)
        running[slots] = fit(made, 474, 256, slots).running

    assert running == {28: 28, 32: 23, 40: 10}


def test_slots_that_leave_no_block_are_refused_with_the_reason() -> None:
    with pytest.raises(InputError, match=r"49 state slots take 3\.58 GiB of 3\.45 GiB"):
        room("trtllm", qwen_hybrid(), 3.4545 * GIB, slots=48, max_len=4096)


@pytest.mark.parametrize(
    ("drafts", "block", "blocks", "fits", "concurrency"),
    [(1, 800, 125, 17, 8.33), (2, 800, 125, 12, 6.94), (3, 800, 125, 9, 5.95)],
)
def test_speculative_tokens_on_a_hybrid(
    drafts: int, block: int, blocks: int, fits: int, concurrency: float
) -> None:
    """Each draft token is one more page of state in each group; the draft head one more layer."""
    made = room(
        "vllm", qwen_hybrid(draft=True), 6.53 * GIB, max_len=4096, speculative_tokens=drafts,
        slots=32,
    )  # fmt: skip

    assert (made.block_tokens, made.blocks) == (block, blocks)
    assert fit(made, 474, 256, 64).fit == fits
    assert round(made.max_concurrency or 0, 2) == concurrency


# logs of real engines, made here


def smollm() -> Architecture:
    return dense(30, 3, 64)


@pytest.mark.parametrize(
    ("dtype", "memory", "tokens", "concurrency"),
    [("auto", 20, 896, 1.75), ("fp8", 20, 1792, 3.5), ("auto", 512, 23_296, 45.5)],
)
def test_vllm_on_cpu_as_it_logged(dtype: str, memory: int, tokens: int, concurrency: float) -> None:
    made = room(
        "vllm", smollm(), memory << 20, max_len=512, kv_cache_dtype=dtype, on_cpu=True,
        block_tokens=32, prefix_cache=False,
    )  # fmt: skip

    assert made.tokens == tokens
    assert made.max_concurrency == concurrency
    assert made.expected_log["CPU KV cache size (tokens)"] == tokens


@pytest.mark.parametrize(
    ("dtype", "chosen", "caching", "block", "padding", "tokens", "concurrency"),
    [
        ("auto", 32, True, 160, 16.79, 16_068, 15.69),
        ("fp8", 32, True, 288, 5.11, 23_244, 22.70),
        ("auto", None, True, 256, 86.86, 13_107, 12.80),
        ("fp8", None, True, 384, 40.15, 19_342, 18.89),
        ("auto", None, False, 256, 86.86, 18_724, 18.29),
        ("fp8", None, False, 384, 40.15, 29_013, 28.33),
    ],
)
def test_a_small_hybrid_on_vllm_as_it_logged(
    dtype: str,
    chosen: int | None,
    caching: bool,
    block: int,
    padding: float,
    tokens: int,
    concurrency: float,
) -> None:
    """fp8 makes blocks larger, not twice as many: the page of a float32 state is fixed."""
    attention = Attention(kind="full", layers=1, kv_heads=2, key_dim=64, value_dim=64)
    state = State(
        kind="gated_delta_net", layers=3, conv_channels=768, conv_columns=3, recurrent=4 * 64 * 64
    )
    tiny = Architecture(family="qwen3_5_text", attention=(attention,), states=(state,))
    made = room(
        "vllm", tiny, 16 << 20, max_len=1024, kv_cache_dtype=dtype, prefix_cache=caching,
        on_cpu=True, block_tokens=chosen,
    )  # fmt: skip

    assert made.block_tokens == block
    assert made.expected_log["Padding mamba page size by (%)"] == padding
    assert made.tokens == tokens
    assert round(made.max_concurrency or 0, 2) == concurrency


def test_a_small_jamba_on_vllm_as_it_logged() -> None:
    """Mamba's state is float32 on a CPU, whatever the model's dtype."""
    attention = Attention(kind="full", layers=1, kv_heads=2, key_dim=64, value_dim=64)
    state = State(kind="mamba1", layers=3, conv_channels=512, conv_columns=3, recurrent=512 * 16)
    tiny = Architecture(family="jamba", attention=(attention,), states=(state,))
    made = room("vllm", tiny, 16 << 20, max_len=1024, on_cpu=True, block_tokens=32)

    assert made.block_tokens == 96
    assert made.expected_log["Padding mamba page size by (%)"] == 37.14
    assert made.tokens == 20_540
    assert round(made.max_concurrency or 0, 2) == 20.06


@pytest.mark.parametrize(
    ("slots", "dtype", "context", "size"), [(4, "f16", 1024, 22.5), (8, "q8_0", 2048, 23.91)]
)
def test_llamacpp_as_it_logged(slots: int, dtype: str, context: int, size: float) -> None:
    made = room("llamacpp", smollm(), 0, slots=slots, max_len=256, kv_cache_dtype=dtype)

    assert made.expected_log["llama_context: n_ctx"] == context
    assert made.expected_log["llama_kv_cache: size (MiB)"] == size
    assert fit(made, 44, 56, 16).running == slots


@pytest.mark.parametrize(("size", "blocks"), [(12_257_280, 28), (224_133_120, 512)])
def test_openvino_as_it_logged(size: int, blocks: int) -> None:
    made = room("openvino", smollm(), size)

    assert made.blocks == blocks
    assert list(made.expected_log.values()) == [blocks, 32 * blocks, size]


# published figures with their inputs


def layers(kind: Any, count: int, kv_heads: int, size: int, window: int | None = None) -> Attention:
    value = 0 if kind == "mla" else size
    return Attention(
        kind=kind, layers=count, kv_heads=kv_heads, key_dim=size, value_dim=value, window=window
    )


def of(*attention: Attention) -> Architecture:
    return Architecture(family="any", attention=attention, max_len=131_072)


LLAMA_8B = dense(32, 8, 128)
GEMMA3_27B = of(layers("full", 10, 16, 128), layers("sliding", 52, 16, 128, 1024))
GPT_OSS_20B = of(layers("full", 12, 8, 64), layers("sliding", 12, 8, 64, 128))
WITH_DRAFT = of(layers("full", 13, 8, 64), layers("sliding", 12, 8, 64, 128))
DEEPSEEK_V3 = of(layers("mla", 61, 1, 576))
MISTRAL_7B = of(layers("sliding", 32, 8, 128, 4096))
TWO_HEAD_SIZES = of(layers("full", 4, 8, 128), layers("full", 1, 4, 256))

PLANS: list[tuple[str, Architecture, int, int, dict[str, Any], tuple[int, int, float]]] = [
    ("plain", LLAMA_8B, 10 * GIB, 8192, {}, (5120, 81_920, 10.0)),
    ("fp8", LLAMA_8B, 10 * GIB, 8192, {"kv_cache_dtype": "fp8"}, (10_240, 163_840, 20.0)),
    ("a block to spare", LLAMA_8B, 1_075_838_976, 8192, {}, (513, 8208, 1.0)),
    ("windows", GEMMA3_27B, 20 * GIB, 32_768, {}, (16_384, 135_095, 4.12)),
    ("one step in flight", GEMMA3_27B, 20 * GIB, 32_768, {"version": "0.25.0"},
     (16_384, 167_458, 5.11)),
    ("half windows", GPT_OSS_20B, 10 * GIB, 32_768, {}, (27_306, 386_840, 11.81)),
    ("a layer more", WITH_DRAFT, 10 * GIB, 32_768, {}, (25_206, 357_090, 10.9)),
    ("latent", DEEPSEEK_V3, 20 * GIB, 32_768, {"block_tokens": 64}, (4774, 305_536, 9.32)),
    ("only windows", MISTRAL_7B, 10 * GIB, 32_768, {}, (5120, 327_041, 9.98)),
    ("two sizes of heads", TWO_HEAD_SIZES, 5 * GIB, 8192, {}, (16_384, 262_144, 32.0)),
    ("a state in the pool", qwen_hybrid(), 7_011_534_110, 4096, {}, (136, 46_421, 11.33)),
    ("without prefix cache", qwen_hybrid(), 7_011_534_110, 4096, {"prefix_cache": False},
     (136, 61_895, 15.11)),
    ("one draft token", qwen_hybrid(draft=True), 7_011_534_110, 4096, {"speculative_tokens": 1},
     (125, 34_133, 8.33)),
    ("three draft tokens", qwen_hybrid(draft=True), 7_011_534_110, 4096, {"speculative_tokens": 3},
     (125, 24_380, 5.95)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "available", "length", "ask", "expected"),
    [plan[1:] for plan in PLANS],
    ids=[plan[0] for plan in PLANS],
)
def test_plans_that_vllms_planner_made(
    shape: Architecture,
    available: int,
    length: int,
    ask: dict[str, Any],
    expected: tuple[int, int, float],
) -> None:
    more = {"max_len": length, "slots": 32, "batch_tokens": 2048} | ask
    made = room("vllm", shape, available, **more)

    assert (made.blocks, made.tokens, round(made.max_concurrency or 0, 2)) == expected


def test_a_sparse_index_lies_beside_the_latent() -> None:
    """DeepSeek V3.2: 1,152 + 132 B a token and layer in bf16, 656 + 132 in fp8, one group."""
    index = Attention(
        kind="mla", layers=61, kv_heads=1, key_dim=132, value_dim=0, own_dtype="uint8"
    )
    sparse = of(layers("mla", 61, 1, 576), index)
    bf16 = room("vllm", sparse, 20 * GIB, max_len=32_768, block_tokens=64)
    fp8 = room("vllm", sparse, 20 * GIB, max_len=32_768, block_tokens=64, kv_cache_dtype="fp8")

    assert bf16.bytes_per_token == 61 * (1152 + 132)
    assert fp8.bytes_per_token == 61 * (656 + 132)
    assert bf16.blocks == 20 * GIB // (64 * bf16.bytes_per_token)


def test_too_small_a_pool_is_refused_in_vllms_own_figures() -> None:
    """0.4 GiB for the hybrid: 0.57 are needed, 0.35 are there without the null block."""
    with pytest.raises(InputError, match=r"needs 0\.57 GiB .* there are 0\.35 GiB") as raised:
        room("vllm", qwen_hybrid(), 429_496_729, max_len=4096, slots=4)
    assert raised.value.hint == "lower max_len to 784, which fits"


def test_a_length_that_does_not_fit_is_refused_with_one_that_does() -> None:
    """Llama 3.1 8B in exactly 1 GiB: one block short since 0.29, when the null block counted."""
    with pytest.raises(InputError, match=r"one request of 8192 tokens needs 1\.00 GiB") as raised:
        room("vllm", dense(32, 8, 128), GIB, max_len=8192)
    assert raised.value.hint == "lower max_len to 8176, which fits"

    assert room("vllm", dense(32, 8, 128), GIB, max_len=8192, version="0.28.0").blocks == 512


def test_ollama_serves_some_families_one_at_a_time() -> None:
    made = room("ollama", qwen_hybrid(), 0, slots=8, max_len=4096)

    assert made.slots == 1
    assert "forced to 1 for qwen3_5, 8 were asked" in made.arithmetic[0]


def test_sglang_takes_several_state_slots_a_request_with_its_radix_cache() -> None:
    cached = room("sglang", qwen_hybrid(), 20 * GIB, max_len=4096)
    plain = room("sglang", qwen_hybrid(), 20 * GIB, max_len=4096, prefix_cache=False, slots=32)

    assert cached.slots == cached.state_slots // 5
    assert plain.slots == plain.state_slots == 32


def test_sliding_windows_of_llamacpp_keep_a_window_and_a_micro_batch() -> None:
    """Gemma 3, tiny: 4,096 cells for the full layer, 1,024 for those with a window, 4 slots."""
    full = Attention(kind="full", layers=1, kv_heads=1, key_dim=64, value_dim=64)
    sliding = Attention(kind="sliding", layers=5, kv_heads=1, key_dim=64, value_dim=64, window=512)
    tiny = Architecture(family="gemma3", attention=(full, sliding))
    made = room("llamacpp", tiny, 0, slots=4, max_len=4096)

    per_cell = 2 * 64 * 2
    size = 4 * per_cell * (4096 + 5 * 1024) / 2**20
    assert made.expected_log["llama_kv_cache: size (MiB)"] == size


@pytest.mark.parametrize("name", [n for n in names() if engine(n).room])
def test_every_room_is_sound(name: str) -> None:
    """Whatever the engine: nothing negative, no more runs than slots or pool allow."""
    made = room(name, dense(32, 8, 128), 8 * GIB, slots=8, max_len=4096)

    assert made.tokens > 0
    assert all(pool.usable > 0 for pool in made.pools)
    assert made.pool_bytes > 0
    for concurrency in (1, 8, 64):
        found = fit(made, 512, 256, concurrency)
        assert found.running + found.waiting == concurrency
        assert found.running <= min(8, found.fit)
        assert found.binds != "nothing" or found.waiting == 0
    assert fit(made, 4096, 4096, 4).binds == "max_len"
