"""How fast a large engine log is read, beside grep and beside trying every pattern on every line.

    python bench/logs.py [--mb 1024] [-o docs/reference/logs.md]

The log is vLLM's: a real start, then an access line for each request and a line of statistics for
every fifty of them. Each reader is a process of its own; its memory is the peak of that process.
"""

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from kvroom import __version__

START = Path(__file__).parent.parent / "tests" / "logs" / "vllm" / "0.31.0-cpu-bf16-20MiB.log"
ACCESS = b'INFO:     127.0.0.1:%d - "POST /v1/completions HTTP/1.1" 200 OK\n'
STATS = (
    b"(APIServer pid=21967) INFO 12-01 05:35:%02d [loggers.py:259] Engine 000: Avg prompt "
    b"throughput: 23998.2 tokens/s, Avg generation throughput: 18.1 tokens/s, Running: 10 reqs, "
    b"Waiting: 90 reqs, GPU KV cache usage: 19.3%%, Prefix cache hit rate: 0.0%%\n"
)

EVERY_LINE = """
import sys
from kvroom.engines.vllm.log import read_log
from kvroom.records import LogLine
count = 0
for number, line in enumerate(open(sys.argv[1], errors="replace"), 1):
    for _, pattern in read_log.patterns:
        count += pattern.search(line) is not None
print(count)
"""


def main() -> None:
    """Write a log, read it in each way, print the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--mb", type=int, default=1024)
    options.add_argument("-o", "--out", type=Path)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        large, small = Path(folder) / "large.log", Path(folder) / "small.log"
        write(large, given.mb << 20)
        write(small, 16 << 20)
        rows = [
            measured("kvroom explain --facts", [sys.executable, "-m", "kvroom", "explain",
                                                "--facts", str(large), "--engine", "vllm"], large),
            measured("grep -c 'KV cache usage'", ["grep", "-c", "KV cache usage", str(large)],
                     large),
            measured("every pattern on every line (16 MiB)",
                     [sys.executable, "-c", EVERY_LINE, str(small)], small),
        ]  # fmt: skip
    text = page(rows, given.mb)
    print(text)
    if given.out is not None:
        given.out.write_text(text)


def write(path: Path, size: int) -> None:
    """A log of about that many bytes."""
    with path.open("wb") as out:
        out.write(START.read_bytes())
        block = b"".join(
            ACCESS % (30_000 + n) + (STATS % (n % 60) if n % 50 == 0 else b"") for n in range(5000)
        )
        while out.tell() < size:
            out.write(block)


def measured(name: str, command: list[str], log: Path) -> tuple[str, float, float, float]:
    """Name, MB/s, seconds and MB of memory at its peak."""
    began = time.monotonic()
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(command, stdout=out)
        _, status, usage = os.wait4(process.pid, 0)
    seconds = time.monotonic() - began
    if status:
        sys.exit(f"{name} ended with {status}")
    return name, log.stat().st_size / 1e6 / seconds, seconds, usage.ru_maxrss / 1024


def page(rows: list[tuple[str, float, float, float]], mb: int) -> str:
    """The table in Markdown."""
    lines = [
        "# Reading logs\n",
        f"A vLLM log of {mb} MiB: a real start, then access lines with a line of statistics for",
        "every fifty. Each reader is a process of its own, its start included.\n",
        "| reader | MB/s | wall time | peak memory |",
        "|---|---:|---:|---:|",
    ]
    lines += [f"| {n} | {rate:.0f} | {s:.1f} s | {memory:.0f} MB |" for n, rate, s, memory in rows]
    machine = f"{platform.python_version()}, {len(os.sched_getaffinity(0))} cores"
    lines.append(f"\nkvroom {__version__}, Python {machine}, {datetime.now(UTC):%Y-%m-%d}.")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
