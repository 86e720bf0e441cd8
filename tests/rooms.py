"""Builders of architectures and rooms: published shapes, and one call to an adapter's planner."""

from collections.abc import Sequence
from typing import Any

from kvroom.checkpoint.architecture import Architecture, Attention, State
from kvroom.checkpoint.read import Checkpoint
from kvroom.checkpoint.weights import Weights
from kvroom.engines import engine
from kvroom.memory import Span
from kvroom.plan.answer import plan
from kvroom.plan.question import Planned, Question, Refused
from kvroom.records import LogLine
from kvroom.room import Ask, KvRoom
from kvroom.settings import Settings, Speculative

GIB = 1 << 30


def dense(layers: int, kv_heads: int, size: int, **more: Any) -> Architecture:
    attention = Attention(
        kind="full", layers=layers, kv_heads=kv_heads, key_dim=size, value_dim=size
    )
    return Architecture(family="llama", attention=(attention,), max_len=131_072, **more)


def qwen_hybrid(draft: bool = False, **more: Any) -> Architecture:
    """Qwen3.5 to 3.8 27B: 16 full layers, 48 of gated delta net."""
    attention = Attention(kind="full", layers=16, kv_heads=4, key_dim=256, value_dim=256)
    state = State(
        kind="gated_delta_net",
        layers=48,
        conv_channels=10_240,
        conv_columns=3,
        recurrent=48 * 128 * 128,
    )
    head = Attention(kind="full", layers=1, kv_heads=4, key_dim=256, value_dim=256)
    return Architecture(
        family="qwen3_5_text",
        attention=(attention,),
        states=(state,),
        ssm_dtype="float32",
        draft=head if draft else None,
        **more,
    )


def an_ask(architecture: Architecture, available: float = 0, **more: Any) -> Ask:
    """Settings and what else is asked, all by name."""
    if drafts := more.pop("speculative_tokens", 0):
        more["speculative"] = Speculative(tokens=drafts)
    settings = {k: more.pop(k) for k in list(more) if k in Settings.__struct_fields__}
    return Ask(
        architecture=architecture, settings=Settings(**settings), available=int(available), **more
    )


def room(name: str, architecture: Architecture, available: float = 0, **more: Any) -> KvRoom:
    planner = engine(name).room
    assert planner is not None
    return planner(an_ask(architecture, available, **more))


def qwen_moe_hybrid(full: int = 10, gdn: int = 30, **more: Any) -> Architecture:
    """Qwen3.5 35B-A3B, or Qwen3-Next with 12 and 36: 2 KV heads, 32 value heads of state."""
    attention = Attention(kind="full", layers=full, kv_heads=2, key_dim=256, value_dim=256)
    state = State(
        kind="gated_delta_net",
        layers=gdn,
        conv_channels=8192,
        conv_columns=3,
        recurrent=32 * 128 * 128,
    )
    return Architecture(family="qwen3_next", attention=(attention,), states=(state,), **more)


def kimi_linear() -> Architecture:
    """Kimi Linear 48B-A3B: 7 layers of MLA, 20 of Kimi delta attention."""
    mla = Attention(kind="mla", layers=7, kv_heads=1, key_dim=576, value_dim=0)
    kda = State(
        kind="kda", layers=20, conv_channels=3 * 32 * 128, conv_columns=3, recurrent=32 * 128 * 128
    )
    return Architecture(family="kimi_linear", attention=(mla,), states=(kda,))


def gemma4_26b() -> Architecture:
    """5 full layers of 2 wide heads, 25 with a window of 8 narrower ones."""
    full = Attention(kind="full", layers=5, kv_heads=2, key_dim=512, value_dim=512)
    sliding = Attention(
        kind="sliding", layers=25, kv_heads=8, key_dim=256, value_dim=256, window=1024
    )
    return Architecture(family="gemma4_text", attention=(full, sliding))


def answer(
    name: str,
    architecture: Architecture,
    lines: Sequence[str] = (),
    *,
    prompt: int = 474,
    output: int = 256,
    concurrency: int = 32,
    memory: float | None = None,
    weights: float | None = None,
    **more: Any,
) -> Planned | Refused:
    """The whole plan of one engine: beside these lines of its log, or on a card of that memory."""
    logged = engine(name).read_log(
        (LogLine(number, line) for number, line in enumerate(lines, start=1)), "engine.log"
    )
    held = Weights(parts={"layers": int(weights)}, dtypes={}) if weights is not None else None
    question = Question(
        checkpoint=Checkpoint(name="model", architecture=architecture, weights=held),
        ask=an_ask(architecture, **more),
        prompt=prompt,
        output=output,
        concurrency=(concurrency,),
        memory=Span(int(memory), int(memory)) if memory is not None else None,
        logged=tuple(logged),
    )
    return plan(question, name)
