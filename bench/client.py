"""Our load client beside others, against one server of known timing, in one run.

    python bench/client.py [--streams 32 256] [-o docs/reference/client.md]

For each client and number of streams: CPU per token (the whole process, less what it needs for a
single stream), the 99th percentile of time to first token beside the server's own, and the same for
the gaps between tokens. Peers that are not installed get an environment of their own.
"""

import argparse
import json
import platform
import subprocess
import sys
import urllib.request
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from kvroom.provide.environment import made_environment

HERE = Path(__file__).parent
FIRST_MS, STEP_MS, TOKENS = 50.0, 10.0, 256
PEERS = {"kvroom": None, "aiohttp": "aiohttp==3.14.5", "httpx": None}
ROUNDS = 3


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--streams", type=int, nargs="+", default=[32, 256])
    parser.add_argument("-o", "--out", type=Path)
    given = parser.parse_args()
    pythons = {name: python_of(requirement) for name, requirement in PEERS.items()}
    rows = [row(name, pythons[name], n) for n in given.streams for name in PEERS]
    page = PAGE.format(table=table(rows), versions=versions(pythons), **about())
    print(page)
    if given.out is not None:
        given.out.write_text(page)


def python_of(requirement: str | None) -> str:
    if requirement is None:
        return sys.executable
    return str(made_environment([requirement], {}, lambda text: print(text, file=sys.stderr)))


def row(name: str, python: str, streams: int) -> dict[str, Any]:
    """Medians over rounds; the start-up of the process is measured with a single stream."""
    idle = min(measure(name, python, 1)["cpu_s"] for _ in range(2))
    rounds = [measure(name, python, streams) for _ in range(ROUNDS)]
    tokens = streams * TOKENS
    return {
        "client": name,
        "streams": streams,
        "cpu_us": float(np.median([(r["cpu_s"] - idle) / tokens * 1e6 for r in rounds])),
        "ttft": pair(rounds, "ttft"),
        "itl": pair(rounds, "itl"),
        "itl_p50": float(np.median([np.percentile(r["itl"], 50) for r in rounds])),
    }


def pair(rounds: list[dict[str, Any]], key: str) -> tuple[float, float]:
    """99th percentile as the client has it, and as the server has it."""
    seen, true = (
        [float(np.percentile(r[name], 99)) for r in rounds] for name in (key, f"true_{key}")
    )
    return float(np.median(seen)), float(np.median(true))


def measure(name: str, python: str, streams: int) -> dict[str, Any]:
    command = [sys.executable, "-I", str(HERE / "clockwork.py"), str(FIRST_MS), str(STEP_MS),
               str(TOKENS)]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = server.stdout.readline().strip()
        done = subprocess.run(
            [python, str(HERE / "peers.py"), name, port, str(streams)],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/truth") as answer:
            truth = json.load(answer)
        server.kill()
    said = json.loads(done.stdout)
    return {
        "cpu_s": said["cpu_s"],
        "ttft": [arrivals[0] for arrivals in said["arrivals"]],
        "itl": np.concatenate([np.diff(arrivals) for arrivals in said["arrivals"]]),
        "true_ttft": [(request["sent"][0] - request["read"]) / 1e6 for request in truth],
        "true_itl": np.concatenate([np.diff(request["sent"]) / 1e6 for request in truth]),
    }


def table(rows: list[dict[str, Any]]) -> str:
    ours = {r["streams"]: r["cpu_us"] for r in rows if r["client"] == "kvroom"}
    lines = [
        "| streams | client | CPU µs/token | times ours | TTFT p99, seen / true ms | "
        "ITL p50 ms | ITL p99, seen / true ms |",
        "|---:|---|---:|---:|---:|---:|---:|",
    ]
    for r in rows:
        ratio = r["cpu_us"] / ours[r["streams"]]
        lines.append(
            f"| {r['streams']} | {r['client']} | {r['cpu_us']:.1f} | {ratio:.1f} | "
            f"{r['ttft'][0]:.1f} / {r['ttft'][1]:.1f} | {r['itl_p50']:.2f} | "
            f"{r['itl'][0]:.1f} / {r['itl'][1]:.1f} |"
        )
    return "\n".join(lines)


def versions(pythons: dict[str, str]) -> str:
    code = "import sys, importlib.metadata as m; print(m.version(sys.argv[1]))"
    found = [
        subprocess.run([python, "-c", code, name], capture_output=True, text=True, check=True)
        for name, python in pythons.items()
    ]
    return ", ".join(f"{n} {d.stdout.strip()}" for n, d in zip(pythons, found, strict=True))


def about() -> dict[str, str]:
    return {
        "date": date.today().isoformat(),  # noqa: DTZ011
        "python": platform.python_version(),
        "kvroom": metadata.version("kvroom"),
    }


PAGE = """\
# What our client costs, and how exact it is

Made by `make bench` on {date}, Python {python}; {versions}. One server of known timing and one
client at a time on a machine of two cores: the first token {first_ms:.0f} ms after the request was
read, then one every {step_ms:.0f} ms, {tokens} tokens a stream, all streams released at once. Each
figure is the median of {rounds} rounds. CPU is that of the client's process, less a run with a
single stream, so start-up does not count; parsing does.

{table}

*Seen* is what the client reports, *true* what the server noted just before its sends. httpx and
aiohttp are what most load testers are built on; here they do nothing but read lines and decode each
event's JSON.
""".replace("{first_ms:.0f}", f"{FIRST_MS:.0f}").replace("{step_ms:.0f}", f"{STEP_MS:.0f}")
PAGE = PAGE.replace("{tokens}", str(TOKENS)).replace("{rounds}", str(ROUNDS))

if __name__ == "__main__":
    main()
