"""What the numbers mean, where they come from, and what they do not tell."""

from collections.abc import Iterator, Sequence

from kvroom.analyse.contender import Measured, StartTold
from kvroom.analyse.noise import BETWEEN_STARTS, noise
from kvroom.store import Run
from kvroom.units import show_bytes

LEAST_SAVED = 0.02
"""Phases that were spared less than this share of a start are not named."""


def notes(run: Run, contenders: Sequence[Measured]) -> list[str]:
    """The notes below the tables, one sentence or two each."""
    started = [one for one in contenders if one.start is not None]
    found = [
        _noise(contenders),
        "tok/s is the mean over rounds of all output tokens over the time from due to the last "
        "token; TTFT (median) counts from due; decode is one stream's tokens per second after its "
        "first; ready counts from process start to the answered probe; streaming at once is how "
        "many requests had their first token and not yet their last.",
        _load(run, contenders),
        *_rooms(started),
        _live(run, started),
        *_begins(started),
        *_once(text for one in started for text in _remarks(one)),
        _client(contenders),
        _machine(run),
    ]
    return [note for note in found if note]


def _noise(contenders: Sequence[Measured]) -> str:
    floor = noise(contenders)
    repeats = f"{floor.scatter:.1%} over {floor.rounds} rounds" if floor.rounds else "assumed"
    return (
        f"* best; = not told apart from the best: rounds overlap, or figures differ by no more "
        f"than {floor.limit:.0%}, which is {BETWEEN_STARTS:.0%} between starts (a prior) and what "
        f"rounds of this run scatter ({repeats})."
    )


def _load(run: Run, contenders: Sequence[Measured]) -> str:
    work = run.matchup.workload
    rounds = {work.rounds_at(level) for level in work.concurrency}
    count = str(rounds.pop()) if len(rounds) == 1 else f"{min(rounds)} to {max(rounds)}"
    return (
        f"Load: waves of equal requests, {work.prompt_tokens} prompt and {work.output_tokens} "
        f"output tokens each, {count} rounds a level, seed {work.seed}. {_same_load(contenders)}"
    )


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
    return "The contenders got prompts of equal length, not the same tokens."


def _rooms(started: Sequence[Measured]) -> list[str]:
    """KV room as each engine logged it."""
    rooms = []
    for one in started:
        tokens, size = one.facts.get("kv_tokens"), one.facts.get("kv_bytes")
        if tokens is not None:
            held = f" in {show_bytes(float(size.value))}" if size else ""
            rooms.append(f"{float(tokens.value):,.0f}{held} ({tokens.source})")
    return [f"KV room in tokens, as logged: {'; '.join(rooms)}."] if rooms else []


def _begins(started: Sequence[Measured]) -> Iterator[str]:
    """What the first requests after a start met, and what filled caches spared it."""
    told = [
        f"{one.contender.name} {begin.first_token_ms:,.0f} ms"
        + (f" (later {usual:,.0f})" if (usual := begin.usual_first_token_ms) is not None else "")
        + (f", {begin.slow_s:.1f} s until its speed was steady" if begin.slow_s else "")
        for one in started
        if one.starts and (begin := one.starts[-1].begin)
    ]
    if told:
        yield f"First token of the first request after the start: {'; '.join(told)}."
    for one in started:
        kinds = {start.kind: start for start in one.starts}
        if "first" in kinds and "warm" in kinds:
            yield f"{one.contender.name} {_spared(kinds['first'], kinds['warm'])}"


def _spared(first: StartTold, warm: StartTold) -> str:
    """What filled caches were worth, and in which phases."""
    before, after = ({p.name: p.seconds for p in start.phases} for start in (first, warm))
    saved = {name: seconds - after.get(name, 0.0) for name, seconds in before.items()}
    least = LEAST_SAVED * first.ready_s
    parts = [f"{name} {seconds:.1f}" for name, seconds in saved.items() if seconds >= least]
    where = f" ({', '.join(parts)})" if parts else ""
    return (
        f"was ready after {first.ready_s:.1f} s with empty caches and {warm.ready_s:.1f} s with "
        f"filled ones: they spared {first.ready_s - warm.ready_s:.1f} s{where}."
    )


def _live(run: Run, started: Sequence[Measured]) -> str:
    """What the engines' own gauges showed at the highest level."""
    level = max(run.matchup.workload.concurrency)
    told = [text for one in started if (text := _gauges(one, level))]
    return f"By the engines' own gauges, at {level}: {'; '.join(told)}." if told else ""


def _gauges(one: Measured, level: int) -> str:
    seen = one.live.get(level)
    if seen is None or seen.running_max is None:
        return ""
    waited = "" if seen.waiting_max is None else f" and {seen.waiting_max:.0f} waiting"
    used = (
        "" if seen.kv_cache_usage_max is None else f", KV cache {seen.kv_cache_usage_max:.0%} full"
    )
    pushed = f", {seen.preempted:.0f} preemptions" if seen.preempted else ""
    return f"{one.contender.name} at most {seen.running_max:.0f} running{waited}{used}{pushed}"


def _remarks(one: Measured) -> list[str]:
    assert one.start is not None
    start, name = one.start, one.contender.name
    engine = f"{one.contender.engine} {start.version or '(version not reported)'}"
    found = [f"{engine}: {start.disclosure}." if start.disclosure else f"{engine}."]
    if start.model_note:
        found.append(f"{one.contender.engine} loaded {start.model_note}.")
    if not start.length_forced:
        found.append(f"{name}: the engine cannot be made to write a given number of tokens.")
    if start.left_out:
        found.append(f"{name}: asked without {', '.join(start.left_out)}, which it refuses.")
    found += [f"{name}: {warning}." for warning in (one.ending.warnings if one.ending else [])]
    return found


def _once(texts: object) -> list[str]:
    return list(dict.fromkeys(texts))  # type: ignore[call-overload]


def _client(contenders: Sequence[Measured]) -> str:
    """How late our own client was, at worst."""
    rounds = [level.first_round for one in contenders for level in one.levels]
    if not rounds:
        return ""
    sent = max(r.send_late_ms for r in rounds)
    read = [r.read_late_ms for r in rounds if r.read_late_ms is not None]
    clock = f"tokens were read at most {max(read):.1f} ms after" if read else ""
    stamped = "the kernel stamped them" if read else "arrivals carry the client's own clock"
    sources = sorted({source for r in rounds for source in r.tokens_by})
    return (
        f"Client: requests were sent at most {sent:.1f} ms after due, {clock} {stamped} (99th "
        f"percentiles of the worst round); tokens counted by {', '.join(sources)}."
    )


def _machine(run: Run) -> str:
    machine = run.info.machine
    return (
        f"Machine: {machine['cpu']}, {machine['cores']} cores, "
        f"{show_bytes(machine['memory_bytes'])}, load average {machine['load_average']} at the "
        f"start; {run.info.created}; kvroom {run.info.kvroom}."
    )
