"""A Run -> one case for each contender, at the highest level of concurrency that was measured."""

from collections.abc import Sequence

from kvroom import engines
from kvroom.analyse.contender import Measured
from kvroom.analyse.live import Window
from kvroom.analyse.noise import Noise, noise
from kvroom.checkpoint.read import Checkpoint
from kvroom.explain.case import Case, Load
from kvroom.explain.course import Course, sampled
from kvroom.explain.gather import Known, gather
from kvroom.explain.log import Log, read
from kvroom.explain.signatures import marks
from kvroom.matchup import Contender
from kvroom.options import Options
from kvroom.store import Run, StartFiles


def cases(
    run: Run, contenders: Sequence[Measured], checkpoint: Checkpoint | None = None
) -> list[Case]:
    """The cases of a run, in the order of its matchup.

    ``checkpoint`` is the model's shape where the run does not hold it: of endpoints that ran before
    kvroom came, and of runs of older releases.
    """
    floor = noise(contenders)
    return [_case(run, one, checkpoint, floor) for one in contenders]


def _case(run: Run, one: Measured, checkpoint: Checkpoint | None, floor: Noise) -> Case:
    contender, starts = one.contender, run.starts(one.contender.name)
    levels = [level.concurrency for level in one.levels if level.completed]
    level = max(levels, default=None)
    return gather(
        _known(run, one, checkpoint, level),
        _log(run, contender, starts[-1]) if starts else None,
        failed=one.state == "failed" and not levels,
        measured=one,
        level=level,
        noise=floor,
        load_per_core=_load(run),
        observed=_observed(run, contender, starts[-1], level) if starts and level else None,
    )


def _known(run: Run, one: Measured, checkpoint: Checkpoint | None, level: int | None) -> Known:
    contender, start, work = one.contender, one.start, run.matchup.workload
    return Known(
        engine=contender.engine,
        version=(start.version if start else None) or contender.version or "",
        settings=run.matchup.settings_of(contender),
        options=Options(
            arguments=tuple(contender.words), config=contender.config, env=contender.env
        ),
        load=Load(
            prompt=work.prompt_tokens,
            output=work.output_tokens,
            concurrency=level or max(work.concurrency),
        ),
        checkpoint=run.checkpoint(contender.name) or checkpoint,
        on_cpu=_on_cpu(run, one),
    )


def _load(run: Run) -> float | None:
    average, cores = run.info.machine.get("load_average"), run.info.machine.get("cores")
    return average / cores if isinstance(average, int | float) and cores else None


def _on_cpu(run: Run, one: Measured) -> bool:
    """A release for processors, or a machine on which no card was seen."""
    if one.start is not None and "cpu" in (one.start.version or ""):
        return True
    looked = [sample for files in run.starts(one.contender.name) for sample in run.samples(files)]
    return bool(looked) and not any(sample.devices for sample in looked)


def _log(run: Run, contender: Contender, files: StartFiles) -> Log:
    engine = engines.engine(contender.engine)
    lines = run.log_lines(files, (*engine.log_marks, *marks(engine.name)))
    return read(engine, lines, f"{contender.name}/{files.log.name}")


def _observed(run: Run, contender: Contender, files: StartFiles, level: int) -> Course | None:
    """What the gauges showed while this level was measured."""
    windows = [
        Window.of(one) for one in run.rounds(contender.name) if one.info.concurrency == level
    ]
    within = (
        (number, sample)
        for number, sample in enumerate(run.samples(files), start=1)
        if any(window.holds(sample) for window in windows)
    )
    return sampled(within, f"{contender.name}/{files.samples.name}")
