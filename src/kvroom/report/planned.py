"""A plan for people: one table over engines and cache types, and what to change."""

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from kvroom.memory import Before
from kvroom.plan.question import Check, Gain, Planned, Question, Refused
from kvroom.report.table import NOTHING, Cell, Table
from kvroom.report.terminal import clean, rich_table
from kvroom.units import show_bytes

Answers = Sequence[Planned | Refused]
LAYERS = {"gated_delta_net": "gated delta net", "kda": "Kimi delta attention",
          "short_conv": "short convolution", "mla": "MLA", "cross": "cross-attention",
          "sliding": "sliding window", "chunked": "chunked local"}  # fmt: skip


def show_plan(question: Question, answers: Answers, out: Console, *, explain: bool) -> None:
    """Print the answers; with ``explain`` the arithmetic behind each, line by line."""
    planned = [answer for answer in answers if isinstance(answer, Planned)]
    request = f"requests of {question.prompt} + {question.output} tokens"
    title = f"{question.checkpoint.name}: how many {request} run at once, as planned"
    out.print(Text(clean(title), style="bold"))
    if planned:
        out.print(rich_table(planned_table(question, planned)))
    for line in _lines(question, answers):
        out.print(Text(clean(line)), soft_wrap=not out.is_terminal)
    for one in planned:
        if one.checks:
            out.print(rich_table(_checks_table(one)))
    if explain:
        for one in planned:
            out.print()
            out.print(Text(f"{_name(one)}:", style="bold"))
            for line in (*_memory(one), *one.room.arithmetic, *_expected(one)):
                out.print(Text(f"  {clean(line)}"), soft_wrap=not out.is_terminal)


def planned_table(question: Question, planned: Sequence[Planned]) -> Table:
    """Engine and cache type x pool, what a request holds, how many run at each concurrency."""
    return Table(
        title="",
        columns=[
            ("engine, KV dtype", ""),
            ("pool", "GiB"),
            ("pool", "tokens"),
            ("request", "holds"),
            ("fit", ""),
            *(("run", f"of {level}") for level in question.concurrency),
            ("binds", ""),
        ],
        rows=[_row(one) for one in planned],
    )


def _row(one: Planned) -> list[Cell]:
    low, high = one.rooms[0], one.rooms[-1]
    first, last = one.fits[0][0], one.fits[0][-1]
    page = f"x {low.block_tokens:,}" if first.pool == low.pools[0].limit else first.pool
    held = f"{first.blocks_per_request:,} {page}" if first.blocks_per_request else NOTHING
    return [
        Cell(_name(one)),
        Cell(_gib(low.pool_bytes, high.pool_bytes)),
        Cell(_counts(low.tokens, high.tokens)),
        Cell(held),
        Cell(_counts(first.fit, last.fit)),
        *(Cell(_counts(few[0].running, few[-1].running)) for few in one.fits),
        Cell(one.fits[-1][0].binds),
    ]


def _counts(low: int, high: int) -> str:
    """A count whole; an interval to three digits or so, since more would claim too much."""
    return f"{low:,}" if low == high else _span(_short(low), _short(high))


def _short(count: int) -> str:
    for scale, letter in ((1e6, "M"), (1e3, "k")):
        if count >= scale:
            return f"{count / scale:.3g}{letter}"
    return str(count)


def _gib(low: int, high: int) -> str:
    digits = 2 if low == high else 1
    return _span(f"{low / 2**30:.{digits}f}", f"{high / 2**30:.{digits}f}")


def _span(low: str, high: str) -> str:
    return low if low == high else f"{low}-{high}"


def _name(answer: Planned | Refused) -> str:
    return f"{answer.engine} {answer.ask.settings.kv_cache_dtype or ''}".rstrip()


def _lines(question: Question, answers: Answers) -> Iterator[str]:
    """The model, what to change, what is estimated, what does not start, what is guessed."""
    yield _model(question)
    highest = max(question.concurrency)
    for answer in answers:
        if isinstance(answer, Planned):
            yield from _remarks(answer, highest)
        if answer.changes:
            yield f"{_name(answer)}: {told(answer.changes, highest)}"
    yield from _refusals([answer for answer in answers if isinstance(answer, Refused)])
    planned = [answer for answer in answers if isinstance(answer, Planned)]
    if any(one.before and len(one.rooms) > 1 for one in planned):
        yield "Pools given as intervals are estimates; --available or --log replaces them."
    yield from (f"! a guess: {guess}" for guess in question.checkpoint.architecture.guesses)


def told(changes: Sequence[Gain], highest: int) -> str:
    """``23 of 32 run; 32 with kv_cache_dtype: fp8, 28 with slots: 28.``"""
    best = sorted(changes, key=lambda change: -change.running)
    others = ", ".join(f"{c.running} with {c.setting}: {_value(c.value)}" for c in best)
    now = best[0].instead_of
    return f"{f'{now} of {highest} run' if now is not None else 'none runs'}; {others}."


def _value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _remarks(one: Planned, highest: int) -> Iterator[str]:
    last = one.fits[-1][0]
    if one.at_worst:
        yield f"! {_name(one)} may not start: {one.at_worst}."
    if last.preempted:
        yield (
            f"{_name(one)}: of {highest}, {last.running + last.preempted} are let in, and "
            f"{last.preempted} pushed out again as the others grow."
        )
    if last.binds == "max_len":
        yield f"{_name(one)}: a request is longer than {one.room.max_len:,}: {one.room.too_long}."
    if last.binds == "batch_tokens":
        yield f"{_name(one)}: no step holds a prompt of more than {one.room.max_prompt:,} tokens."


def _refusals(refused: Sequence[Refused]) -> Iterator[str]:
    """Each reason once, with all that it stops."""
    stopped: dict[tuple[str, str], list[str]] = {}
    for one in refused:
        stopped.setdefault((one.why, one.hint), []).append(_name(one))
    for (why, hint), names in stopped.items():
        yield f"! {', '.join(names)}: {why}{f' ({hint})' if hint else ''}."


def _model(question: Question) -> str:
    """Layers by kind and weights by part."""
    made = question.checkpoint.architecture
    kinds = [(layer.layers, LAYERS.get(layer.kind, layer.kind)) for layer in made.attention]
    kinds += [(state.layers, LAYERS.get(state.kind, state.kind)) for state in made.states]
    layers = " + ".join(f"{count} {kind}" for count, kind in kinds)
    weights = question.checkpoint.weights
    if weights is None:
        return f"{made.family}: {layers} layers; no weights to weigh."
    parts = sorted(weights.parts.items(), key=lambda pair: -pair[1])
    told = ", ".join(f"{part} {show_bytes(size)}" for part, size in parts)
    return f"{made.family}: {layers} layers; weights {show_bytes(weights.total)} ({told})."


def _checks_table(one: Planned) -> Table:
    return Table(
        title=f"{_name(one)}: planned beside logged",
        columns=[("figure", ""), ("planned", ""), ("logged", ""), ("agree", ""), ("line", "")],
        rows=[_check_row(check) for check in one.checks],
    )


def _check_row(check: Check) -> list[Cell]:
    expected, logged = check.expected, check.logged
    value = logged.value if logged is not None else None
    shown = f"{value / expected.scale:,.10g}" if isinstance(value, float) else NOTHING
    agrees = {True: "yes", False: "no", None: NOTHING}[check.agrees]
    return [
        Cell(expected.wording),
        Cell(f"{expected.value:,}"),
        Cell(shown),
        Cell(agrees, "bad" if check.agrees is False else ""),
        Cell(str(logged.source) if logged is not None else NOTHING),
    ]


def _memory(one: Planned) -> Iterator[str]:
    """What is gone before the pool."""
    before = one.before
    if before is None:
        yield f"{one.rooms[0].pool_bytes:,} B of pages and states"
        return
    yield _interval("card", before.total.low, before.total.high)
    yield f"weights: {show_bytes(before.weights)}, from the checkpoint's headers"
    for name, span in _estimated(before):
        yield _interval(f"{name} (estimated)", span[0], span[1])
    yield f"fraction {before.share.fraction} of {WHOLE[before.share.of]}"
    yield _interval("left for the pool", before.available.low, before.available.high)


WHOLE = {
    "total": "the whole card",
    "rest": "what is left beside weights and activations",
    "static": "what is free at the start, weights included",
}


def _estimated(before: Before) -> Iterator[tuple[str, tuple[int, int]]]:
    for name in ("activations", "workspace", "graphs", "context"):
        span = getattr(before, name)
        yield name, (span.low, span.high)


def _interval(name: str, low: int, high: int) -> str:
    return f"{name}: {_span(show_bytes(low), show_bytes(high)).replace('-', ' to ')}"


def _expected(one: Planned) -> list[str]:
    return [f"its log will say: {name}: {value:,}" for name, value in one.room.expected_log.items()]
