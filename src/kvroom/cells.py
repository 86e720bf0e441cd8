"""llama.cpp's cells, which Ollama's room is made of too: bytes of caches and of states.

Sources: llama-kv-cache.cpp and llama-kv-cache-iswa.cpp (cells), llama-hparams.cpp (states), commit
0c1e57098.
"""

from kvroom.checkpoint.architecture import Architecture, Attention
from kvroom.errors import InputError
from kvroom.room import Ask, Share

PAD = 256
MICRO_BATCH = 512
F32 = 4

BITS = {"f32": 32, "f16": 16, "bf16": 16, "q8_0": 8.5, "q5_1": 6, "q5_0": 5.5, "q4_1": 5,
        "q4_0": 4.5, "iq4_nl": 4.5}  # fmt: skip
"""Per element, scales included: a q8_0 block is 34 bytes for 32 elements."""


def padded(count: int) -> int:
    """Cells for so many tokens."""
    return -(-count // PAD) * PAD


def cells_of(attention: Attention, context: int, sequences: int = 1) -> int:
    """Cells of one stream that this many sequences share; a window keeps itself and a micro-batch.

    ``context`` is the stream's, already padded.
    """
    if attention.kind != "sliding" or attention.window is None:
        return context
    return padded(min(context, attention.window * sequences + MICRO_BATCH))


def token_bytes(attention: Attention, dtype: str) -> float:
    """Bytes per token of all these layers; keys alone where the value lies in them (MLA)."""
    bits = 8 if attention.own_dtype is not None else BITS[dtype]
    return attention.layers * attention.elements() * bits / 8


def state_bytes(architecture: Architecture) -> int:
    """Bytes of one sequence's states, always float32."""
    return sum(s.layers * (s.conv() + s.ssm()) * F32 for s in architecture.states)


def known_dtype(engine: str, dtype: str | None, known: tuple[str, ...] = tuple(BITS)) -> str:
    """The cache type, in lower case; InputError names those there are."""
    name = (dtype or "f16").lower()
    if name not in known:
        raise InputError(f"{engine} has no cache type {name!r}", "known: " + ", ".join(known))
    return name


def share(ask: Ask) -> Share:
    """All of the card may be taken; a step is one micro-batch."""
    return Share("total", 1.0, MICRO_BATCH, ask.settings.slots or 1, (0.0, 0.5), graphs=False)
