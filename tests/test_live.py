"""An engine seen from outside: its gauges, its memory, and what of it belongs to which level."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import Kvroom
from kvroom import engines, observe
from kvroom.analyse.live import Window, from_log, live
from kvroom.observe import device_samples, process_use
from kvroom.records import DeviceSample, LogLine, Sample
from kvroom.sample import read_gauges
from kvroom.store import Run

VLLM = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 13.0
vllm:num_requests_running{engine="1",model_name="m"} 2.0
vllm:num_requests_waiting{engine="0",model_name="m"} 3.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 3.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.963
# TYPE vllm:num_preemptions counter
vllm:num_preemptions_total{engine="0",model_name="m"} 7.0
vllm:num_preemptions_created{engine="0",model_name="m"} 1.7e+09
"""


def gauges_of(engine: str, text: str) -> dict[str, float]:
    gauges = engines.engine(engine).gauges
    assert gauges is not None
    return read_gauges(text, gauges.names)


# gauges


def test_metrics_in_our_words() -> None:
    """Two engines behind one endpoint: requests add up, of a usage the fullest counts."""
    assert gauges_of("vllm", VLLM) == {
        "running": 15,
        "waiting": 3,
        "kv_cache_usage": 0.963,
        "preempted": 7,
    }


@pytest.mark.parametrize(
    "text",
    ["", "{}", "vllm:num_requests_running", "vllm:num_requests_running{ 3", "\x00" * 99, "<html>"],
)
def test_what_is_no_metric_is_left_out(text: str) -> None:
    assert gauges_of("vllm", text) == {}


@given(st.text(max_size=300))
def test_any_text_may_stand_there(text: str) -> None:
    gauges_of("llamacpp", "llamacpp:requests_processing " + text)


# levels


def at(second: float, **gauges: float) -> Sample:
    return Sample(at_ns=round(second * 1e9), gauges=gauges, memory_bytes=100, cpu_s=second)


def window(level: int, start: float, end: float) -> Window:
    return Window(level, round(start * 1e9), round(end * 1e9))


def test_a_sample_belongs_to_the_round_it_fell_into() -> None:
    samples = [at(0.5, running=1), at(1.5, running=4, waiting=2), at(2.5, running=9), at(3.5)]
    found = live(samples, [window(1, 0, 1), window(8, 1.2, 2.0), window(8, 3, 4)])

    assert found[1].running_max == 1
    assert (found[8].running_max, found[8].waiting_max, found[8].samples) == (4, 2, 2)
    assert found[1].waiting_max is None


def test_a_counter_counts_what_it_rose_during_the_rounds() -> None:
    """10 before the first round, 12 after it; 5 more between the rounds do not count."""
    samples = [at(n, preempted=value) for n, value in enumerate([10, 11, 12, 17, 17, 18])]

    assert live(samples, [window(4, 0.2, 1.8), window(4, 3.1, 4.9)])[4].preempted == 3


def test_levels_that_nobody_looked_at_are_left_out() -> None:
    assert live([at(9)], [window(1, 0, 1)]) == {}
    assert live([], [window(1, 0, 1)]) == {}


def test_an_engine_without_an_endpoint_for_it_is_believed_from_its_log() -> None:
    """TensorRT-LLM's iteration log; lines without a time tell nothing."""
    lines = [
        LogLine(1, "iter = 1, num_scheduled_requests = 23, kv_cache_util = 0.991, states", 2.0),
        LogLine(2, "iter = 2, num_scheduled_requests = 9, kv_cache_util = 0.388, states", 3.0),
        LogLine(3, "iter = 3, num_scheduled_requests = 32, kv_cache_util = 0.999, states"),
    ]
    facts = engines.engine("trtllm").read_log(lines, "engine.log")

    found = live(from_log(facts, started_ns=1_000), [Window(32, 0, 4_000_000_000)])[32]

    assert (found.samples, found.running_max, found.kv_cache_usage_max) == (2, 23, 0.991)
    assert [moment.running for moment in found.series] == [23, 9]


def test_percentages_become_shares() -> None:
    line = "Running: 9 reqs, Waiting: 7 reqs, GPU KV cache usage: 98.5%"
    (sample,) = from_log(engines.engine("vllm").read_log([LogLine(1, line, 1.0)], "engine.log"), 0)

    assert sample.gauges == {"running": 9, "waiting": 7, "kv_cache_usage": 0.985}


def test_the_fullest_device_is_told() -> None:
    cards = [DeviceSample(name="x", memory_bytes=n << 30) for n in (3, 7)]
    sample = Sample(at_ns=1, devices=cards)

    assert live([sample], [Window(1, 0, 2)])[1].device_memory_bytes_max == 7 << 30


# looking


def test_our_own_use_is_seen() -> None:
    memory, cpu_s = process_use(os.getpid())

    assert memory is not None
    assert memory > 10 << 20
    assert cpu_s is not None
    assert cpu_s > 0


def test_a_process_that_is_gone_tells_nothing() -> None:
    assert process_use(2**22 - 1) == (None, None)


def test_devices_are_a_list_even_where_there_are_none() -> None:
    assert isinstance(device_samples(), list)


def test_a_card_that_does_not_tell_its_memory_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chips that share memory with the processor answer "not supported"."""

    def memory(handle: int) -> SimpleNamespace:
        if handle == 0:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return SimpleNamespace(total=24 << 30, used=3 << 30)

    def unsupported(*_: object) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    for name in dir(pynvml):
        if name.startswith("nvmlDeviceGet"):
            monkeypatch.setattr(pynvml, name, unsupported)
    monkeypatch.setattr(observe, "_nvml", lambda: True)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: 2)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lambda index: index)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", memory)

    assert [device.memory_bytes for device in observe.devices()] == [24 << 30]
    assert device_samples() == [DeviceSample(name="NVIDIA", memory_bytes=3 << 30)]


def test_a_run_keeps_what_was_seen(
    write_matchup: Callable[..., Path], kvroom: Kvroom, tmp_path: Path
) -> None:
    matchup = write_matchup({"a": "well"}, sample_s=0.01, workload={"output_tokens": 200})
    told = json.loads(kvroom("run", matchup, "-o", "r", "--json").stdout)
    run = Run.open(tmp_path / "r")
    samples = run.samples(run.starts("a")[-1])

    assert len(samples) > 2
    assert all(sample.memory_bytes for sample in samples)
    assert {sample.gauges.get("running") for sample in samples} == {3}
    assert [s.at_ns for s in samples] == sorted(s.at_ns for s in samples)
    assert any(level["live"] for level in told["contenders"][0]["levels"])


def test_nobody_looks_if_told_so(
    write_matchup: Callable[..., Path], kvroom: Kvroom, tmp_path: Path
) -> None:
    assert kvroom("run", write_matchup({"a": "well"}, sample_s=0), "-o", "r").returncode == 0
    assert not (tmp_path / "r" / "a" / "samples.jsonl").exists()


def test_a_line_cut_off_by_a_kill_is_left_out(a_run: Run) -> None:
    (files,) = a_run.starts("a")
    files.samples.write_text('{"at_ns":1,"gauges":{"running":2}}\n{"at_ns":2,"gau')

    assert [sample.gauges for sample in a_run.samples(files)] == [{"running": 2}]
