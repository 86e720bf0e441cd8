"""The report as data, for programs: ``kvroom report RUN --json``."""

from typing import Any

import msgspec

from kvroom.analyse.compare import rank, verdict
from kvroom.analyse.contender import HEADLINES, Measured, StartTold, measured
from kvroom.analyse.effective import compared
from kvroom.analyse.metrics import LevelMetrics
from kvroom.analyse.noise import noise
from kvroom.explain.whole import explain_run
from kvroom.report.reasons import run_data
from kvroom.store import Run

FORMAT = 1
"""Rises when a key changes its meaning or goes away."""


def data(run: Run) -> dict[str, Any]:
    """Everything the report says, as plain values; the keys are explained in docs/reference."""
    contenders = measured(run)
    floor = noise(contenders)
    levels = run.matchup.workload.concurrency
    value = {
        "format": FORMAT,
        "run": str(run.path),
        "name": run.info.name,
        "created": run.info.created,
        "kvroom": run.info.kvroom,
        "machine": run.info.machine,
        "workload": run.matchup.workload,
        "verdict": verdict(contenders, levels),
        "applied": run.applied(),
        "noise": floor,
        "ranking": [rank(contenders, level, floor) for level in levels],
        "settings": compared(contenders),
        "contenders": [_contender(one) for one in contenders],
        "explanation": run_data(explain_run(run, contenders)),
    }
    plain = msgspec.to_builtins(value)
    assert isinstance(plain, dict)
    return plain


def _contender(one: Measured) -> dict[str, Any]:
    start, ending = one.start, one.ending
    return {
        "name": one.contender.name,
        "engine": one.contender.engine,
        "version": start.version if start else None,
        "state": one.state,
        "reason": ending.reason if ending else "",
        "last_lines": ending.last_lines if ending else [],
        "warnings": ending.warnings if ending else [],
        "time_to_ready_s": start.ready_s if start else None,
        "start_phases": _phases(one.starts[-1]) if one.starts else [],
        "starts": [
            {
                "kind": start.kind,
                "time_to_ready_s": start.ready_s,
                "phases": _phases(start),
                "begin": start.begin,
            }
            for start in one.starts
        ],
        "start": start,
        "facts": {name: _fact(one.facts[name]) for name in HEADLINES if name in one.facts},
        "levels": [_level(level, one) for level in one.levels],
    }


def _phases(start: StartTold) -> list[dict[str, Any]]:
    return [
        {
            "name": phase.name,
            "seconds": phase.seconds,
            "source": str(phase.source) if phase.source else None,
        }
        for phase in start.phases
    ]


def _fact(fact: Any) -> dict[str, Any]:
    return {
        "value": fact.value,
        "unit": fact.unit,
        "source": str(fact.source),
        "at_s": fact.at_s,
    }


def _level(level: LevelMetrics, one: Measured) -> dict[str, Any]:
    first = level.first_round
    return {
        "concurrency": level.concurrency,
        "rounds": level.rounds,
        "completed": level.completed,
        "failed": level.failed,
        "failures": level.failures,
        "void": one.voids.get(level.concurrency),
        "output_throughput": level.output_throughput,
        "output_throughput_rounds": level.output_throughput_rounds,
        "request_throughput": level.request_throughput,
        "ttft_ms": level.ttft_ms,
        "ttft_from_sent_ms": level.ttft_from_sent_ms,
        "itl_ms": level.itl_ms,
        "tpot_ms": level.tpot_ms,
        "e2el_ms": level.e2el_ms,
        "decode_tokens_per_s": level.decode_tokens_per_s,
        "in_flight": first.flight,
        "client": {
            "send_late_ms_p99": first.send_late_ms,
            "read_late_ms_p99": first.read_late_ms,
            "events_per_read": first.events_per_read,
            "cpu_s": first.client_cpu_s,
            "clock": first.clocks,
            "tokens_by": first.tokens_by,
            "load_average": first.load_average,
        },
        "prompts_sha256": first.prompts_sha256,
        "live": one.live.get(level.concurrency),
    }
