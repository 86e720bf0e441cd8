"""A run explained: who runs and waits, the gap, and the change that is measured next."""

import json
from pathlib import Path

import msgspec
import pytest

from conftest import Kvroom, a_record, an_info, steady
from kvroom import located
from kvroom.analyse.applied import outcomes
from kvroom.analyse.contender import measured
from kvroom.checkpoint.architecture import Architecture, Attention
from kvroom.checkpoint.read import Checkpoint
from kvroom.engines import engine
from kvroom.errors import InputError
from kvroom.explain.apply import apply, as_yaml
from kvroom.explain.explain import Explanation
from kvroom.explain.finding import Change
from kvroom.explain.whole import Whole, explain_run
from kvroom.matchup import Contender, Matchup
from kvroom.options import Options
from kvroom.records import Sample
from kvroom.report.reasons import run_data
from kvroom.settings import Settings
from kvroom.spelling import spelled_without
from kvroom.store import Applied, Run
from kvroom.units import Bytes

MS = 1_000_000
SMALL = Checkpoint(
    name="small",
    architecture=Architecture(
        family="llama",
        attention=(Attention(kind="full", layers=2, kv_heads=2, key_dim=64, value_dim=64),),
        max_len=2048,
        hidden=128,
        vocab=1000,
    ),
    weights=None,
)


def starve(run: Run, name: str, running: int, *, level: int = 4) -> None:
    """Of the requests of a level only so many run at once; the others follow them."""
    files = run.starts(name)[-1]
    files.write_model(SMALL)
    files.log.write_text("0.00.1 I llama_context: constructing llama_context\n")
    for number in (1, 2):
        wave = [
            a_record(i, tokens_at_ms=steady(60 + 160 * (i // running) + number, 20, 8))
            for i in range(level)
        ]
        run.write_round(name, f"c{level:03d}-{number}", an_info(level, number), wave)
    gauges = {"running": float(running), "waiting": float(level - running)}
    sample = Sample(at_ns=1_050 * MS, gauges=gauges)
    files.samples.write_bytes(msgspec.json.encode(sample) + b"\n")


def with_slots(run: Run, name: str, slots: int) -> Run:
    """The same run with other slots for a contender, as if it had been measured so."""
    changed = [
        msgspec.structs.replace(c, settings=Settings(slots=slots, max_len=64))
        if c.name == name
        else c
        for c in run.matchup.contenders
    ]
    return Run(run.path, run.info, msgspec.structs.replace(run.matchup, contenders=changed))


@pytest.fixture
def a_starved_run(a_run: Run) -> Run:
    """Contender a has two slots: two of four requests wait."""
    starve(a_run, "a", 2)
    return with_slots(a_run, "a", 2)


def found(whole: Whole, name: str) -> Explanation:
    one = whole.of(name)
    assert one is not None
    return one


def test_the_cause_cites_the_gauges_and_the_round_is_batches(a_starved_run: Run) -> None:
    one = found(explain_run(a_starved_run), "a")

    assert one.findings[0].cause == "slots-limit"
    assert "2 run (planned) and 2 wait for them, so a round is 2 batches" in one.growth
    running = next(c for c in one.capacities if c.name == "running")
    assert (running.planned, running.observed, running.agrees) == (2, 2, True)


def test_more_running_than_planned_is_a_finding_of_its_own(a_starved_run: Run) -> None:
    sample = Sample(at_ns=1_050 * MS, gauges={"running": 3.0, "waiting": 1.0})
    a_starved_run.starts("a")[-1].samples.write_bytes(msgspec.json.encode(sample) + b"\n")

    findings = found(explain_run(a_starved_run), "a").findings
    differs = next(finding for finding in findings if finding.cause == "plan-differs")

    assert "the plan lets 2 run at once, 3 were seen" in differs.claim
    assert differs.settle


def test_a_log_that_contradicts_the_plan_is_told_in_the_units_of_the_log(a_run: Run) -> None:
    a_run.starts("a")[-1].write_model(SMALL)

    findings = found(explain_run(a_run), "a").findings
    differs = next(finding for finding in findings if finding.cause == "plan-differs")

    assert "size (MiB) to be 1.0, the log says 22.5" in differs.claim


def test_nothing_is_blamed_where_all_run(a_run: Run) -> None:
    one = found(explain_run(a_run), "b")

    assert [finding.cause for finding in one.findings] == ["client-limited"]
    assert one.changes == ()


def test_what_waiting_costs_is_a_part_of_the_gap(a_starved_run: Run) -> None:
    pair = explain_run(a_starved_run).pairs[0]

    assert (pair.ahead, pair.behind) == ("b", "a")
    product = 1.0
    for part in pair.parts:
        product *= part.factor
    assert product == pytest.approx(pair.ratio)
    assert "because in a 2 of 4 ran while the others waited" in pair.told


def test_equal_contenders_have_no_gap(a_run: Run) -> None:
    for number in (1, 2):
        a_run.round_file("b", f"c004-{number}").write_bytes(
            a_run.round_file("a", f"c004-{number}").read_bytes()
        )

    assert "No difference is shown" in explain_run(a_run).pairs[0].told


def test_the_explanation_is_plain_data(a_starved_run: Run) -> None:
    data = json.loads(json.dumps(run_data(explain_run(a_starved_run))))
    assert data["contenders"][0]["explanation"]["changes"][0]["setting"] == "slots"


# rules that only a measurement can answer


def test_a_server_that_takes_one_after_the_other_is_named(a_run: Run) -> None:
    starve(a_run, "a", 1)
    a_run.starts("a")[-1].samples.unlink()
    (a_run.path / "a" / "model.json").unlink()

    causes = [finding.cause for finding in found(explain_run(a_run), "a").findings]

    assert "single-slot" in causes


def test_answers_of_other_lengths_are_named(a_run: Run) -> None:
    wave = [a_record(i, output_tokens=20) for i in range(4)]
    a_run.write_round("a", "c004-1", an_info(4, 1), wave)

    first = found(explain_run(a_run), "a").findings[0]

    assert first.cause == "wrong-lengths"
    assert "3 to 3 tokens instead of 20" in first.claim


def test_prompts_that_were_cut_are_named(a_run: Run) -> None:
    reason = "the server saw 16 prompt tokens, 32 were sent"
    wave = [a_record(i, outcome="wrong_prompt" if i else "completed", reason=reason)
            for i in range(4)]  # fmt: skip
    a_run.write_round("a", "c004-1", an_info(4, 1), wave)

    first = found(explain_run(a_run), "a").findings[0]

    assert first.cause == "truncated-prompts"
    assert "16 prompt tokens" in first.claim


def test_events_of_several_tokens_are_named(a_run: Run) -> None:
    for number in (1, 2):
        wave = [a_record(i, tokens_at_ms=(60, 80), carried=(4, 4)) for i in range(4)]
        a_run.write_round("b", f"c004-{number}", an_info(4, number), wave)

    causes = [finding.cause for finding in found(explain_run(a_run), "b").findings]

    assert "several-tokens-per-chunk" in causes


def test_a_late_client_is_the_first_thing_that_is_said(a_run: Run) -> None:
    wave = [a_record(i, sent_ms=500, tokens_at_ms=steady(560, 20, 8)) for i in range(4)]
    a_run.write_round("a", "c004-1", an_info(4, 1), wave)

    first = found(explain_run(a_run), "a").findings[0]

    assert first.cause == "client-limited"
    assert "may not be believed" in first.claim


def test_a_first_round_that_is_slow_is_warm_up(a_run: Run) -> None:
    slow = [a_record(i, tokens_at_ms=steady(200, 40, 8)) for i in range(4)]
    later = [a_record(i, tokens_at_ms=steady(62, 10, 8)) for i in range(4)]
    a_run.write_round("b", "c004-1", an_info(4, 1), slow)
    a_run.write_round("b", "c004-3", an_info(4, 3), later)

    causes = [finding.cause for finding in found(explain_run(a_run), "b").findings]

    assert "warm-up" in causes


def test_a_body_that_samples_is_another_load(a_run: Run) -> None:
    changed = [msgspec.structs.replace(c, body={"temperature": 0.7}) if c.name == "b" else c
               for c in a_run.matchup.contenders]  # fmt: skip
    run = Run(a_run.path, a_run.info, msgspec.structs.replace(a_run.matchup, contenders=changed))

    assert "sampling-defaults" in [f.cause for f in found(explain_run(run), "b").findings]
    assert "sampling-defaults" not in [f.cause for f in found(explain_run(run), "a").findings]


# the change, applied


def test_the_changed_matchup_holds_only_what_changed(a_starved_run: Run, tmp_path: Path) -> None:
    matchup, notes = apply(a_starved_run.matchup, explain_run(a_starved_run))

    assert [one.name for one in matchup.contenders] == ["a+slots-4"]
    assert matchup.contenders[0].settings.slots == 4
    assert notes[0].before is not None
    assert notes[0].expected is not None
    path = tmp_path / "applied.yaml"
    path.write_text(as_yaml(matchup, notes))
    assert located.load(path, Matchup) == matchup


def test_where_nothing_is_recommended_nothing_is_applied(a_run: Run) -> None:
    with pytest.raises(InputError, match="no change is recommended"):
        apply(a_run.matchup, explain_run(a_run))


@pytest.mark.parametrize(
    ("flags", "left"),
    [
        (["--kv-cache-memory-bytes", "20M", "--enforce-eager"], ["--enforce-eager"]),
        (["--kv-cache-memory-bytes=20M"], []),
        (["--enforce-eager"], ["--enforce-eager"]),
    ],
)
def test_verbatim_options_that_would_win_over_a_setting_go(
    flags: list[str], left: list[str]
) -> None:
    options = spelled_without(engine("vllm"), Options(arguments=tuple(flags)), "kv_memory")
    assert list(options.arguments) == left


@pytest.mark.parametrize(
    ("change", "flags"),
    [
        (("--num_kv_blocks", "64"), ["--a", 1, "--num_kv_blocks", "64"]),
        (("--new", "1"), ["--a", 1, "--num_kv_blocks", "28", "--new", "1"]),
    ],
)
def test_an_option_of_the_engine_is_set_where_it_stood(
    change: tuple[str, str], flags: list[str], a_starved_run: Run
) -> None:
    whole = explain_run(a_starved_run)
    name, to = change
    wanted = Change(setting=name, now="28", to=to, value=to, because="", effect="")
    first = msgspec.structs.replace(
        whole.contenders[0],
        explanation=msgspec.structs.replace(whole.contenders[0].explanation, changes=(wanted,)),
    )
    contender = Contender(name="a", engine="openvino", flags=["--a", 1, "--num_kv_blocks", "28"])
    matchup = msgspec.structs.replace(a_starved_run.matchup, contenders=[contender])

    made, _ = apply(matchup, msgspec.structs.replace(whole, contenders=(first,)))

    assert made.contenders[0].flags == flags


def test_sizes_survive_the_way_into_a_file(a_starved_run: Run, tmp_path: Path) -> None:
    settings = Settings(kv_memory=Bytes(20 << 20))
    contender = msgspec.structs.replace(a_starved_run.matchup.contenders[0], settings=settings)
    matchup = msgspec.structs.replace(a_starved_run.matchup, contenders=[contender])
    path = tmp_path / "m.yaml"
    path.write_text(as_yaml(matchup, []))

    assert located.load(path, Matchup) == matchup


@pytest.mark.parametrize(
    ("expected", "said"),
    [((150.0, 240.0, 300.0), "as predicted"), ((300.0, 400.0, 500.0), "less than predicted")],
)
def test_what_a_change_did_stands_beside_what_it_promised(
    expected: tuple[float, float, float], said: str, a_run: Run
) -> None:
    note = Applied(
        run="r", contender="x", changed="b", setting="slots", now="4", to="8", concurrency=4,
        before=159.0, expected=expected,
    )  # fmt: skip

    text = next(iter(outcomes([note], measured(a_run))))

    assert "159 tok/s became 243 at 4, 1.53 times" in text
    assert said in text


def test_the_command_explains_a_run_and_prepares_its_change(
    a_starved_run: Run, kvroom: Kvroom
) -> None:
    (a_starved_run.path / "matchup.yaml").write_text(as_yaml(a_starved_run.matchup, []))

    shown = kvroom("explain", a_starved_run.path)
    dry = kvroom("run", "--apply", a_starved_run.path, "--contender", "a", "--dry-run")
    wrong = kvroom("explain", a_starved_run.path, "--contender", "c")

    assert shown.returncode == 0, shown.stderr
    assert "1. slots-limit" in shown.stdout
    assert dry.returncode == 0, dry.stderr
    assert "name: a+slots-4" in dry.stdout
    assert wrong.returncode == 2
    assert "it has a, b" in wrong.stderr
