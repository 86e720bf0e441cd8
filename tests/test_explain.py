"""From a log and a load to causes: the founding case, logs that say too little, odd ones."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import golden
from conftest import Kvroom
from kvroom.engines import engine
from kvroom.explain.case import Load
from kvroom.explain.explain import Explanation, explain
from kvroom.explain.gather import Known, gather
from kvroom.explain.log import read
from kvroom.explain.signatures import catalogue
from kvroom.options import Options
from kvroom.records import LogLine
from test_plan_command import HYBRID, TRTLLM_LOG

LOAD = ("--concurrency", "32", "--prompt", "474", "--output", "256")
VLLM_PAGES = """\
INFO 10-12 10:10:10 [interface.py:989] Setting attention block size to 1568 tokens to ensure that \
attention page size is >= mamba page size.
"""
VLLM_WAITS = "Running: 31 reqs, Waiting: 1 reqs, GPU KV cache usage: 97.6%\n"
VLLM_ALL_RUN = "Running: 16 reqs, Waiting: 0 reqs, GPU KV cache usage: 21.0%\n"
CRASH = """\
[10/12/2026-11:34:01] [TRT-LLM] [I] [llmapi] Setting multimodal_config.encoder_cache_max_bytes to \
0 because disable_mm_encoder=True.
    self.mm_encoder.load_weights(weights)
AttributeError: 'NoneType' object has no attribute 'load_weights'
"""


def explained(
    name: str, log: str, concurrency: int | None = 32, flags: tuple[str, ...] = (), **more: Any
) -> Explanation:
    """What a log and a load lead to, without the model."""
    lines = [LogLine(n, text) for n, text in enumerate(log.splitlines(), 1)]
    load = Load(prompt=474, output=256, concurrency=concurrency)
    known = Known(engine=name, load=load, options=Options(arguments=flags), **more)
    return explain(gather(known, read(engine(name), lines, "engine.log")))


def causes(one: Explanation) -> list[str]:
    return [finding.cause for finding in one.findings]


# the founding case


def test_the_tensorrt_log_says_who_fits_what_states_cost_and_which_line_to_change(
    tmp_path: Path, kvroom: Kvroom
) -> None:
    (tmp_path / "engine.log").write_text(TRTLLM_LOG)
    words = ("explain", "engine.log", "--engine", "trtllm", "--slots", "32", *LOAD)

    done = kvroom(*words, "--model", HYBRID)

    assert done.returncode == 0, done.stderr
    golden.check("explain.txt", done.stdout)
    data = json.loads(kvroom(*words, "--model", HYBRID, "--json").stdout)
    first, second = data["findings"]
    assert first["cause"] == "kv-exhausted"
    assert "23 of 32 requests fit" in first["claim"]
    assert second["cause"] == "state-fixed-cost"
    assert "33 state slots take 2.41 GiB" in second["claim"]
    assert "1,056" in second["claim"]
    changes = [(one["setting"], one["to"], one["running"]) for one in data["changes"]]
    assert changes[:2] == [("kv_cache_dtype", "fp8", 32), ("slots", "28", 28)]


def test_fewer_requests_than_fit_are_no_finding(tmp_path: Path, kvroom: Kvroom) -> None:
    (tmp_path / "engine.log").write_text(TRTLLM_LOG)
    words = ("--slots", "32", "--concurrency", "16", "--prompt", "474", "--output", "256")

    done = kvroom("explain", "engine.log", *words, "--model", HYBRID, "--json")

    data = json.loads(done.stdout)
    assert "kv-exhausted" not in [one["cause"] for one in data["findings"]]
    assert data["changes"] == []


def test_a_page_longer_than_a_request_leaves_the_dtype_alone() -> None:
    one = explained("vllm", VLLM_PAGES + VLLM_WAITS)

    assert causes(one)[0] == "page-unification"
    assert "31 run, 1 waits" in one.findings[0].claim
    leave = [change for change in one.changes if not change.to]
    assert [change.setting for change in leave] == ["kv_cache_dtype"]


def test_a_dtype_that_gains_nothing_is_taken_back() -> None:
    fp8 = ("--kv-cache-dtype", "fp8")
    one = explained("vllm", VLLM_PAGES + VLLM_WAITS, flags=fp8)

    change = next(change for change in one.changes if change.setting == "kv_cache_dtype")
    assert (change.now, change.to) == ("fp8", "auto")


def test_a_page_shorter_than_a_request_is_no_finding() -> None:
    short = VLLM_PAGES.replace("1568", "64")
    assert "page-unification" not in causes(explained("vllm", short + VLLM_WAITS))


def test_a_crash_names_the_option_and_takes_it_out() -> None:
    one = explained("trtllm", CRASH, flags=("--disable_mm_encoder",))

    assert causes(one)[0] == "unsupported/crash"
    assert "disable_mm_encoder" in one.findings[0].claim + one.findings[0].remedy


def test_an_option_that_is_known_to_fail_is_named_in_its_release_only() -> None:
    flags = ("--disable_mm_encoder",)
    here = explained("trtllm", "nothing\n", flags=flags, version="1.3.0rc29")
    later = explained("trtllm", "nothing\n", flags=flags, version="1.4.0")

    assert [finding.rule for finding in here.findings] == ["known_to_fail"]
    assert later.findings == ()


def test_a_start_that_ran_out_of_memory_never_served() -> None:
    line = next(s.example for s in catalogue() if s.name == "out-of-memory-while-serving")
    served = "(APIServer pid=1) INFO:     Application startup complete.\n" + VLLM_ALL_RUN

    assert causes(explained("vllm", line))[0] == "oom-at-start"
    assert causes(explained("vllm", served + line))[0] == "runtime-oom"


# where the input does not allow an answer


def test_without_evidence_it_says_what_to_look_for() -> None:
    one = explained("vllm", "INFO nothing of interest\n", concurrency=None)

    assert one.findings == ()
    assert one.changes == ()
    assert any("--model" in text for text in one.missing)


def test_all_running_and_none_waiting_is_not_blamed_on_the_engine() -> None:
    one = explained("vllm", VLLM_ALL_RUN, concurrency=16)
    assert causes(one) == ["client-limited"]


def test_requests_that_wait_beside_a_full_pool_are_a_finding_without_the_model() -> None:
    one = explained("vllm", VLLM_WAITS)

    assert causes(one)[0] == "kv-exhausted"
    assert one.findings[0].confidence != "certain"
    assert "--model" in one.findings[0].settle


# whatever comes

EXAMPLES = st.sampled_from([one.example for one in catalogue()])
LINES = st.lists(
    st.one_of(
        EXAMPLES,
        st.sampled_from([*TRTLLM_LOG.splitlines(), VLLM_PAGES.strip(), VLLM_WAITS.strip()]),
        st.text(max_size=80),
    ),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(
    LINES,
    st.sampled_from(["vllm", "trtllm", "sglang", "llamacpp", "ollama", "openvino"]),
    st.one_of(st.none(), st.integers(1, 4096)),
)
def test_every_quote_is_a_line_of_the_log(lines: list[str], name: str, many: int | None) -> None:
    """Whatever stands in a log: nothing is claimed by a line that is not there."""
    texts = [" ".join(line.split("\n")) for line in lines]
    numbered = [LogLine(n, text) for n, text in enumerate(texts, 1)]
    load = Load(prompt=474, output=256, concurrency=many)

    one = explain(gather(Known(engine=name, load=load), read(engine(name), numbered, "f")))

    for finding in one.findings:
        assert finding.claim
        for quote in finding.quotes:
            assert quote.text in texts[quote.source.line - 1]


# the command


def test_a_piped_log_is_cited_as_stdin(kvroom: Kvroom) -> None:
    log = "".join(f"2026-10-12T10:10:{n:02d}.1Z stdout F {text}" for n, text in
                  enumerate((VLLM_PAGES, VLLM_WAITS)))  # fmt: skip

    done = kvroom("explain", "-", "--engine", "vllm", *LOAD, input=log)

    assert done.returncode == 0, done.stderr
    assert "stdin:1" in done.stdout
    assert "page-unification" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["missing.log"], "cannot read missing.log"),
        (["empty.log"], "whose log it is cannot be told"),
        (["empty.log", "--engine", "vlm"], "did you mean 'vllm'"),
        (["empty.log", "--engine", "vllm", "--card", "x", "--memory", "1GiB"], "--card and"),
        (["empty.log", "--engine", "vllm", "--flags", "'--a"], "--flags"),
        (["empty.log", "--engine", "vllm", "--available", "3 apples"], "--available"),
        (["empty.log", "--engine", "vllm", "--model", "nowhere"], "nowhere"),
        (["."], "is not a run"),
    ],
)
def test_bad_input_is_one_sentence(
    words: list[str], said: str, tmp_path: Path, kvroom: Kvroom
) -> None:
    (tmp_path / "empty.log").write_text("")

    done = kvroom("explain", *words)

    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
