"""Everything measured and logged about one contender of a run."""

import itertools
from collections.abc import Iterator, Sequence

import msgspec

from kvroom import engines
from kvroom.analyse.audit import void_reason
from kvroom.analyse.begin import Begin, begin
from kvroom.analyse.effective import Effective, effective
from kvroom.analyse.live import Live, Window, from_log, live
from kvroom.analyse.metrics import LevelMetrics, RoundMetrics, level_metrics, round_metrics
from kvroom.analyse.phases import Phase, phases
from kvroom.matchup import Contender
from kvroom.records import Fact, Sample
from kvroom.store import Ending, Round, Run, Start

HEADLINES = (
    "kv_tokens",
    "kv_bytes",
    "kv_blocks",
    "kv_block_tokens",
    "max_concurrency",
    "slots",
    "weights_bytes",
    "version",
    "ready",
    "error",
)
"""Facts that a report tells of every engine; of others it shows what it needs."""


class StartTold(msgspec.Struct, frozen=True, kw_only=True):
    """One start: how long it took, and where the time went."""

    kind: str
    """``first``, ``warm``, or nothing where it was not made on purpose."""
    ready_s: float
    phases: list[Phase]
    begin: Begin | None
    """The first requests after it."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One contender: what was asked, what it said, what was measured."""

    contender: Contender
    state: str
    """``measured``, ``failed``, ``interrupted``, ``unfinished`` or ``not started``."""
    start: Start | None
    ending: Ending | None
    facts: dict[str, Fact]
    """The last fact of each name."""
    levels: list[LevelMetrics]
    voids: dict[int, str]
    """Levels whose rounds cannot be believed, and why."""
    settings: dict[str, Effective] = {}
    """Which were in effect, as far as anybody says."""
    starts: list[StartTold] = []
    """Every start that got ready, in order; the last is the one that was measured."""
    live: dict[int, Live] = {}
    """By level, what the engine's own gauges and its processes showed meanwhile."""

    def level(self, concurrency: int) -> LevelMetrics | None:
        """The level, if any of its rounds was measured."""
        return next((m for m in self.levels if m.concurrency == concurrency), None)

    def rankable(self, concurrency: int) -> bool:
        """Whether the level may be compared: measured, all completed, none void."""
        level = self.level(concurrency)
        return level is not None and not level.failed and concurrency not in self.voids


def measured(run: Run) -> list[Measured]:
    """All contenders of a run, in the order of its matchup."""
    return [_measured(run, contender) for contender in run.matchup.contenders]


def _measured(run: Run, contender: Contender) -> Measured:
    stored, said = run.rounds(contender.name), facts(run, contender)
    start = run.start(contender.name)
    version = start.version if start else None
    rounds = [round_metrics(one) for one in stored]
    by_level = itertools.groupby(rounds, key=lambda one: one.concurrency)
    grouped = {concurrency: list(group) for concurrency, group in by_level}
    return Measured(
        contender=contender,
        state=_state(run, contender.name, len(rounds)),
        start=start,
        ending=run.ending(contender.name),
        facts=said,
        settings=effective(contender, run.matchup.settings_of(contender), said, version),
        levels=[level_metrics(group) for group in grouped.values()],
        voids={level: why for level, group in grouped.items() if (why := _void(group))},
        starts=list(_starts(run, contender, stored)),
        live=live(_samples(run, contender), [Window.of(one) for one in stored]),
    )


def _starts(run: Run, contender: Contender, rounds: Sequence[Round]) -> Iterator[StartTold]:
    ends = engines.engine(contender.engine).phases
    for files in run.starts(contender.name):
        start = run.read_start(files)
        if start.ready_s is not None:
            source = f"{contender.name}/{files.log.name}"
            yield StartTold(
                kind=start.kind,
                ready_s=start.ready_s,
                phases=phases(run.log_lines(files), source, ends, start.ready_s),
                begin=begin(run.warmup(files), rounds),
            )


def _samples(run: Run, contender: Contender) -> list[Sample]:
    """What was seen from outside; of an engine without gauges, also what its log says."""
    found = [sample for files in run.starts(contender.name) for sample in run.samples(files)]
    if any(sample.gauges for sample in found):
        return found
    engine = engines.engine(contender.engine)
    for files in run.starts(contender.name):
        if (started_ns := run.read_start(files).started_ns) is not None:
            lines = run.log_lines(files, engine.log_marks)
            found += from_log(engine.read_log(lines, files.log.name), started_ns)
    return sorted(found, key=lambda sample: sample.at_ns)


def _void(rounds: list[RoundMetrics]) -> str | None:
    return next((why for one in rounds if (why := void_reason(one))), None)


def _state(run: Run, name: str, rounds: int) -> str:
    workload = run.matchup.workload
    asked = sum(workload.rounds_at(level) for level in workload.concurrency)
    ending = run.ending(name)
    if rounds >= asked:
        return "measured"
    if ending is not None and ending.state != "measured":
        return ending.state
    return "unfinished" if run.start(name) else "not started"


def facts(run: Run, contender: Contender) -> dict[str, Fact]:
    """The last fact of each name of the contender's last launch, read from its log now."""
    starts = run.starts(contender.name)
    if not starts:
        return {}
    files = starts[-1]
    source = f"{contender.name}/{files.log.name}"
    engine = engines.engine(contender.engine)
    lines = run.log_lines(files, engine.log_marks)
    return {fact.name: fact for fact in engine.read_log(lines, source)}
