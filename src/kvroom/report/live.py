"""What is shown while a run goes on: one moving line on a terminal, plain lines elsewhere."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from kvroom.errors import KvroomError
from kvroom.report.terminal import clean
from kvroom.store import Run
from kvroom.units import show_seconds
from kvroom.workload import PlannedRound

if TYPE_CHECKING:
    from rich.status import Status

Key = tuple[str, int]


class Pace:
    """How long rounds take, so that the rest can be foretold."""

    def __init__(self, todo: Mapping[str, list[PlannedRound]]) -> None:
        self.todo = {name: list(rounds) for name, rounds in todo.items()}
        self.seconds: dict[Key, float] = {}

    def ended(self, contender: str, planned: PlannedRound, seconds: float) -> None:
        """A round took so long."""
        self.seconds[contender, planned.concurrency] = seconds
        self.todo[contender] = [r for r in self.todo[contender] if r.key != planned.key]

    def gave_up(self, contender: str) -> None:
        """Nothing more will come of a contender."""
        self.todo[contender] = []

    def left_s(self) -> float | None:
        """Seconds of load still to come, from like rounds; None before the first round ended."""
        if not self.seconds:
            return None
        rounds = [(name, r) for name, missing in self.todo.items() for r in missing]
        return sum(self._guess(name, r) for name, r in rounds)

    def _guess(self, contender: str, planned: PlannedRound) -> float:
        """The same cell; else the level at other contenders; else the nearest level measured."""
        known = self.seconds.get((contender, planned.concurrency))
        if known is not None:
            return known
        alike = [s for (_, level), s in self.seconds.items() if level == planned.concurrency]
        if alike:
            return sum(alike) / len(alike)
        level, seconds = min(
            ((level, s) for (_, level), s in self.seconds.items()),
            key=lambda pair: abs(pair[0] - planned.concurrency),
        )
        return seconds * max(1.0, planned.concurrency / level)


class Live:
    """The watcher of ``kvroom run``; writes to standard error."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.status: Status | None = None
        self.pace = Pace({})
        self.cell = ""
        self.tokens = 0

    def __enter__(self) -> "Live":
        if self.console.is_terminal:
            self.status = self.console.status("")
            self.status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.status is not None:
            self.status.stop()

    def began(self, run: Run, todo: dict[str, list[PlannedRound]]) -> None:
        """Say where the run is and how much is missing."""
        self.pace = Pace(todo)
        rounds = sum(len(missing) for missing in todo.values())
        self._line(f"run {run.path}: {rounds} rounds to measure")

    def says(self, contender: str, text: str) -> None:
        """One step outside of the rounds."""
        self._line(f"{contender}: {text}")
        self._now(f"{contender}: {text}")

    def round_began(self, contender: str, planned: PlannedRound) -> None:
        """Show the round from its first moment."""
        self.cell = f"{contender}: round {planned.number} at {planned.concurrency}"
        self.tokens = planned.output_tokens
        self.events_came(0)

    def events_came(self, events: int) -> None:
        """Show how far the round is."""
        left = self.pace.left_s()
        rest = f", about {show_seconds(left)} of load left" if left else ""
        self._now(f"{self.cell}: {min(events, self.tokens)} of {self.tokens} tokens{rest}")

    def round_ended(self, contender: str, planned: PlannedRound, seconds: float, ok: int) -> None:
        """One line a round."""
        self.pace.ended(contender, planned, seconds)
        asked = len(planned.requests)
        result = f"{planned.output_tokens / seconds:.0f} tok/s" if ok == asked else ""
        failed = f"{asked - ok} of {asked} requests failed" if ok < asked else ""
        self._line(f"{self.cell}: {show_seconds(seconds)}, {result or failed}")

    def failed(self, contender: str, error: KvroomError) -> None:
        """A contender is given up."""
        self.pace.gave_up(contender)
        self._line(f"{contender}: failed: {error}", style="red")

    def _line(self, text: str, style: str = "") -> None:
        stamp = time.strftime("%H:%M:%S")
        line = Text(f"{stamp} {clean(text)}", style=style)
        if self.console.is_terminal and not style:
            self.console.print(line, no_wrap=True, overflow="ellipsis")
        else:
            self.console.print(line, soft_wrap=True)

    def _now(self, text: str) -> None:
        if self.status is not None:
            self.status.update(Text(clean(text)))
