"""What an explanation is made of: a claim, its lines and figures, and what to change."""

from typing import Any, Literal

import msgspec

from kvroom.records import Fact, Source

Cause = Literal[
    "client-limited",
    "unsupported/crash",
    "oom-at-start",
    "runtime-oom",
    "weights-extra",
    "config-ignored/deprecated",
    "state-fixed-cost",
    "page-unification",
    "preemption/retraction",
    "kv-exhausted",
    "slots-limit",
    "batch-token-limit",
    "cuda-graph-miss",
    "prefix-cache-effect",
    "attention-backend-switch",
    "jit-compile/cold-start",
    "host-noise",
    "warm-up",
    "wrong-lengths",
    "several-tokens-per-chunk",
    "truncated-prompts",
    "single-slot",
    "speculative-decoding",
    "sampling-defaults",
    "plan-differs",
    "benign",
]
"""In the order of a story: who asked, what came up, what held it back, what it cost, what is noise.
"""

How = Literal["planned", "logged", "observed", "given"]
Confidence = Literal["certain", "likely", "possible"]

SAYS, ARITHMETIC, CIRCUMSTANCE = 0, 1, 2
"""What decides: the engine says so itself, figures do, or what stands around it."""


class Quote(msgspec.Struct, frozen=True):
    """A line of a log, cut where it is long."""

    source: Source
    text: str


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A number that a claim rests on, and where it comes from."""

    name: str
    value: float | str
    unit: str = ""
    how: How
    source: str = ""
    """The line of the log, where one says it."""
    arithmetic: str = ""


class Forecast(msgspec.Struct, frozen=True):
    """A predicted figure: the likeliest value, and the ends between which it is expected."""

    low: float
    likely: float
    high: float


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One setting to change, or to leave alone."""

    setting: str
    """In our words, or the engine's own option where we have none."""
    now: str
    to: str
    """Empty where it is to be left as it is."""
    value: Any = None
    """The same for a matchup; None where no single value can be named."""
    because: str
    effect: str
    price: str = ""
    verify: str = ""
    running: int | None = None
    """Requests that run at once with it, as planned."""
    tokens_per_s: Forecast | None = None
    """At the highest level that was measured, by the curve, if a step costs what it costs now."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One cause of what is seen."""

    cause: Cause
    claim: str
    confidence: Confidence
    decides: int = ARITHMETIC
    quotes: tuple[Quote, ...] = ()
    figures: tuple[Figure, ...] = ()
    remedy: str = ""
    changes: tuple[Change, ...] = ()
    settle: str = ""
    """What would settle an open question: a line, an option, another round."""
    rule: str = ""
    """The rule, or the entry of the catalogue, that found it."""


def quote(*facts: Fact | None) -> tuple[Quote, ...]:
    """The lines of these facts, each once."""
    found = {f.source: Quote(f.source, f.text) for f in facts if f is not None and f.text}
    return tuple(found.values())


def logged(fact: Fact | None, name: str = "", arithmetic: str = "") -> tuple[Figure, ...]:
    """The figure of a fact, none where there is no fact."""
    if fact is None:
        return ()
    return (
        Figure(
            name=name or fact.name,
            value=fact.value,
            unit=fact.unit,
            how="logged",
            source=str(fact.source),
            arithmetic=arithmetic,
        ),
    )
