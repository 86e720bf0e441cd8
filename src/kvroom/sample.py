"""Looks at an engine from outside while it is measured: its own gauges, its memory, the device.

A thread of its own, a few requests a second at most, to an endpoint that disturbs nothing. Whatever
cannot be had is left out; a look never ends a measurement.
"""

import contextlib
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from kvroom.clock import now_ns
from kvroom.engine import Gauges
from kvroom.records import Sample

ANSWER_S = 1.0
MOST_BYTES = 4 << 20


@contextlib.contextmanager
def sampled(
    file: Path, every_s: float, gauges: Gauges | None, client: Any, pid: int | None
) -> Iterator[None]:
    """Samples into a file, a line each, until the block is left.

    ``client`` is an ``httpx.Client`` of the engine, ``pid`` the process whose tree it is, None for
    an endpoint of somebody else.
    """
    if not every_s:
        yield
        return
    stop = threading.Event()
    looker = threading.Thread(
        target=_look, args=(stop, file, every_s, gauges, client, pid), daemon=True
    )
    looker.start()
    try:
        yield
    finally:
        stop.set()
        looker.join()


def _look(
    stop: threading.Event,
    file: Path,
    every_s: float,
    gauges: Gauges | None,
    client: Any,
    pid: int | None,
) -> None:
    from kvroom.observe import device_samples, process_use

    with file.open("ab", buffering=0) as out, contextlib.suppress(OSError):
        while not stop.wait(every_s):
            at_ns = now_ns()
            memory, cpu_s = process_use(pid) if pid is not None else (None, None)
            sample = Sample(
                at_ns=at_ns,
                gauges=read_gauges(asked(client, gauges.path), gauges.names) if gauges else {},
                memory_bytes=memory,
                cpu_s=cpu_s,
                devices=device_samples(),
            )
            out.write(msgspec.json.encode(sample) + b"\n")


def asked(client: Any, path: str) -> str:
    """The text of an endpoint, bounded; empty where it does not answer."""
    import httpx

    data = b""
    with (
        contextlib.suppress(httpx.HTTPError),
        client.stream("GET", path, timeout=ANSWER_S) as answer,
    ):
        for chunk in answer.iter_bytes():
            data += chunk
            if len(data) > MOST_BYTES or not answer.is_success:
                return ""
    return data.decode(errors="replace")


def read_gauges(text: str, names: Mapping[str, str]) -> dict[str, float]:
    """Figures of a Prometheus text under our names; what cannot be read is left out."""
    from prometheus_client.parser import text_string_to_metric_families

    wanted = "".join(f"{line}\n" for line in text.splitlines() if line.startswith(tuple(names)))
    found: dict[str, float] = {}
    with contextlib.suppress(ValueError, KeyError, IndexError):
        for family in text_string_to_metric_families(wanted):
            for sample in family.samples:
                name = names.get(sample.name)
                if name is None:
                    continue
                before, value = found.get(name, 0.0), float(sample.value)
                found[name] = max(before, value) if name.endswith("usage") else before + value
    return found
