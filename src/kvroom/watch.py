"""An engine that runs, looked at as it runs: its gauges, its log, and what they mean."""

import contextlib
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from kvroom import engines
from kvroom.analyse.facts import Told
from kvroom.analyse.recognise import recognise
from kvroom.checkpoint.read import read_checkpoint
from kvroom.control import Control, api_key
from kvroom.engine import Engine
from kvroom.errors import EngineError, InputError
from kvroom.explain.case import Case, Load
from kvroom.explain.course import Course, State, take
from kvroom.explain.gather import Known, gather
from kvroom.explain.log import Log, read
from kvroom.explain.now import Look, now
from kvroom.explain.signatures import Hit
from kvroom.load.request import Address
from kvroom.loglines import log_lines, plain
from kvroom.records import LogLine, Source
from kvroom.sample import asked, read_gauges

MOST_NEW_BYTES = 1 << 22
"""Of what is added to a log between two looks."""
MISSES = 5
"""Looks in a row without an answer, after which the engine is taken to be gone."""


class Watch:
    """One engine under watch."""

    def __init__(self, url: str, known: Known, log: Path | None, key: str | None) -> None:
        """InputError if ``known`` does not name the engine and it cannot be told."""
        self.control = Control(url, key)
        self.log = _Tail(log) if log else None
        self.engine = engines.engine(known.engine) if known.engine else self._recognised(log)
        self.known = msgspec.structs.replace(known, engine=self.engine.name)
        self.course = Course()
        self.began_s = time.monotonic()
        self.before: Look | None = None
        self.tokens: tuple[float, float] | None = None
        self.misses, self.answered = 0, False

    def close(self) -> None:
        """Let go of the connection."""
        self.control.close()

    def _recognised(self, log: Path | None) -> Engine:
        """Whose gauges answer there, else whose log it is."""
        known = [engines.engine(name) for name in engines.names()]
        found = {one.name: len(self._gauges(one)) for one in known if one.gauges}
        best = max(found, key=found.__getitem__)
        if found[best]:
            return engines.engine(best)
        if log is not None:
            return engines.engine(recognise(log_lines(log), log.name))
        raise InputError(
            f"{self.control.url} tells no state that kvroom can read",
            "is the server running, and are its metrics switched on? Else give --log",
        )

    def _gauges(self, engine: Engine) -> dict[str, float]:
        if engine.gauges is None:
            return {}
        return read_gauges(asked(self.control.client, engine.gauges.path), engine.gauges.names)

    def moments(self, every_s: float) -> Iterator[Look]:
        """One look after the other; EngineError once the engine does not answer any more."""
        while True:
            if (seen := self._look()) is not None:
                yield seen
            time.sleep(every_s)

    def _look(self) -> Look | None:
        log = self.log.read(self.engine) if self.log else None
        gauges = self._gauges(self.engine)
        self.answered = self.answered or bool(gauges)
        if log is not None and not self.answered:
            gauges = _last_state(log) or gauges
        elif not gauges:
            self.misses += 1
            if self.misses >= MISSES:
                raise EngineError(f"{self.control.url} does not answer any more")
        if "running" not in gauges:
            return None
        self.misses = 0
        return self._moment(gauges, log)

    def _moment(self, gauges: dict[str, float], log: Log | None) -> Look:
        at_s = time.monotonic() - self.began_s
        moment = Look(
            at_s=round(at_s, 2),
            running=gauges["running"],
            waiting=gauges.get("waiting", 0.0),
            kv_cache_usage=gauges.get("kv_cache_usage"),
            preempted=gauges.get("preempted"),
            tokens_per_s=self._speed(gauges, at_s),
        )
        self._take(moment)
        case = gather(self.known, log, observed=self.course)
        said = now(moment, self.before, case)
        self.before = msgspec.structs.replace(moment, said=said)
        return self.before

    def _speed(self, gauges: dict[str, float], at_s: float) -> float | None:
        """From the counter of tokens, else as the log says."""
        total = gauges.get("generation_tokens")
        if total is None:
            return gauges.get("tokens_per_s")
        last, self.tokens = self.tokens, (at_s, total)
        return None if last is None or at_s <= last[0] else (total - last[1]) / (at_s - last[0])

    def _take(self, moment: Look) -> None:
        take(
            self.course,
            State(
                source=Source(self.control.url, self.course.states + 1),
                text=f"{moment.running:.0f} running, {moment.waiting:.0f} waiting",
                how="observed",
                running=moment.running,
                waiting=moment.waiting,
                kv_cache_usage=moment.kv_cache_usage,
            ),
        )

    def case(self) -> Case:
        """Everything known of the engine by now."""
        log = self.log.read(self.engine) if self.log else None
        return gather(self.known, log, observed=self.course if self.course.states else None)


def watching(url: str, given: Mapping[str, Any]) -> tuple[Watch, Callable[[Look], bool]]:
    """The watch of these options, and when it ends; InputError says which of them is wrong."""
    for_s = seconds(given["for_s"]) if given["for_s"] else None
    known = Known(
        engine=given["engine"] or "",
        load=Load(prompt=given["prompt"], output=given["output"], concurrency=given["concurrency"]),
        checkpoint=read_checkpoint(given["model"]) if given["model"] else None,
    )
    Address.of(url)
    watch = Watch(url, known, given["log"], api_key(given["api_key_env"]))

    def ends(moment: Look) -> bool:
        waited = given["until_waiting"] and moment.waiting > 0
        return bool(waited or (for_s is not None and moment.at_s >= for_s))

    return watch, ends


def seconds(text: str) -> float:
    """``60``, ``60s``, ``5m``, ``1h`` as seconds; InputError for anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip())
    if match is None or not float(match[1]):
        raise InputError(f"--for {text!r} is not a time", "such as 60s, 5m or 1h")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


def _last_state(log: Log) -> dict[str, float]:
    """What a log tells of engines that cannot be asked, such as TensorRT-LLM."""
    last = log.course.last
    if last is None:
        return {}
    told = {
        "running": last.running,
        "waiting": last.waiting,
        "kv_cache_usage": last.kv_cache_usage,
        "tokens_per_s": last.generation_tokens_per_s,
    }
    return {name: value for name, value in told.items() if value is not None}


class _Tail:
    """A log that grows: what was added since the last look, put to what was known."""

    def __init__(self, path: Path) -> None:
        self.path, self.place, self.line, self.rest = path, 0, 0, b""
        self.facts: dict[str, Told] = {}
        self.hits: dict[str, Hit] = {}
        self.course = Course()

    def read(self, engine: Engine) -> Log:
        """All that the log says by now; it starts anew when the file was cut."""
        for lines in self._added():
            new = read(engine, lines, self.path.name)
            self.facts.update(new.facts)
            for hit in new.hits:
                self.hits.setdefault(hit.signature.name, hit)
            for state in (new.course.most_waiting, new.course.most_running, new.course.last):
                take(self.course, state)
        return Log(
            file=self.path.name, facts=self.facts, course=self.course,
            hits=tuple(self.hits.values()),
        )  # fmt: skip

    def _added(self) -> Iterator[list[LogLine]]:
        with contextlib.suppress(OSError), self.path.open("rb") as file:
            size = file.seek(0, 2)
            if size < self.place:
                self.place, self.line, self.rest = 0, 0, b""
            file.seek(self.place)
            while data := file.read(MOST_NEW_BYTES):
                self.place += len(data)
                whole, newline, self.rest = (self.rest + data).rpartition(b"\n")
                self.rest = self.rest[-MOST_NEW_BYTES:]
                if newline:
                    texts = whole.split(b"\n")
                    first = self.line + 1
                    self.line += len(texts)
                    yield [LogLine(n, plain(t)) for n, t in enumerate(texts, first)]
