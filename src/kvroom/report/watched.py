"""An engine under watch, for people and for programs."""

from collections.abc import Sequence
from typing import Any

import msgspec
from rich.console import Console
from rich.text import Text

from kvroom.explain.now import Look
from kvroom.report.terminal import clean
from kvroom.units import show_seconds

BLOCKS = " ▁▂▃▄▅▆▇█"
SHOWN = 40
"""Moments in the line that shows the course."""


class Shown:
    """Moments as they come: one moving line on a terminal, a line for each news elsewhere."""

    def __init__(self, out: Console) -> None:
        self.out = out
        self.waits: list[float] = []
        self.status = out.status("") if out.is_terminal else None
        self.last = ""

    def __enter__(self) -> "Shown":
        if self.status is not None:
            self.status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.status is not None:
            self.status.stop()

    def moment(self, one: Look) -> None:
        """One more look."""
        self.waits = [*self.waits, one.waiting][-SHOWN:]
        line = told(one)
        if self.status is not None:
            self.status.update(Text(f"{line}  waiting {bars(self.waits)}"))
        if one.said and one.said != self.last:
            self.out.print(Text(clean(f"{show_seconds(one.at_s)}: {one.said}"), style="bold"))
        elif self.status is None and line != self.last:
            self.out.print(Text(f"{show_seconds(one.at_s)}: {line}"), soft_wrap=True)
        self.last = one.said or line


def told(one: Look) -> str:
    """``running 31, waiting 1, KV cache 97.6 %, 812 tok/s``."""
    parts = [f"running {one.running:.0f}", f"waiting {one.waiting:.0f}"]
    if one.kv_cache_usage is not None:
        parts.append(f"KV cache {one.kv_cache_usage:.1%}")
    if one.preempted:
        parts.append(f"preempted {one.preempted:.0f}")
    if one.tokens_per_s is not None:
        parts.append(f"{one.tokens_per_s:,.0f} tok/s")
    return ", ".join(parts)


def bars(values: Sequence[float]) -> str:
    """A bar for each value, as high as its share of the largest."""
    most = max(values, default=0.0) or 1.0
    return "".join(BLOCKS[round(value / most * (len(BLOCKS) - 1))] for value in values)


def watched_data(engine: str, moments: Sequence[Look], explanation: Any) -> dict[str, Any]:
    """All of a watch as plain values, for ``--json``."""
    usages = [one.kv_cache_usage for one in moments if one.kv_cache_usage is not None]
    counts = [one.preempted for one in moments if one.preempted is not None]
    speeds = [one.tokens_per_s for one in moments if one.tokens_per_s is not None]
    return {
        "engine": engine,
        "seconds": moments[-1].at_s if moments else 0.0,
        "waited": any(one.waiting for one in moments),
        "running_max": max((one.running for one in moments), default=None),
        "waiting_max": max((one.waiting for one in moments), default=None),
        "kv_cache_usage_max": max(usages, default=None),
        "preempted": counts[-1] - counts[0] if counts else None,
        "tokens_per_s_max": max(speeds, default=None),
        "said": list(dict.fromkeys(one.said for one in moments if one.said)),
        "moments": msgspec.to_builtins(list(moments)),
        "explanation": explanation,
    }
