"""One client driving one wave, as a process of its own: ``python peers.py NAME PORT STREAMS``.

Prints JSON: CPU seconds of the whole process, and for each request its time to first token and the
gaps between its tokens in ms, as that client sees them. Every peer decodes each event's JSON, as
load testers do; ours does so after the round.
"""

import asyncio
import json
import resource
import sys
import time
from typing import Any

BODY = {"model": "m", "prompt": [1, 2, 3], "max_tokens": 256, "stream": True}


def kvroom(port: int, streams: int) -> list[list[float]]:
    from kvroom.load.drive import Outgoing, Patience, drive
    from kvroom.load.record import record
    from kvroom.load.request import Address, encode
    from kvroom.workload import PlannedRequest

    address = Address.of(f"http://127.0.0.1:{port}")
    data = encode(address, "/v1/completions", BODY, None)
    outgoing = [Outgoing(due_ns=0, data=data, answer_bytes=100_000)] * streams
    patience = Patience(first_token_s=60, stall_s=60)
    raw = drive(address.target, outgoing, patience, lambda *_: None)
    planned = PlannedRequest(ordinal=0, due_ns=0, prompt_tokens=3, output_tokens=TOKENS)
    records = [record(planned, exchange, length_forced=True) for exchange in raw.exchanges]
    assert all(r.outcome == "completed" for r in records), records[0].reason
    return [[(at - (r.sent_ns or 0)) / 1e6 for at in r.event_ns] for r in records]


def note(line: bytes | str, began: int, arrivals: list[float]) -> None:
    text = line.decode() if isinstance(line, bytes) else line
    if not text.startswith("data: {"):
        return
    at = (time.perf_counter_ns() - began) / 1e6
    if json.loads(text[6:])["choices"]:
        arrivals.append(at)


def httpx(port: int, streams: int) -> list[list[float]]:
    import httpx

    async def one(client: httpx.AsyncClient) -> list[float]:
        arrivals: list[float] = []
        began = time.perf_counter_ns()
        async with client.stream("POST", "/v1/completions", json=BODY) as answer:
            async for line in answer.aiter_lines():
                note(line, began, arrivals)
        return arrivals

    async def wave() -> list[list[float]]:
        limits = httpx.Limits(max_connections=streams)
        url = f"http://127.0.0.1:{port}"
        async with httpx.AsyncClient(base_url=url, limits=limits, timeout=60) as client:
            return await asyncio.gather(*(one(client) for _ in range(streams)))

    return asyncio.run(wave())


def aiohttp(port: int, streams: int) -> list[list[float]]:
    import aiohttp

    async def one(session: Any) -> list[float]:
        arrivals: list[float] = []
        began = time.perf_counter_ns()
        url = f"http://127.0.0.1:{port}/v1/completions"
        async with session.post(url, json=BODY) as answer:
            async for line in answer.content:
                note(line, began, arrivals)
        return arrivals

    async def wave() -> list[list[float]]:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as session:
            return await asyncio.gather(*(one(session) for _ in range(streams)))

    return asyncio.run(wave())


TOKENS = 256
PEERS = {"kvroom": kvroom, "httpx": httpx, "aiohttp": aiohttp}

if __name__ == "__main__":
    name, port, streams = sys.argv[1:]
    peer = PEERS[name]
    arrivals = peer(int(port), int(streams))
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({"cpu_s": used.ru_utime + used.ru_stime, "arrivals": arrivals}))
