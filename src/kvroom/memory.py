"""Memory before the pool: what a card has, what is gone before the cache gets its share.

Weights are exact. Activations, graphs and the driver's own are estimated, as an interval, and the
interval goes through to the answer. A measured figure (``--available``, or an engine's log) takes
the estimate's place. The ends are held to what engines measured on an RTX 5090 and a 3090.
"""

import difflib
from pathlib import Path

import msgspec

from kvroom import located
from kvroom.checkpoint.architecture import Architecture
from kvroom.errors import InputError
from kvroom.room import Share
from kvroom.units import parse_bytes

GIB = 1 << 30
NOT_TO_BE_HAD = 0.05
"""Share of a vendor's figure that a program may not see."""


class Span(msgspec.Struct, frozen=True):
    """An estimate: certainly not less than ``low``, not more than ``high``."""

    low: int
    high: int


def size(text: str | None, option: str) -> Span | None:
    """An exact number of bytes; InputError names the option."""
    if text is None:
        return None
    try:
        count = int(parse_bytes(int(text) if text.isdigit() else text))
    except ValueError as error:
        raise InputError(f"{option}: {error}") from None
    if not 0 < count < 1 << 50:
        raise InputError(f"{option} {text}: no card has that much memory", "such as 24GiB")
    return Span(count, count)


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
    workspace: Span
    graphs: Span
    context: Span
    share: Share
    available: Span


_CONTEXT = Span(int(0.3 * GIB), int(0.8 * GIB))
"""The driver's context and the libraries' workspaces."""
_GRAPHS = Span(int(0.1 * GIB), int(1.0 * GIB))
"""Captured CUDA graphs: 0.18 and 0.48 GiB in start-up logs; with a drafter it can be far more."""
_ROWS = (6, 24)
"""Rows of ``hidden`` that are alive at once for a token, in the model's dtype."""
_LOGITS = (1, 3)
"""Copies of a request's logits in float32."""


def before_the_pool(total: Span, weights: int, architecture: Architecture, share: Share) -> Before:
    """What an engine with such a share of a card has left for its pool, as an interval."""
    active = activations(architecture, share)
    workspace = Span(*(round(gib * GIB) for gib in share.workspace_gib))
    graphs = _GRAPHS if share.graphs else Span(0, 0)
    used = Span(active.low + workspace.low + graphs.low, active.high + workspace.high + graphs.high)
    least = _left(share, total.low, weights, used.high, _CONTEXT.high)
    most = _left(share, total.high, weights, used.low, _CONTEXT.low)
    return Before(
        total=total,
        weights=weights,
        activations=active,
        workspace=workspace,
        graphs=graphs,
        context=_CONTEXT,
        share=share,
        available=Span(max(0, least), max(0, most)),
    )


def _left(share: Share, memory: int, weights: int, active: int, context: int) -> int:
    if share.of == "total":
        return int(memory * share.fraction) - weights - active - context
    if share.of == "rest":
        return int((memory - weights - active - context) * share.fraction)
    return int((memory - context) * share.fraction) - weights


def activations(architecture: Architecture, share: Share) -> Span:
    """Of the largest step: hidden rows for each token of it, and logits for each request."""
    rows = share.step_tokens * architecture.hidden * 2
    logits = share.step_requests * architecture.vocab * 4
    low, high = (rows * r + logits * n for r, n in zip(_ROWS, _LOGITS, strict=True))
    return Span(low, high)
