"""What vLLM takes by itself, by version and card, where it changes the room.

Read in 38 releases from 0.10.0 to 0.33.0: engine/arg_utils.py (slots, tokens of a step, fraction,
prefix caching), config/vllm.py (steps in flight), v1/core/kv_cache_utils.py (groups, the logged
tokens, the start-up check), models/config.py and platforms/interface.py (the step of a block).
"""

from kvroom.checkpoint.architecture import State
from kvroom.engines.vllm.pages import Rules
from kvroom.errors import InputError
from kvroom.room import Ask, Share, release

GIB = 1 << 30
NEWEST = (0, 31, 0)

LARGE_CARD, HUGE_CARD = 70 * GIB, 160 * GIB
MODE_ALL = ("mamba1", "mamba2")
"""States that releases before 0.28 kept at every block when prefix caching was switched on."""


def since(ask: Ask, *version: int) -> bool:
    """Whether the release is this one or later."""
    return release(ask.version, NEWEST) >= (*version, 0, 0)[:3]


def share(ask: Ask) -> Share:
    """``--gpu-memory-utilization``: of the whole card."""
    fraction = ask.settings.memory_fraction or (0.92 if since(ask, 0, 20) else 0.9)
    workspace = (0.0, 1.0) if ask.on_cpu else (0.1, 2.5)
    return Share("total", fraction, batch_tokens(ask), slots(ask), workspace, not ask.on_cpu)


def slots(ask: Ask) -> int:
    """``--max-num-seqs``."""
    if ask.settings.slots is not None:
        return ask.settings.slots
    if ask.on_cpu:
        return 128
    return 1024 if _large(ask) else 256


def batch_tokens(ask: Ask) -> int:
    """``--max-num-batched-tokens`` of a server."""
    if ask.settings.batch_tokens is not None:
        return ask.settings.batch_tokens
    if ask.on_cpu or not _large(ask):
        return 2048
    huge = (ask.card_bytes or 0) >= HUGE_CARD and since(ask, 0, 28)
    return 16_384 if huge else 8192


def _large(ask: Ask) -> bool:
    return (ask.card_bytes or 0) >= LARGE_CARD and "A100" not in ask.card


def in_flight(ask: Ask) -> int:
    """Tokens scheduled and not yet settled: two steps' worth, with asynchronous scheduling, since
    0.26; on a CPU it is off."""
    steps = 2 if since(ask, 0, 26) and not ask.on_cpu else 1
    return steps * batch_tokens(ask)


def admits_uncapped(ask: Ask) -> bool:
    """Whether a prompt is let in only when all its tokens find pages in every group, windowed or
    not: since whole prompts are reserved (#37307), until windows were counted as such (#39866)."""
    return since(ask, 0, 17) and not since(ask, 0, 20)


def prefix_cache(ask: Ask) -> bool:
    """``--enable-prefix-caching``: on by itself for hybrids since 0.28."""
    if ask.settings.prefix_cache is not None:
        return ask.settings.prefix_cache
    if not ask.architecture.states:
        return True
    return bool(ask.architecture.attention) and since(ask, 0, 28)


def state_pages(state: State, ask: Ask) -> tuple[int, int]:
    """Pages of state a request holds in each state group: at most, and between boundaries.

    With prefix caching (mode "align") the state before a block boundary stays beside the new one;
    Mamba 2 keeps one more since 0.32. Before 0.15 neither drafts nor caching were counted.
    """
    if not since(ask, 0, 15):
        return 1, 1
    drafts = ask.speculative_tokens
    if not prefix_cache(ask):
        return 1 + drafts, 1 + drafts
    if state.kind in MODE_ALL and not since(ask, 0, 28):
        raise InputError(
            "this vLLM keeps a state at every block for such a model when prefix caching is on, "
            "which is not planned",
            "--no-prefix-cache, or vLLM 0.28 and later",
        )
    checkpoints = 1 if state.kind == "mamba2" and since(ask, 0, 32) else 0
    return 2 + drafts + checkpoints, 1 + drafts


def mla_step(ask: Ask) -> int:
    """Tokens by which the block of a hybrid with latent attention grows."""
    if since(ask, 0, 27):
        return 128
    return 64 if since(ask, 0, 11, 1) else 16


def ssm_dtype(state: State, ask: Ask) -> str:
    """Of the recurrent state: the declared one where vLLM looks for it; on a CPU (one that has
    AVX-512 BF16) float32."""
    architecture = ask.architecture
    family = architecture.family.removesuffix("_text")
    if state.kind == "kda" or ask.on_cpu:
        return "float32"
    if family == "nemotron_h" and since(ask, 0, 13):
        return architecture.ssm_dtype or ("float32" if since(ask, 0, 20) else "float16")
    declared = family.startswith(("qwen3_5", "qwen3_6", "qwen3_8")) and architecture.ssm_dtype
    return str(declared) if declared else architecture.dtype


def rules(ask: Ask) -> Rules:
    """How layers are grouped."""
    widest = 1.5 if since(ask, 0, 18) else 1.25 if since(ask, 0, 12) else 1.0
    return Rules(
        widest=widest,
        mixes_sizes=since(ask, 0, 11),
        scales=since(ask, 0, 12),
        pads=since(ask, 0, 24),
        grows=since(ask, 0, 27),
    )
