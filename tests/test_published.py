"""Figures that others published, with the inputs that make them: each plan must equal what the
engine printed then. Names say where: an issue or a pull request, or the model and the card."""

from typing import Any

import msgspec
import pytest

from kvroom.checkpoint.architecture import Architecture, Attention, State
from kvroom.engines.vllm.pages import Spec, grouped, pool
from kvroom.errors import InputError
from kvroom.fit import fit
from kvroom.plan.question import Planned, Refused
from rooms import (
    GIB,
    answer,
    dense,
    gemma4_26b,
    kimi_linear,
    qwen_hybrid,
    qwen_moe_hybrid,
    room,
)

MIB = 1 << 20


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of a log, the settings behind them, and what else must come out."""

    why: str
    architecture: Architecture
    ask: dict[str, Any]
    lines: tuple[str, ...]
    blocks: tuple[int, ...]
    """Two where the lines leave an interval."""
    block_tokens: int
    fit: int | None = None


def vllm_lines(tokens: str, length: str, concurrency: str, available: str = "") -> tuple[str, ...]:
    """As vLLM printed them over the years."""
    first = (f"Available KV cache memory: {available} GiB",) if available else ()
    return (
        *first,
        f"GPU KV cache size: {tokens} tokens",
        f"Maximum concurrency for {length} tokens per request: {concurrency}x",
    )


TWO_5060: dict[str, Any] = {
    "version": "0.28.0", "tensor_parallel": 2, "max_len": 163_840, "slots": 32,
    "kv_cache_dtype": "fp8", "batch_tokens": 3135,
}  # fmt: skip

VLLM = {
    "vllm#40691": Case(
        why="0.19 divided the pool by its groups: 290,864 where 33 requests of 32,768 fit",
        architecture=qwen_hybrid(),
        ask={"version": "0.19.0", "max_len": 32_768, "slots": 16, "batch_tokens": 16_384},
        lines=vllm_lines("290,864", "32,768", "33.04"),
        blocks=(1487,),
        block_tokens=784,
    ),
    "vllm#28228": Case(
        why="latent attention is not divided among ranks; its pages are multiples of 32 tokens",
        architecture=kimi_linear(),
        ask={
            "version": "0.11.1",
            "tensor_parallel": 2,
            "max_len": 120_000,
            "slots": 8,
            "batch_tokens": 64_000,
            "prefix_cache": True,
        },
        lines=vllm_lines("75,840", "120,000", "2.48", "2.30"),
        blocks=(318,),
        block_tokens=960,
    ),
    "talos-argocd-proxmox#1995": Case(
        why="fp8 on two ranks: 1,024 B a token and rank beside a float32 state",
        architecture=qwen_hybrid(),
        ask={"tensor_parallel": 2, "max_len": 131_072, "slots": 2, "kv_cache_dtype": "fp8_e4m3"},
        lines=vllm_lines("302,921", "131,072", "2.31"),
        blocks=(208,),
        block_tokens=1568,
    ),
    "club-3090#1170": Case(
        why="four draft tokens are four more pages of state in each group, and a wider state",
        architecture=qwen_hybrid(draft=True),
        ask={
            "tensor_parallel": 2,
            "max_len": 262_144,
            "slots": 2,
            "kv_cache_dtype": "fp8",
            "speculative_tokens": 4,
        },
        lines=vllm_lines("530,081", "262,144", "2.02"),
        blocks=(366,),
        block_tokens=1616,
    ),
    "club-3090#1170 without drafts": Case(
        why="the same cards, no draft tokens",
        architecture=qwen_hybrid(),
        ask={"tensor_parallel": 2, "max_len": 262_144, "slots": 2, "kv_cache_dtype": "fp8"},
        lines=vllm_lines("652,346", "262,144", "2.49"),
        blocks=(433,),
        block_tokens=1568,
    ),
    "vllm#49011": Case(
        why="nvfp4 is half a byte and a scale for sixteen elements: 1,152 B a token and layer",
        architecture=qwen_hybrid(draft=True),
        ask={
            "version": "0.25.1",
            "max_len": 1_048_576,
            "slots": 1,
            "kv_cache_dtype": "nvfp4",
            "prefix_cache": True,
            "speculative_tokens": 2,
        },
        lines=vllm_lines("1,823,372", "1,048,576", "1.74"),
        blocks=(666,),
        block_tokens=2832,
    ),
    "vllm#26646": Case(
        why="fp8 doubled the page and left the number of pages: a 16-bit state fixes its bytes",
        architecture=qwen_moe_hybrid(12, 36),
        ask={
            "version": "0.11.0",
            "tensor_parallel": 2,
            "max_len": 215_040,
            "slots": 256,
            "kv_cache_dtype": "fp8",
        },
        lines=vllm_lines("90,048", "215,040", "1.66"),
        blocks=(338, 339),
        block_tokens=1072,
    ),
    "vllm#55580 slow": Case(
        why="30 short requests fit, so two of 32 wait: a quarter less throughput",
        architecture=qwen_hybrid(),
        ask=TWO_5060,
        lines=vllm_lines("183,028", "163,840", "1.12"),
        blocks=(124,),
        block_tokens=1568,
        fit=30,
    ),
    "vllm#55580 fast": Case(
        why="another start of the same: 6 pages more, and all 32 fit",
        architecture=qwen_hybrid(),
        ask=TWO_5060,
        lines=vllm_lines("191,884", "163,840", "1.17"),
        blocks=(130,),
        block_tokens=1568,
        fit=32,
    ),
    "gemma-4 26B on a 5090": Case(
        why="full layers have half the bytes of a windowed one, so twice the tokens in a page",
        architecture=gemma4_26b(),
        ask={
            "version": "0.19.1",
            "max_len": 262_144,
            "slots": 4,
            "kv_cache_dtype": "fp8",
            "batch_tokens": 16_384,
        },
        lines=vllm_lines("78,256", "262,144", "2.15"),
        blocks=(29_346, 29_351),
        block_tokens=16,
    ),
    "gemma-4 that never admitted": Case(
        why="a window holds itself and one chunk: 193 pages of 16 with chunks of 2,048",
        architecture=gemma4_26b(),
        ask={"version": "0.19.1", "max_len": 262_144, "slots": 4, "batch_tokens": 2048},
        lines=vllm_lines("37,392", "262,144", "1.53"),
        blocks=(14_022, 14_027),
        block_tokens=16,
    ),
    "Qwen3-30B fp8 on 48 GB": Case(
        why="a plain transformer: 49,152 B a token",
        architecture=dense(48, 4, 128),
        ask={"version": "0.10.2", "max_len": 100_000, "kv_cache_dtype": "fp8"},
        lines=vllm_lines("230,528", "100,000", "2.31", "10.55"),
        blocks=(14_408,),
        block_tokens=16,
    ),
    "Llama-3.2 start-up": Case(
        why="613,024 tokens are 38,314 blocks of 16",
        architecture=dense(28, 8, 128),
        ask={"version": "0.9.1", "max_len": 131_072},
        lines=vllm_lines("613,024", "131,072", "4.68"),
        blocks=(38_314,),
        block_tokens=16,
    ),
}


@pytest.mark.parametrize("name", VLLM)
def test_vllm_printed_what_is_planned(name: str) -> None:
    case = VLLM[name]
    planned = answer("vllm", case.architecture, case.lines, **case.ask)

    assert isinstance(planned, Planned), planned
    assert tuple(made.blocks for made in planned.rooms) == case.blocks
    assert planned.room.block_tokens == case.block_tokens
    logged = [check for check in planned.checks if check.logged is not None]
    assert len(logged) >= 2
    assert all(check.agrees for check in logged)
    assert case.fit is None or planned.fits[0][0].fit == case.fit


def test_the_null_block_decides_whether_vllm_starts() -> None:
    """vllm#47272: 179 pages are one request of 262,144 tokens, but one of them is never given."""
    made = {
        "slots": 1, "max_len": 262_144, "kv_cache_dtype": "fp8", "speculative_tokens": 3,
        "prefix_cache": True,
    }  # fmt: skip
    width = 17 * 1600 * 2048

    before = room("vllm", qwen_hybrid(draft=True), 179 * width, version="0.28.0", **made)
    assert (before.block_tokens, before.blocks, before.tokens) == (1600, 179, 262_144)
    more = [room("vllm", qwen_hybrid(draft=True), n * width, version="0.28.0", **made).tokens
            for n in (180, 181)]  # fmt: skip
    assert more == [263_608, 265_072]
    with pytest.raises(InputError, match=r"needs 9\.29 GiB") as refused:
        room("vllm", qwen_hybrid(draft=True), 179 * width, version="0.29.0", **made)
    assert refused.value.hint == "lower max_len to 260800, which fits"


@pytest.mark.parametrize(
    ("drafts", "dtype", "block", "padding"),
    [
        (15, "auto", 480, 1.27),
        (7, "int8_per_token_head", 864, 1.09),
        (7, "auto", 448, 3.23),
        (3, "fp8", 832, 0.48),
    ],
)
def test_drafts_widen_the_state_and_so_the_block(
    drafts: int, dtype: str, block: int, padding: float
) -> None:
    """Four boots of one 16-bit state: the conv state has a column more for each draft token."""
    halved = msgspec.structs.replace(qwen_hybrid(), ssm_dtype=None)
    made = room(
        "vllm", halved, 30 * GIB, version="0.29.0", max_len=32_768, slots=4,
        kv_cache_dtype=dtype, speculative_tokens=drafts,
    )  # fmt: skip

    assert made.block_tokens == block
    assert made.expected_log["Padding mamba page size by (%)"] == padding


def test_the_default_of_a_large_card_does_not_start_a_hybrid() -> None:
    """96 GB: 1,024 requests at once by default, 939 pages of state."""
    refused = answer(
        "vllm", qwen_hybrid(), ("Available KV cache memory: 44.94 GiB",), card_bytes=96 * GIB,
        max_len=4096,
    )  # fmt: skip

    assert isinstance(refused, Refused)
    assert "max_num_seqs (1024) exceeds the 939 blocks" in refused.why


def test_a_drafter_makes_groups_that_waste() -> None:
    """Qwen3.6 35B with 8 draft layers: 2 of 32 state layers and 6 of 16 attention layers pad."""
    state = Spec(kind="mamba", block=16, page=4096, layout=(1,))
    full = Spec(kind="full", block=16, page=4096, layout=(2,))
    draft = Spec(kind="full", block=16, page=4096, layout=(8,))
    groups = grouped([state] * 30 + [full] * 10 + [draft] * 8)

    sizes = [(group.specs[0].layout, len(group.specs)) for group in groups]
    assert [n for layout, n in sizes if layout == (1,)] == [8, 8, 7, 7]
    assert [n for layout, n in sizes if layout == (2,)] == [5, 5]
    assert [n for layout, n in sizes if layout == (8,)] == [8]


@pytest.mark.parametrize(
    ("block", "blocks", "pages", "tokens"),
    [(32, 535_530, 58_465, 1_200_598), (64, 535_384, 53_817, 1_303_934)],
)
def test_convolutions_kept_as_windows_take_most_of_the_pool(
    block: int, blocks: int, pages: int, tokens: int
) -> None:
    """Inkling: a window of 4 reserves as much for what is in flight as one of 512."""
    full = Spec(kind="full", block=block, page=32_768)
    sliding = Spec(kind="sliding", block=block, page=32_768, window=512)
    conv = Spec(kind="sliding", block=4, page=32_768, window=4, layout=(1,))
    made = pool(
        [full] * 7 + [sliding] * 35 + [conv] * 42, blocks * 7 * 32_768, in_flight=2 * 16_384
    )

    assert (made.blocks, made.pages(131_072)) == (blocks, pages)
    assert int(made.concurrency(131_072) * 131_072) == tokens


def test_a_length_that_needs_more_than_there_is() -> None:
    """Qwen3-30B: 221,000 tokens need 10.12 GiB; in 5.59 GiB 122,080 fit."""
    with pytest.raises(InputError, match=r"221000 tokens needs 10\.12 GiB") as refused:
        room(
            "vllm", dense(48, 4, 128), 122_080 * 49_152, version="0.10.2", max_len=221_000,
            kv_cache_dtype="fp8",
        )  # fmt: skip
    assert refused.value.hint == "lower max_len to 122080, which fits"


def test_a_longer_step_leaves_a_smaller_pool() -> None:
    """vLLM 0.6.4 on a 3090: 1,952 blocks at 20,000 tokens; 1,478 refuse 29,000."""
    made = room("vllm", dense(32, 8, 128), 1952 * 2 * MIB, version="0.6.4", max_len=20_000)

    assert (made.tokens, round(made.max_concurrency or 0, 2)) == (31_232, 1.56)
    with pytest.raises(InputError) as refused:
        room("vllm", dense(32, 8, 128), 1478 * 2 * MIB, version="0.6.4", max_len=29_000)
    assert refused.value.hint == "lower max_len to 23648, which fits"


# TensorRT-LLM


@pytest.mark.parametrize(
    ("version", "available", "page", "blocks"),
    [("0.13.0", 0.9 * 21.89 * GIB, 64, 631), ("0.8.0", 69_524_783_104, 128, 1036)],
)
def test_older_tensorrt_llm_rounded_its_blocks_up(
    version: str, available: float, page: int, blocks: int
) -> None:
    """7B models with 32 KV heads: 524,288 B a token."""
    made = room(
        "trtllm", dense(32, 32, 128), available, version=version, block_tokens=page, max_len=5120
    )

    assert (made.bytes_per_token, made.blocks) == (524_288, blocks)


def test_tensorrt_llm_allocated_what_is_planned() -> None:
    """A draft model of 1.1B alone on a card: 1,794 sequences of 2,051 tokens."""
    line = "[MemUsageChange] Allocated 78.30 GiB for max tokens in paged KV cache (3731744)."
    planned = answer("trtllm", dense(22, 4, 64), (line,), max_len=2051)

    assert isinstance(planned, Planned)
    assert planned.room.blocks == 116_617
    assert int(planned.room.max_concurrency or 0) == 1794
    assert all(check.agrees for check in planned.checks if check.logged is not None)


def test_the_default_batch_of_a_hybrid_takes_50_gib_of_states() -> None:
    """Qwen3.5 9B: 25.125 MiB a slot, 2,048 slots and one to pad."""
    state = State(
        kind="gated_delta_net", layers=24, conv_channels=8192, conv_columns=3,
        recurrent=32 * 128 * 128,
    )  # fmt: skip
    attention = Attention(kind="full", layers=8, kv_heads=4, key_dim=256, value_dim=256)
    small = Architecture(family="qwen3_5_text", attention=(attention,), states=(state,))

    with pytest.raises(InputError, match=r"2049 state slots take 50\.27 GiB of 40\.00 GiB"):
        room("trtllm", small, 40 * GIB, max_len=4096)


def test_a_policy_that_evicts_lets_more_in_than_can_end() -> None:
    """Llama 70B: 2.58 GiB a request of 16,384 + 512; 55 GiB are less than 32 of them need."""
    ask = {"kv_cache_dtype": "fp8", "max_len": 17_000, "batch_tokens": 17_000}
    safe = room("trtllm", dense(80, 8, 128), 55 * GIB, **ask)
    bold = room("trtllm", dense(80, 8, 128), 55 * GIB, overcommit=True, **ask)

    assert safe.bytes_per_token * 16_896 / GIB == pytest.approx(2.58, abs=0.005)
    assert fit(safe, 16_384, 512, 32).preempted == 0
    assert fit(bold, 16_384, 512, 32).preempted > 0
    assert fit(safe, 16_384, 512, 32).running == fit(bold, 16_384, 512, 32).running == 21


def test_a_prompt_longer_than_a_step_is_refused() -> None:
    """Qwen3-32B with max_num_tokens 8192."""
    made = room("trtllm", dense(64, 8, 128), 20 * GIB, max_len=32_768, batch_tokens=8192)

    assert fit(made, 8192, 100, 4).binds == "nothing"
    assert fit(made, 8193, 100, 4).binds == "batch_tokens"


# SGLang


def test_sglang_printed_what_is_planned() -> None:
    """2,980,168 tokens of 12,288 B on an L40, 4,096 requests by default."""
    line = (
        "max_total_num_tokens=2980168, chunked_prefill_size=4096, max_prefill_tokens=16384, "
        "max_running_requests=4096, context_len=32768, available_gpu_mem=6.95 GB"
    )
    planned = answer("sglang", dense(24, 2, 64), (line,), max_len=32_768)

    assert isinstance(planned, Planned)
    assert planned.room.pool_bytes / GIB == pytest.approx(34.1, abs=0.01)
    assert all(check.agrees for check in planned.checks)


def test_47_state_slots_let_nine_requests_run() -> None:
    """Five slots a request with the radix cache: 32 were asked, 23 wait."""
    made = room("sglang", qwen_hybrid(), 20 * GIB, slots=32, state_slots=47, max_len=32_768)

    assert made.slots == 9
    assert fit(made, 474, 256, 32).waiting == 23
    assert fit(made, 474, 256, 32).pool == "state"
    assert made.fixed_bytes / 48 / MIB == pytest.approx(146.8, abs=0.05)


def test_a_state_slot_costs_2253_tokens() -> None:
    """Two ranks, fp8, one draft layer: 11 slots fewer are 24,785 tokens more."""
    halved = msgspec.structs.replace(qwen_hybrid(draft=True), ssm_dtype="bfloat16")
    ask = {"tensor_parallel": 2, "kv_cache_dtype": "fp8_e4m3", "speculative_tokens": 1}
    available = 158_116.5 * 17_408 + 22 * 39_223_296
    many = room("sglang", halved, available, state_slots=21, slots=1, max_len=131_072, **ask)
    few = room("sglang", halved, available, state_slots=10, slots=1, max_len=131_072, **ask)

    assert (many.tokens, few.tokens) == (158_116, 182_901)


def test_a_tiny_pool_of_sglang_shortens_the_input() -> None:
    """1,741 tokens: inputs over 1,735 are refused, whatever --context-length says."""
    made = room("sglang", dense(32, 8, 128), 1741 * 131_072, max_len=65_536)

    assert made.tokens == 1741
    assert "an input over 1735 tokens gets HTTP 400" in made.too_long


def test_weights_that_are_more_than_the_static_fraction() -> None:
    """DeepSeek V4 Pro on 140.4 GiB at 0.88: 123.55 GiB for 125.65 GiB of weights."""
    refused = answer(
        "sglang", dense(32, 8, 128), memory=140.4 * GIB, weights=125.65 * GIB, memory_fraction=0.88
    )

    assert isinstance(refused, Refused)
    assert "125.6 GiB of weights leave nothing" in refused.why


# llama.cpp and Ollama


def test_automatic_slots_share_one_context() -> None:
    """-c 1024 without -np: four slots say 1,024 each and share 1,024 cells; 256 each are safe."""
    made = room("llamacpp", dense(30, 3, 64), max_len=256)

    assert (made.slots, made.max_len, made.blocks) == (4, 1024, 1024)
    assert fit(made, 200, 56, 4).running == 4
    assert fit(made, 200, 57, 4).running == 3


def test_llamacpp_keeps_a_float32_state_for_each_slot() -> None:
    """Qwen3.5 27B, three slots: 16.88 MiB of convolutions and 432 MiB of recurrent states."""
    made = room("llamacpp", qwen_hybrid(), slots=3, max_len=4096)

    assert made.expected_log["llama_memory_recurrent: size (MiB)"] == 448.88


def test_a_latent_in_q8_0() -> None:
    """DeepSeek R1 with 32,768 cells: 37,332 B a token."""
    mla = Attention(kind="mla", layers=61, kv_heads=1, key_dim=576, value_dim=0)
    made = room(
        "llamacpp", Architecture(family="deepseek2", attention=(mla,)), slots=1, max_len=32_768,
        kv_cache_dtype="q8_0",
    )  # fmt: skip

    assert made.bytes_per_token == 37_332
    assert made.expected_log["llama_kv_cache: size (MiB)"] == 1166.62


def test_a_latent_that_is_not_used_as_one() -> None:
    """DeepSeek V3 before llama.cpp knew MLA: 762.5 GiB for 163,840 tokens."""
    whole = Attention(kind="full", layers=61, kv_heads=128, key_dim=192, value_dim=128)
    made = room(
        "llamacpp", Architecture(family="deepseek2", attention=(whole,)), slots=1, max_len=163_840
    )

    assert made.pool_bytes / GIB == 762.5


@pytest.mark.parametrize(
    ("shape", "slots", "length", "dtype", "gib"),
    [
        ((28, 8, 128), 1, 131_072, "f16", 14.0),
        ((48, 4, 128), 1, 262_144, "f16", 24.0),
        ((48, 4, 128), 4, 262_144, "f16", 96.0),
        ((48, 4, 128), 1, 6144, "f16", 0.5625),
        ((36, 8, 128), 1, 40_960, "f16", 5.625),
        ((36, 8, 128), 1, 128_000, "f16", 17.58),
        ((36, 8, 128), 1, 128_000, "q4_0", 4.94),
        ((32, 8, 128), 1, 24_576, "f16", 3.0),
        ((28, 2, 128), 4, 2048, "f16", 0.21875),
    ],
)
def test_ollama_multiplies_context_by_parallel(
    shape: tuple[int, int, int], slots: int, length: int, dtype: str, gib: float
) -> None:
    architecture = msgspec.structs.replace(dense(*shape), max_len=262_144)
    made = room("ollama", architecture, slots=slots, max_len=length, kv_cache_dtype=dtype)

    assert made.pool_bytes / GIB == pytest.approx(gib, abs=0.005)
    assert made.expected_log["llama_context: n_ctx"] == slots * length
