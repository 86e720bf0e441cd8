"""The report as values, before it has a shape."""

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from kvroom.analyse.compare import NOISE, rank, verdict
from kvroom.analyse.contender import Measured, measured
from kvroom.store import Run
from kvroom.units import show_bytes, show_seconds

Mark = Literal["", "best", "alike", "bad"]


class Cell(msgspec.Struct, frozen=True):
    """A cell of the table and how it stands among its column."""

    text: str
    mark: Mark = ""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was not measured, and why."""

    contender: str
    what: str
    hint: str = ""
    lines: tuple[str, ...] = ()


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """What a reader is told, in the order a reader asks."""

    title: str
    verdict: str
    columns: list[str]
    rows: list[list[Cell]]
    failures: list[Failure]
    notes: list[str]
    run_path: str


def document(run: Run) -> Document:
    """The report of a run."""
    contenders = measured(run)
    levels = run.matchup.workload.concurrency
    return Document(
        title=run.info.name,
        verdict=verdict(contenders, levels),
        columns=_columns(levels),
        rows=_rows(contenders, levels),
        failures=_failures(contenders),
        notes=_notes(run, contenders),
        run_path=str(run.path),
    )


def _columns(levels: Sequence[int]) -> list[str]:
    few = min(levels)
    return [
        "contender",
        *(f"tok/s at {level}" for level in levels),
        f"TTFT at {few}",
        f"decode at {few}",
        "KV room",
        "ready",
    ]


def _rows(contenders: Sequence[Measured], levels: Sequence[int]) -> list[list[Cell]]:
    few = min(levels)
    columns = [
        [Cell(one.contender.name) for one in contenders],
        *(_throughputs(contenders, level) for level in levels),
        _column(contenders, lambda one: _ttft_ms(one, few), lambda ms: f"{ms:.0f} ms", least=True),
        _column(contenders, lambda one: _decode(one, few), lambda speed: f"{speed:.1f} tok/s"),
        _column(contenders, _kv_tokens, lambda tokens: f"{tokens:,.0f} tokens"),
        _column(contenders, _ready_s, show_seconds, least=True),
    ]
    return [list(row) for row in zip(*columns, strict=True)]


def _throughputs(contenders: Sequence[Measured], level: int) -> list[Cell]:
    ranked = rank(contenders, level)
    marks: dict[str, Mark] = {}
    if len(ranked.order) > 1:
        marks = dict.fromkeys(ranked.alike, "alike")
        marks[ranked.order[0]] = "alike" if ranked.alike else "best"
    return [_throughput(one, level, marks.get(one.contender.name, "")) for one in contenders]


def _throughput(one: Measured, level: int, mark: Mark) -> Cell:
    metrics = one.level(level)
    if metrics is None:
        return Cell("-")
    if metrics.failed:
        return Cell(f"{metrics.failed} of {metrics.failed + metrics.completed} failed", "bad")
    if level in one.voids:
        return Cell("void", "bad")
    spread = metrics.output_throughput_rounds
    assert spread is not None
    half = (spread.high - spread.low) / 2 / spread.mean
    return Cell(f"{spread.mean:.0f}" + (f" ±{half:.0%}" if half > NOISE / 2 else ""), mark)


def _column(
    contenders: Sequence[Measured],
    value: Callable[[Measured], float | None],
    show: Callable[[float], str],
    *,
    least: bool = False,
) -> list[Cell]:
    """One figure per contender; within noise of the best counts as like the best."""
    values = [value(one) for one in contenders]
    known = [v for v in values if v is not None]
    if not known:
        return [Cell("-") for _ in values]
    best = min(known) if least else max(known)
    near = [v for v in known if max(v, best) <= (1 + NOISE) * min(v, best)]

    def mark(v: float) -> Mark:
        if len(known) < 2 or v not in near:
            return ""
        return "best" if len(near) == 1 else "alike"

    return [Cell("-") if v is None else Cell(show(v), mark(v)) for v in values]


def _ttft_ms(one: Measured, level: int) -> float | None:
    metrics = one.level(level)
    return metrics.ttft_ms.p50 if metrics and metrics.ttft_ms else None


def _decode(one: Measured, level: int) -> float | None:
    metrics = one.level(level)
    return metrics.decode_tokens_per_s.p50 if metrics and metrics.decode_tokens_per_s else None


def _kv_tokens(one: Measured) -> float | None:
    fact = one.facts.get("kv_tokens")
    return float(fact.value) if fact else None


def _ready_s(one: Measured) -> float | None:
    return one.start.ready_s if one.start else None


def _failures(contenders: Sequence[Measured]) -> list[Failure]:
    failures = []
    for one in contenders:
        name = one.contender.name
        if one.state == "failed" and one.ending is not None:
            lines = tuple(one.ending.last_lines)
            reason = f"failed: {one.ending.reason}"
            failures.append(Failure(contender=name, what=reason, hint=one.ending.hint, lines=lines))
        elif one.state != "measured":
            failures.append(Failure(contender=name, what=one.state))
        for level in one.levels:
            for reason, count in level.failures.items():
                what = f"at {level.concurrency}: {count} requests failed: {reason}"
                failures.append(Failure(contender=name, what=what))
        for void_level, why in one.voids.items():
            failures.append(Failure(contender=name, what=f"at {void_level}: void: {why}"))
    return failures


def _notes(run: Run, contenders: Sequence[Measured]) -> list[str]:
    work = run.matchup.workload
    notes = [
        "* best, = not told apart from the best: the rounds overlap or the means lie within "
        f"{NOISE:.0%}, the prior for noise.",
        f"Load: waves of equal requests, {work.prompt_tokens} prompt and {work.output_tokens} "
        f"output tokens each, {_rounds_text(run)}; seed {work.seed}. {_same_load(contenders)}",
        "tok/s: mean over rounds of all output tokens over the time from due to the last token. "
        "TTFT: due to first token, median. decode: tokens per second of one stream after its first "
        "token, median. ready: from process start to the ready probe.",
        *(_contender_note(one) for one in contenders if one.start is not None),
        _machine_note(run),
    ]
    return [note for note in notes if note]


def _rounds_text(run: Run) -> str:
    work = run.matchup.workload
    counts = {work.rounds_at(level) for level in work.concurrency}
    if len(counts) == 1:
        return f"{counts.pop()} rounds a level"
    return ", ".join(f"{work.rounds_at(level)} rounds at {level}" for level in work.concurrency)


def _same_load(contenders: Sequence[Measured]) -> str:
    """Whether all contenders got the same prompts, by the fingerprints of their first rounds."""
    prints: dict[int, set[str]] = {}
    for one in contenders:
        for level in one.levels:
            prints.setdefault(level.concurrency, set()).add(level.first_round.prompts_sha256)
    if not prints:
        return ""
    if all(len(found) == 1 for found in prints.values()):
        return "All contenders got the same prompts."
    return "The contenders got prompts of equal length but not the same tokens."


def _contender_note(one: Measured) -> str:
    assert one.start is not None
    parts = [f"{one.contender.name}: {one.contender.engine} {one.start.version or ''}".rstrip()]
    room = one.facts.get("kv_tokens")
    if room is not None:
        size = one.facts.get("kv_bytes")
        held = f" in {show_bytes(float(size.value))}" if size else ""
        parts.append(f"KV room {float(room.value):,.0f} tokens{held} as logged ({room.source})")
    parts += [text for text in (one.start.disclosure, one.start.model_note) if text]
    if not one.start.length_forced:
        parts.append("output length not forced")
    parts += one.ending.warnings if one.ending else []
    return "; ".join(parts) + "."


def _machine_note(run: Run) -> str:
    machine = run.info.machine
    memory = show_bytes(machine["memory_bytes"])
    return (
        f"Machine: {machine['cpu']}, {machine['cores']} cores, {memory}, load average "
        f"{machine['load_average']} at the start; {run.info.created}; kvroom {run.info.kvroom}."
    )
