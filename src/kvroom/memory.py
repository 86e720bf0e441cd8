"""Memory before the pool: what a card has, what is gone before the cache gets its share.

Weights are exact. Activations, graphs and the driver's own are estimated, as an interval, and the
interval goes through to the answer. A measured figure (``--available``, or an engine's log) takes
the estimate's place.
"""

import difflib
from pathlib import Path

import msgspec

from kvroom import located
from kvroom.checkpoint.architecture import Architecture
from kvroom.errors import InputError
from kvroom.matchup import Settings
from kvroom.room import Share, ShareOf

GIB = 1 << 30
NOT_TO_BE_HAD = 0.05
"""Share of a vendor's figure that a program may not see."""


class Span(msgspec.Struct, frozen=True):
    """An estimate: certainly not less than ``low``, not more than ``high``."""

    low: int
    high: int

    @property
    def exact(self) -> bool:
        """Whether there is nothing uncertain."""
        return self.low == self.high


class Card(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of cards.yaml."""

    name: str
    bandwidth_gb_s: int
    reported_gib: float | None = None
    nominal_gib: float | None = None

    @property
    def memory(self) -> Span:
        """Bytes a program can have."""
        if self.reported_gib is not None:
            return Span(round(self.reported_gib * GIB), round(self.reported_gib * GIB))
        nominal = round((self.nominal_gib or 0) * GIB)
        return Span(round(nominal * (1 - NOT_TO_BE_HAD)), nominal)


def cards() -> list[Card]:
    """The cards that kvroom knows."""
    return located.load(Path(__file__).with_name("cards.yaml"), list[Card])


def card(name: str) -> Card:
    """The card of that name; InputError with the nearest one."""
    known = {one.name.lower(): one for one in cards()}
    wanted = name.lower().removeprefix("nvidia ").removeprefix("geforce ")
    if wanted in known:
        return known[wanted]
    near = difflib.get_close_matches(wanted, known, n=1)
    hint = f"did you mean {known[near[0]].name!r}?" if near else "give --memory instead"
    raise InputError(f"the card {name!r} is not known", hint)


class Before(msgspec.Struct, frozen=True, kw_only=True):
    """What is taken before the pool, and what is left for it."""

    total: Span
    weights: int
    activations: Span
    graphs: Span
    context: Span
    share: float
    of: ShareOf
    available: Span


_CONTEXT = Span(int(0.3 * GIB), int(0.8 * GIB))
"""The driver's context and the libraries' workspaces."""
_GRAPHS = Span(int(0.1 * GIB), int(1.0 * GIB))
"""Captured CUDA graphs."""
_ROWS = (6, 24)
"""Rows of ``hidden`` that are alive at once for a token, in the model's dtype."""
_LOGITS = (1, 3)
"""Copies of a request's logits in float32."""


def before_the_pool(
    total: Span, weights: int, architecture: Architecture, settings: Settings, share: Share
) -> Before:
    """What an engine with such a share has left for its pool, as an interval."""
    used = activations(architecture, settings)
    fraction = settings.memory_fraction or share.default
    ends = zip((total.low, total.high), (used.high, used.low), (_GRAPHS.high, _GRAPHS.low),
               (_CONTEXT.high, _CONTEXT.low), strict=True)  # fmt: skip
    low, high = (
        max(0, _left(share.of, fraction, memory, weights, active + graphs, context))
        for memory, active, graphs, context in ends
    )
    return Before(
        total=total,
        weights=weights,
        activations=used,
        graphs=_GRAPHS,
        context=_CONTEXT,
        share=fraction,
        of=share.of,
        available=Span(low, high),
    )


def _left(of: ShareOf, share: float, memory: int, weights: int, active: int, context: int) -> int:
    if of == "total":
        return int(memory * share) - weights - active - context
    if of == "rest":
        return int((memory - weights - active - context) * share)
    return int((memory - context) * share) - weights


def activations(architecture: Architecture, settings: Settings) -> Span:
    """Of the largest step: hidden rows for each token of it, and logits for each request."""
    rows = (settings.batch_tokens or 8192) * architecture.hidden * 2
    logits = (settings.slots or 256) * architecture.vocab * 4
    low, high = (rows * r + logits * n for r, n in zip(_ROWS, _LOGITS, strict=True))
    return Span(low, high)
