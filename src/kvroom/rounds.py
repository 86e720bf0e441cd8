"""The conductor: one contender after the other, warmed up, measured round by round, put away."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from kvroom import workload
from kvroom.errors import EngineError, KvroomError
from kvroom.load.drive import Patience, Progress, RawRound
from kvroom.load.record import record
from kvroom.load.worker import Loader, loader
from kvroom.matchup import Matchup
from kvroom.observe import describe_machine, load_average
from kvroom.opening import opened
from kvroom.prepare import Prepared, prepare
from kvroom.records import RequestRecord, RoundInfo
from kvroom.session import Session
from kvroom.store import Ending, Run, new_run_path
from kvroom.units import NS_PER_S
from kvroom.workload import PlannedRound


class Watcher(Protocol):
    """Whoever wants to see a run go on."""

    def began(self, run: Run, todo: dict[str, list[PlannedRound]]) -> None:
        """The run starts; these rounds are missing for each contender."""

    def says(self, contender: str, text: str) -> None:
        """Something outside of the rounds happens."""

    def round_began(self, contender: str, planned: PlannedRound) -> None:
        """A round's requests are about to be sent."""

    def events_came(self, events: int) -> None:
        """So many events of the current round are in."""

    def round_ended(self, contender: str, planned: PlannedRound, seconds: float, ok: int) -> None:
        """A round is stored; so many of its requests were completed."""

    def failed(self, contender: str, error: KvroomError) -> None:
        """A contender is given up; the next one comes."""


def start_run(matchup: Matchup, source: Path, path: Path | None, text: bytes | None = None) -> Run:
    """A new run folder for a matchup whose contenders all can be started; ``text`` as for a Run."""
    prepare(matchup, source, source.parent.resolve())
    folder = path or new_run_path(Path("runs"), matchup.name)
    return Run.create(folder, source, matchup, describe_machine(), text)


def conduct(run: Run, watcher: Watcher) -> None:
    """Measure what a run misses. A contender that fails is recorded; the others still run."""
    contenders = prepare(run.matchup, run.path / "matchup.yaml", Path(run.info.matchup_folder))
    with run.locked():
        todo = {p.contender.name: missing(run, p.contender.name) for p in contenders}
        watcher.began(run, todo)
        with loader() as load:
            for prepared in contenders:
                if todo[prepared.contender.name]:
                    _contend(run, prepared, load, watcher)


def missing(run: Run, contender: str) -> list[PlannedRound]:
    """The rounds that are not stored yet."""
    planned = workload.waves(run.matchup.workload)
    return [r for r in planned if not run.round_file(contender, r.key).exists()]


def _contend(run: Run, prepared: Prepared, load: Loader, watcher: Watcher) -> None:
    name = prepared.contender.name
    warnings: list[str] = []
    try:
        for kind, measured in _starts(run, prepared):
            warnings += _once(run, prepared, kind, measured, load, watcher)
    except KvroomError as error:
        lines = list(error.last_lines) if isinstance(error, EngineError) else []
        run.write_ending(
            name,
            Ending(
                state="failed",
                reason=str(error),
                hint=error.hint,
                last_lines=lines,
                warnings=warnings,
            ),
        )
        watcher.failed(name, error)
    except KeyboardInterrupt:
        run.write_ending(name, Ending(state="interrupted", reason="stopped by the user"))
        raise
    else:
        run.write_ending(name, Ending(state="measured", warnings=warnings))


def _starts(run: Run, prepared: Prepared) -> list[tuple[str, bool]]:
    """The starts to make, and whether rounds are measured in each: only in the last one.

    When a run goes on, a start that was timed on purpose is not timed again.
    """
    name = prepared.contender.name
    kinds = prepared.contender.starts or ("",)
    made = [run.read_start(files) for files in run.starts(name)]
    timed = {start.kind for start in made if start.ready_s is not None}
    before = [(kind, False) for kind in kinds[:-1] if kind not in timed]
    last = "warm" if kinds[-1] in timed and kinds[-1] else kinds[-1]
    return [*before, (last, True)]


def _once(
    run: Run, prepared: Prepared, kind: str, measured: bool, load: Loader, watcher: Watcher
) -> list[str]:
    """One launch, from its start to its end; what a reader should know of it."""
    name = prepared.contender.name
    told = [one.what for one in prepared.complaints]
    for text in told:
        watcher.says(name, text)
    with opened(run, prepared, kind, lambda text: watcher.says(name, text)) as (session, warnings):
        _warm_up(run, session, load, watcher)
        for planned in missing(run, name) if measured else []:
            _measure(run, session, planned, load, watcher)
        watcher.says(name, "ending")
    return [*told, *warnings]


def _warm_up(run: Run, session: Session, load: Loader, watcher: Watcher) -> None:
    """Send requests that are thrown away; if they fail, so would all others."""
    planned = workload.warmup(run.matchup.workload)
    if not planned.requests:
        return
    watcher.says(session.prepared.contender.name, "warming up")
    info, records = _drive(run, session, planned, load, lambda events, answers: None)
    run.write_warmup(session.files, info, records)
    failed = next((r for r in records if r.outcome != "completed"), None)
    if failed is not None:
        session.check_death()
        raise EngineError(f"the warm-up request failed: {failed.reason}")


def _measure(
    run: Run, session: Session, planned: PlannedRound, load: Loader, watcher: Watcher
) -> None:
    name = session.prepared.contender.name
    watcher.round_began(name, planned)
    info, records = _drive(
        run, session, planned, load, lambda events, answers: watcher.events_came(events)
    )
    try:
        _check_alive(session, records)
    except EngineError:
        run.write_round(name, f"{planned.key}.failed", info, records)
        raise
    run.write_round(name, planned.key, info, records)
    ended = max(r.ended_ns for r in records)
    completed = sum(r.outcome == "completed" for r in records)
    watcher.round_ended(name, planned, ended / NS_PER_S, completed)


def _drive(
    run: Run, session: Session, planned: PlannedRound, load: Loader, progress: Progress
) -> tuple[RoundInfo, list[RequestRecord]]:
    matchup = run.matchup
    outgoing, prompts = session.requests(planned, matchup.workload.seed)
    patience = Patience(
        first_token_s=matchup.timeouts.first_token_s, stall_s=matchup.timeouts.stall_s
    )
    raw, cpu_s = load.drive(session.address.target, outgoing, patience, progress)
    records = [
        record(request, exchange, length_forced=session.length_forced)
        for request, exchange in zip(planned.requests, raw.exchanges, strict=True)
    ]
    return _info(planned, raw, prompts, cpu_s), records


def _info(planned: PlannedRound, raw: RawRound, prompts: str, cpu_s: float) -> RoundInfo:
    return RoundInfo(
        concurrency=planned.concurrency,
        number=planned.number,
        started_ns=raw.started_ns,
        started_wall_s=raw.started_wall_s,
        prompts_sha256=prompts,
        load_average=load_average(),
        client_cpu_s=cpu_s,
    )


def _check_alive(session: Session, records: Sequence[RequestRecord]) -> None:
    """EngineError if the engine died in this round or answers nobody any more."""
    broken = next((r for r in records if r.outcome != "completed"), None)
    if broken is None:
        return
    try:
        session.check_death()
    except EngineError as error:
        what = f"{error}; requests failed with {broken.outcome}: {broken.reason}"
        raise EngineError(what, error.hint, error.last_lines) from None
    if all(r.outcome == "stalled" for r in records):
        raise EngineError(f"the engine hangs: all {len(records)} requests were {records[0].reason}")
    if all(r.outcome == "refused" for r in records):
        raise EngineError(f"the engine takes no requests any more: {records[0].reason}")
