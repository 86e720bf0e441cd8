"""The commands: each a short function that calls the library."""

import signal
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

import click

from kvroom import __version__
from kvroom.errors import EXIT_BUG, EXIT_ENGINE, EXIT_INPUT, EXIT_VOID, InputError, KvroomError

if TYPE_CHECKING:
    from kvroom.store import Run

P = ParamSpec("P")
EXIT_STOPPED = 130
COUNT = click.IntRange(1, 1 << 30)


MATCHUP = click.Path(path_type=Path)


def _by_fault(command: Callable[P, None]) -> Callable[P, None]:
    """Errors become one sentence, a hint, and an exit code that says whose fault it was."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except KvroomError as error:
            click.echo(f"error: {error}", err=True)
            if error.hint:
                click.echo(f"hint: {error.hint}", err=True)
            sys.exit(error.exit_code)
        except BrokenPipeError:
            sys.exit(EXIT_BUG)

    return run


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="kvroom")
def main() -> None:
    """Find out which LLM serving engine, with which settings, is best for your model and load.

    \b
    kvroom demo                      two real engines on this machine, in three minutes
    kvroom run matchup.yaml          measure your own contenders
    kvroom explain runs/2026-12-01-x why, and the line to change; or of an engine.log
    kvroom report runs/2026-12-01-x  read a run again
    """


@main.command()
@click.argument("matchup", required=False, type=click.Path(path_type=Path))
@click.option("--resume", type=click.Path(path_type=Path), help="Measure what a run still misses.")
@click.option(
    "--apply",
    "applied",
    type=click.Path(path_type=Path),
    help="Measure contenders of a run again, each with its first recommended change.",
)
@click.option("--contender", help="With --apply, only this one.")
@click.option("--dry-run", is_flag=True, help="Print what would be started, and stop.")
@click.option("-o", "--out", type=click.Path(path_type=Path), help="The run's folder.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@_by_fault
def run(matchup: Path | None, resume: Path | None, applied: Path | None, **how: Any) -> None:
    """Launch each contender in turn, drive the same load, and say who is ahead.

    \b
    kvroom run examples/demo.yaml
    kvroom run --resume runs/2026-12-01-demo
    kvroom run --apply runs/2026-12-01-demo --contender llamacpp-4-f16
    """
    from kvroom.store import Run

    if sum(given is not None for given in (matchup, resume, applied)) != 1:
        raise InputError(
            "name one of: a matchup file, --resume RUN, --apply RUN", "kvroom run --help"
        )
    if how["contender"] is not None and applied is None:
        raise InputError("--contender belongs to --apply", "kvroom run --help")
    if resume is not None:
        _conduct(Run.open(resume), how["as_json"])
    elif applied is not None:
        _apply(Run.open(applied), **how)
    else:
        assert matchup is not None
        _measure(matchup, how["out"], how["as_json"], how["dry_run"])


@main.command()
@click.option("-o", "--out", type=click.Path(path_type=Path), help="The run's folder.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@_by_fault
def demo(out: Path | None, as_json: bool) -> None:
    """llama.cpp against OpenVINO on a small model, each starved of KV cache and cured.

    Fetches about 210 MB the first time; needs no GPU, no compiler and no model hub.
    """
    _measure(Path(__file__).with_name("demo.yaml"), out, as_json, dry_run=False)


@main.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("-o", "--out", type=click.Path(path_type=Path), help="Write a file: report.md.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@_by_fault
def report(run: Path, out: Path | None, as_json: bool) -> None:
    """Tell what a run measured.

    \b
    kvroom report runs/2026-12-01-demo
    kvroom report runs/2026-12-01-demo -o report.md
    """
    from kvroom.store import Run

    opened = Run.open(run)
    if out is not None:
        _write(opened, out)
    if as_json or out is None:
        _tell(opened, as_json)


@main.command()
@click.argument("model")
@click.option("--engine", "engine_names", multiple=True, help="Only this one; may be repeated.")
@click.option("--engine-version", default="", help="Where versions differ; vLLM 0.31 by default.")
@click.option("--card", help="A card by name, such as 'RTX 5090'; memory is then estimated.")
@click.option("--memory", help="Memory of the card, such as 24GiB; else of one here.")
@click.option("--available", help="Memory for the KV cache itself, from a log: 3.45GiB.")
@click.option("--prompt", type=COUNT, default=512, show_default=True)
@click.option("--output", type=COUNT, default=256, show_default=True)
@click.option("--concurrency", default="1,8,32", show_default=True, help="Levels, by commas.")
@click.option("--slots", type=COUNT, help="The most requests run at once.")
@click.option("--max-len", type=COUNT, help="The most tokens of one request.")
@click.option("--kv-cache-dtype", help="In the engine's spelling; several are compared without.")
@click.option("--memory-fraction", type=float, help="The engine's share of the memory.")
@click.option("--batch-tokens", type=COUNT, help="The most tokens of one step.")
@click.option("--log", type=click.Path(path_type=Path), help="The engine's log: planned beside it.")
@click.option("--block-size", type=COUNT, help="Tokens in a page, if you choose it.")
@click.option("--state-slots", type=COUNT, help="SGLang's --max-mamba-cache-size.")
@click.option("--max-utilization", is_flag=True, help="TensorRT-LLM's MAX_UTILIZATION policy.")
@click.option("--windowed", is_flag=True, help="TensorRT-LLM: windows keep only their window.")
@click.option("--prefix-cache/--no-prefix-cache", default=None)
@click.option("--text-only", is_flag=True, help="Leave the vision or audio part out.")
@click.option("--tensor-parallel", type=click.IntRange(1, 1024), default=1)
@click.option("--speculative-tokens", type=click.IntRange(0, 64), default=0)
@click.option("--cpu", "on_cpu", is_flag=True, help="The engine runs on a CPU.")
@click.option("--explain", is_flag=True, help="Unfold the arithmetic, line by line.")
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
@_by_fault
def plan(**given: Any) -> None:
    """Say how many requests fit into the KV cache of MODEL, before a GPU is rented.

    MODEL is a folder with config.json, a .gguf file, or a hub id. Weights are not loaded.

    \b
    kvroom plan /models/Qwen3-8B --card 'RTX 4090' --prompt 474 --output 256 --concurrency 32
    kvroom plan model.gguf --engine llamacpp --slots 8 --max-len 4096 --explain
    """
    from kvroom.plan.answer import plan as answered
    from kvroom.plan.asked import asked
    from kvroom.plan.question import Planned

    questions = asked(given)
    answers = [answered(question, name) for question, name in questions]
    refused = not any(isinstance(answer, Planned) for answer in answers)
    if given["as_json"]:
        from kvroom.report.planned_data import plans

        _print_json(plans(questions, answers))
    else:
        from kvroom.report.planned import show_plan
        from kvroom.report.terminal import console

        out = console(stderr=refused)
        show_plan(questions[0][0], answers, out, explain=given["explain"])
    if refused:
        sys.exit(EXIT_INPUT)


@main.command()
@click.argument("name", required=False)
@click.option("--version", "release", help="Of the options; the newest known by default.")
@click.option("--check", "matchup", type=MATCHUP, help="Look for mistakes in a matchup file.")
@click.option("--json", "as_json", is_flag=True, help="Print the same as JSON.")
@_by_fault
def engines(name: str | None, release: str | None, matchup: Path | None, as_json: bool) -> None:
    """List the engines, or the settings and options of NAME, or what is wrong in a matchup.

    \b
    kvroom engines vllm --version 0.31
    kvroom engines --check matchup.yaml
    """
    if matchup is not None:
        _check(matchup, as_json)
        return
    from kvroom.report.listed import data, show
    from kvroom.report.terminal import console

    if as_json:
        _print_json(data(name, release))
    else:
        show(name, release, console(stderr=False))


def _check(matchup: Path, as_json: bool) -> None:
    """Say what is wrong with a matchup; its exit code is that of a wrong input if anything is."""
    from kvroom.check import checked
    from kvroom.matchup import load_matchup

    found = checked(load_matchup(matchup), matchup)
    if as_json:
        _print_json(found)
    else:
        from kvroom.report.listed import show_checked
        from kvroom.report.terminal import console

        show_checked(matchup.name, found, console(stderr=False))
    if any(complaint.fatal for one in found for complaint in one.complaints):
        sys.exit(EXIT_INPUT)


@main.command()
@click.argument("target")
@click.option("--engine", help="Whose log it is, where that cannot be told from it.")
@click.option("--engine-version", default="", help="Where the log does not say it.")
@click.option("--model", help="Folder, .gguf file or hub id: how many fit is then computed.")
@click.option("--contender", help="Of a run, only this one.")
@click.option("--concurrency", type=COUNT, help="Requests that come together.")
@click.option("--prompt", type=COUNT, help="Tokens of a prompt.")
@click.option("--output", type=COUNT, help="Tokens of an answer.")
@click.option("--flags", multiple=True, help="What it was started with, in its own spelling.")
@click.option("--slots", type=COUNT, help="The most requests run at once.")
@click.option("--max-len", type=COUNT, help="The most tokens of one request.")
@click.option("--kv-cache-dtype", help="In the engine's spelling.")
@click.option("--memory-fraction", type=click.FloatRange(0, 1, min_open=True))
@click.option("--batch-tokens", type=COUNT, help="The most tokens of one step.")
@click.option("--prefix-cache/--no-prefix-cache", default=None)
@click.option("--tensor-parallel", type=click.IntRange(1, 1024))
@click.option("--card", help="A card by name; the pool is then estimated where no line says it.")
@click.option("--memory", help="Memory of the card, such as 24GiB.")
@click.option("--available", help="Memory for the KV cache, where no line says it: 3.45GiB.")
@click.option("--cpu", "on_cpu", is_flag=True, help="The engine runs on a CPU.")
@click.option("--facts", is_flag=True, help="Only list what the log says, each fact with its line.")
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
@_by_fault
def explain(target: str, facts: bool, as_json: bool, **given: Any) -> None:
    """Say why it is slow, waits, or did not start, and which line to change.

    TARGET is an engine's log, - for one that is piped in, or the folder of a run. A log may come
    out of a container or a cluster, coloured, wrapped in JSON, gigabytes long.

    \b
    kvroom explain engine.log --model /models/Qwen3-8B --concurrency 32 --prompt 474 --output 256
    kubectl logs mypod | kvroom explain - --concurrency 32 --flags '--max-num-seqs 32'
    kvroom explain runs/2026-12-01-demo
    """
    from kvroom.report.terminal import console

    if facts:
        _list_facts(target, given["engine"], as_json)
        return
    if Path(target).is_dir():
        _explain_run(Path(target), given, as_json)
        return
    from kvroom.explain.asked import asked
    from kvroom.explain.explain import explain as explained
    from kvroom.report.explained import show_explanation
    from kvroom.report.reasons import explanation_data

    answer = explained(asked(target, given))
    if as_json:
        _print_json(explanation_data(answer))
    else:
        show_explanation(answer, console(stderr=False))


def _explain_run(path: Path, given: dict[str, Any], as_json: bool) -> None:
    from kvroom.checkpoint.read import read_checkpoint
    from kvroom.explain.whole import explain_run
    from kvroom.report.explained import show_run
    from kvroom.report.reasons import run_data
    from kvroom.report.terminal import console
    from kvroom.store import Run

    run, only = Run.open(path), given["contender"]
    _known_contender(run, only)
    whole = explain_run(run, checkpoint=read_checkpoint(given["model"]) if given["model"] else None)
    if as_json:
        _print_json(run_data(whole))
    else:
        show_run(whole, console(stderr=False), only)


def _list_facts(target: str, name: str | None, as_json: bool) -> None:
    """What an engine says of itself in its log, each fact with its line."""
    from kvroom import engines
    from kvroom.analyse.facts import told
    from kvroom.analyse.recognise import recognise
    from kvroom.explain.asked import log_file
    from kvroom.loglines import log_lines
    from kvroom.report.told import facts_data, facts_table

    with log_file(target) as (log, shown):
        engine = engines.engine(name or recognise(log_lines(log), shown))
        facts = told(engine.read_log(log_lines(log, marks=engine.log_marks), shown))
    if as_json:
        _print_json(facts_data(engine.name, facts))
        return
    from kvroom.report.terminal import console, rich_table

    console(stderr=False).print(rich_table(facts_table(engine.name, shown, facts)))


@main.command()
@click.argument("url")
@click.option("--engine", help="Whose it is, where that cannot be told from its metrics.")
@click.option("--log", type=click.Path(path_type=Path), help="Its log, read as it grows.")
@click.option("--model", help="Folder, .gguf file or hub id: how many fit is then computed.")
@click.option("--prompt", type=COUNT, help="Tokens of a prompt.")
@click.option("--output", type=COUNT, help="Tokens of an answer.")
@click.option("--concurrency", type=COUNT, help="Requests that come together.")
@click.option("--api-key-env", help="The environment variable that holds the key.")
@click.option("--every", "every_s", type=click.FloatRange(0.05, 60), default=0.5, help="Seconds.")
@click.option("--for", "for_s", help="How long, such as 60s or 5m; until stopped by default.")
@click.option("--until-waiting", is_flag=True, help="Stop when a request waits, and say why.")
@click.option("--json", "as_json", is_flag=True, help="Print all of it as JSON at the end.")
@_by_fault
def watch(url: str, every_s: float, as_json: bool, **given: Any) -> None:
    """Look at an engine while it runs: who runs, who waits, and why.

    \b
    kvroom watch http://127.0.0.1:8000
    kvroom watch http://127.0.0.1:8000 --log engine.log --until-waiting
    kvroom watch http://127.0.0.1:8000 --for 60s --json
    """
    from kvroom.explain.explain import explain as explained
    from kvroom.report.reasons import explanation_data
    from kvroom.report.terminal import console
    from kvroom.report.watched import Shown, watched_data
    from kvroom.watch import watching

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    moments = []
    watched, ends = watching(url, given)
    with closing(watched), Shown(console(stderr=as_json)) as shown, suppress(KeyboardInterrupt):
        for moment in watched.moments(every_s):
            moments.append(moment)
            shown.moment(moment)
            if ends(moment):
                break
    if as_json:
        why = explanation_data(explained(watched.case()))
        _print_json(watched_data(watched.engine.name, moments, why))


@main.command()
@_by_fault
def schema() -> None:
    """Print the JSON Schema of matchup.yaml, for editors."""
    from kvroom.matchup import matchup_schema

    _print_json(matchup_schema())


def _measure(matchup_file: Path, out: Path | None, as_json: bool, dry_run: bool) -> None:
    from kvroom.matchup import load_matchup
    from kvroom.prepare import prepare
    from kvroom.rounds import start_run

    matchup = load_matchup(matchup_file)
    if dry_run:
        for prepared in prepare(matchup, matchup_file, matchup_file.parent.resolve()):
            click.echo(f"{prepared.contender.name}: {prepared.shown()}")
        return
    _conduct(start_run(matchup, matchup_file, out), as_json)


def _apply(
    before: "Run", contender: str | None, dry_run: bool, out: Path | None, as_json: bool
) -> None:
    from kvroom.explain.apply import apply, as_yaml
    from kvroom.explain.whole import explain_run
    from kvroom.rounds import start_run

    _known_contender(before, contender)
    matchup, changes = apply(before.matchup, explain_run(before), contender)
    text = as_yaml(matchup, changes)
    if dry_run:
        click.echo(text, nl=False)
        return
    source = Path(before.info.matchup_folder) / "matchup.yaml"
    after = start_run(matchup, source, out, text.encode())
    after.write_applied(changes)
    _conduct(after, as_json)


def _known_contender(run: "Run", name: str | None) -> None:
    names = [one.name for one in run.matchup.contenders]
    if name is not None and name not in names:
        raise InputError(f"the run has no contender {name!r}", f"it has {', '.join(names)}")


def _conduct(run: "Run", as_json: bool) -> None:
    from kvroom.report.live import Live
    from kvroom.report.terminal import console
    from kvroom.rounds import conduct

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with Live(console(stderr=True)) as live:
            conduct(run, live)
    except KeyboardInterrupt:
        click.echo(f"stopped; what was measured is kept: kvroom run --resume {run.path}", err=True)
        sys.exit(EXIT_STOPPED)
    _tell(run, as_json)
    sys.exit(_exit_code(run))


def _exit_code(run: "Run") -> int:
    from kvroom.analyse.contender import measured

    contenders = measured(run)
    if any(one.state != "measured" for one in contenders):
        return EXIT_ENGINE
    return EXIT_VOID if any(one.voids for one in contenders) else 0


def _tell(run: "Run", as_json: bool) -> None:
    if as_json:
        from kvroom.report.data import data

        _print_json(data(run))
        return
    from kvroom.report.document import document
    from kvroom.report.terminal import console, show

    show(document(run), console(stderr=False))


def _write(run: "Run", out: Path) -> None:
    from kvroom.report.document import document
    from kvroom.report.markdown import markdown

    if out.suffix != ".md":
        raise InputError(f"cannot write {out}: only .md is known", "kvroom report RUN -o report.md")
    try:
        out.write_text(markdown(document(run)), encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write {out}: {error.strerror}") from None


def _print_json(value: Any) -> None:
    import msgspec

    click.echo(msgspec.json.format(msgspec.json.encode(value)).decode())
