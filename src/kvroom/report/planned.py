"""``kvroom plan`` for people and programs: options -> question -> table, arithmetic, JSON."""

from collections.abc import Mapping, Sequence
from typing import Any

import click
import msgspec

from kvroom import engines
from kvroom.checkpoint.read import Checkpoint, read_checkpoint
from kvroom.errors import InputError
from kvroom.matchup import Settings
from kvroom.memory import Span, card
from kvroom.plan import Planned, Question, as_data, plan
from kvroom.report.table import NOTHING, Cell, Table
from kvroom.report.terminal import clean, console, rich_table
from kvroom.room import fit
from kvroom.units import parse_bytes, show_bytes

SETTINGS = ("slots", "max_len", "kv_cache_dtype", "memory_fraction", "batch_tokens", "prefix_cache")


def tell_plan(given: Mapping[str, Any]) -> None:
    """Print the plan that the options ask for."""
    checkpoint = read_checkpoint(given["model"])
    question = _question(given, checkpoint)
    names = given["engine_names"] or _applicable(given["model"])
    answers = [
        (name, _answered(dtyped, name))
        for name in names
        for dtyped in _by_dtype(question, name, given["kv_cache_dtype"])
    ]
    if not any(isinstance(answer, Planned) for _, answer in answers):
        raise next(answer for _, answer in answers if isinstance(answer, InputError))
    if given["as_json"]:
        _print_json(question, answers)
    else:
        _print_table(question, answers, explain=given["explain"])


def _question(given: Mapping[str, Any], checkpoint: Checkpoint) -> Question:
    settings = {name: given[name] for name in SETTINGS if given[name] is not None}
    fraction = settings.get("memory_fraction")
    if fraction is not None and not 0 < fraction <= 1:
        raise InputError(f"--memory-fraction {fraction} is not between 0 and 1")
    if given["text_only"]:
        settings["text_only"] = True
    return Question(
        checkpoint=checkpoint,
        settings=Settings(**settings),
        prompt=given["prompt"],
        output=given["output"],
        concurrency=_levels(given["concurrency"]),
        available=_size(given["available"], "--available"),
        memory=_memory(given),
        version=given["engine_version"],
        tensor_parallel=given["tensor_parallel"],
        speculative_tokens=given["speculative_tokens"],
        on_cpu=given["on_cpu"],
        block_tokens=given["block_size"],
    )


def _levels(text: str) -> tuple[int, ...]:
    try:
        levels = tuple(int(word) for word in text.split(","))
    except ValueError:
        levels = ()
    if not levels or min(levels) < 1:
        raise InputError(f"--concurrency {text!r} is not a list of numbers", "such as 1,8,32")
    return levels


def _size(text: str | None, option: str) -> int | None:
    if text is None:
        return None
    try:
        return int(parse_bytes(int(text) if text.isdigit() else text))
    except ValueError as error:
        raise InputError(f"{option}: {error}") from None


def _memory(given: Mapping[str, Any]) -> Span | None:
    if given["card"] and given["memory"]:
        raise InputError("name either --card or --memory")
    if given["card"]:
        return card(given["card"]).memory
    size = _size(given["memory"], "--memory")
    return Span(size, size) if size is not None else None


def _applicable(model: str) -> list[str]:
    wanted = "gguf" if model.endswith(".gguf") else "safetensors"
    known = [engines.engine(name) for name in engines.names()]
    return [e.name for e in known if e.room and wanted in (e.formats or ("safetensors",))]


def _by_dtype(question: Question, name: str, dtype: str | None) -> list[Question]:
    dtypes: Sequence[str] = (dtype,) if dtype else engines.engine(name).kv_dtypes
    return [
        msgspec.structs.replace(
            question,
            settings=msgspec.structs.replace(question.settings, kv_cache_dtype=one),
        )
        for one in dtypes
    ]


def _answered(question: Question, name: str) -> Planned | InputError:
    try:
        return plan(question, name)
    except InputError as error:
        return error


Answers = Sequence[tuple[str, Planned | InputError]]


def _print_json(question: Question, answers: Answers) -> None:
    """One engine and one dtype at the top level; otherwise a list."""
    data = [
        as_data(question, answer)
        if isinstance(answer, Planned)
        else {"engine": name, "error": str(answer), "hint": answer.hint}
        for name, answer in answers
    ]
    text = msgspec.json.encode(data[0] if len(data) == 1 else data)
    click.echo(msgspec.json.format(text).decode())


def _print_table(question: Question, answers: Answers, *, explain: bool) -> None:
    out = console(stderr=False)
    planned = [answer for _, answer in answers if isinstance(answer, Planned)]
    out.print(rich_table(_table(question, planned)))
    for line in _advice(question, planned):
        out.print(clean(line), soft_wrap=True, markup=False)
    for name, answer in answers:
        if isinstance(answer, InputError):
            hint = f" ({answer.hint})" if answer.hint else ""
            out.print(clean(f"! {name}: {answer}{hint}"), soft_wrap=True, markup=False)
    for guess in question.checkpoint.architecture.guesses:
        out.print(clean(f"! a guess: {guess}"), soft_wrap=True, markup=False)
    if explain:
        for one in planned:
            out.print(f"\n{one.engine}, {one.settings.kv_cache_dtype}", markup=False)
            for line in (*one.room.arithmetic, *_expected(one)):
                out.print(f"  {clean(line)}", soft_wrap=True, markup=False)


def _expected(one: Planned) -> list[str]:
    return [f"its log will say: {name}: {value}" for name, value in one.room.expected_log.items()]


def _table(question: Question, planned: Sequence[Planned]) -> Table:
    levels = question.concurrency
    request = f"{question.prompt} + {question.output} tokens"
    return Table(
        title=f"{question.checkpoint.name}: how many requests of {request} run at once",
        columns=[
            ("engine", ""),
            ("KV", "dtype"),
            ("pool", "tokens"),
            ("pages of", "tokens"),
            ("a request", "holds"),
            ("fit", ""),
            *(("running", f"of {level}") for level in levels),
            ("binds", ""),
        ],
        rows=[_row(one) for one in planned],
    )


def _row(one: Planned) -> list[Cell]:
    room, first = one.room, one.fits[0][0]
    low, high = one.rooms[0], one.rooms[-1]
    fits = sorted({f.fit for f in one.fits[0]})
    return [
        Cell(one.engine),
        Cell(str(one.settings.kv_cache_dtype)),
        Cell(_span(low.tokens, high.tokens)),
        Cell(f"{room.blocks:,} x {room.block_tokens}"),
        Cell(f"{first.blocks_per_request}" if first.blocks_per_request else NOTHING),
        Cell(_span(fits[0], fits[-1])),
        *(Cell(_span(many[0].running, many[-1].running)) for many in one.fits),
        Cell(one.fits[-1][0].binds),
    ]


def _span(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _advice(question: Question, planned: Sequence[Planned]) -> list[str]:
    """What to change, where the arithmetic shows a better number of slots."""
    lines = []
    highest = max(question.concurrency)
    for one in planned:
        if one.best_slots is not None:
            now = fit(one.room, question.prompt, question.output, highest).running
            lines.append(
                f"{one.engine}, {one.settings.kv_cache_dtype}: with {one.best_slots} slots "
                f"{one.best_running} of {highest} run instead of {now}."
            )
        if one.before is not None:
            lines.append(
                f"{one.engine}: the pool is estimated at {show_bytes(one.before.available.low)} to "
                f"{show_bytes(one.before.available.high)}; --available replaces the estimate."
            )
    return list(dict.fromkeys(lines))
