"""Our pages against vLLM's own planner, which nobody here wrote, on layers of every make-up."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conftest import Oracle
from kvroom.engines.vllm.pages import Spec, pool
from kvroom.errors import InputError

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1200)]

Case = dict[str, Any]


@pytest.fixture(scope="module")
def planner(vllm_python: Path) -> Iterator[Oracle]:
    with Oracle(vllm_python, "vllm_planner.py") as ask:
        yield ask


@st.composite
def attention_layers(draw: st.DrawFn, block: int) -> Case:
    kind = draw(st.sampled_from(["full", "full", "sliding", "sliding", "chunked", "mla"]))
    layer: Case = {"kind": kind, "layers": draw(st.integers(1, 48)), "block": block}
    if kind == "mla":
        return layer | {"heads": 1, "size": draw(st.sampled_from([576, 320, 192])), "bytes": 2}
    return layer | {
        "heads": draw(st.sampled_from([1, 2, 4, 8, 16])),
        "size": draw(st.sampled_from([64, 96, 128, 256, 512])),
        "bytes": draw(st.sampled_from([1, 2])),
        "window": draw(st.sampled_from([128, 512, 1024, 4096])),
    }


@st.composite
def cases(draw: st.DrawFn) -> Case:
    block = draw(st.sampled_from([16, 32, 64, 784, 1568]))
    layers = draw(st.lists(attention_layers(block), min_size=1, max_size=3))
    if draw(st.booleans()):
        layers.append(draw(state_layers(layers, block)))
    return {
        "layers": layers,
        "available": draw(st.integers(1 << 20, 40 << 30)),
        "max_len": draw(st.integers(1, 1 << 18)),
        "in_flight": draw(st.sampled_from([512, 2048, 4096, 16384])),
    }


@st.composite
def state_layers(draw: st.DrawFn, others: list[Case], block: int) -> Case:
    """States padded to the widest attention page, as vLLM's platform code pads them."""
    page = max(page_of(layer) for layer in others)
    return {
        "kind": "mamba",
        "layers": draw(st.integers(1, 60)),
        "block": block,
        "state_bytes": draw(st.integers(1, page)),
        "page": page,
        "mode": draw(st.sampled_from(["align", "none"])),
        "drafts": draw(st.integers(0, 4)),
    }


def page_of(layer: Case) -> int:
    sides = 1 if layer["kind"] == "mla" else 2
    return int(layer["block"] * layer["heads"] * layer["size"] * sides * layer["bytes"])


def spec_of(layer: Case) -> Spec:
    if layer["kind"] == "mamba":
        states = (2 if layer["mode"] == "align" else 1) + layer["drafts"]
        block, page = layer["block"], layer["page"]
        return Spec(kind="mamba", block=block, page=page, states=states)
    return Spec(
        kind=layer["kind"],
        block=layer["block"],
        page=page_of(layer),
        layout=(layer["heads"], layer["size"], layer["bytes"]),
        window=layer["window"] if layer["kind"] in ("sliding", "chunked") else 0,
    )


def ours(case: Case) -> dict[str, Any]:
    specs = [spec_of(layer) for layer in case["layers"] for _ in range(layer["layers"])]
    try:
        made = pool(specs, case["available"], case["in_flight"])
    except InputError:
        return {"error": "pages"}
    if made.pages(case["max_len"]) > made.blocks - 1:
        longest = made.longest(case["max_len"], reserve=1)
        return {"error": f"maximum model length is {longest}." if longest else "no length fits"}
    concurrency = made.concurrency(case["max_len"])
    return {
        "blocks": made.blocks,
        "groups": sorted(len(group.specs) for group in made.groups),
        "tokens": int(concurrency * case["max_len"]),
        "concurrency": concurrency,
    }


@settings(
    max_examples=600,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(case=cases())
def test_our_plan_is_vllms_plan(planner: Oracle, case: Case) -> None:
    theirs, mine = planner(case), ours(case)

    if "error" in theirs:
        assert "error" in mine, theirs
        if "estimated maximum model length" in theirs["error"]:
            assert mine["error"] in theirs["error"]
    else:
        assert mine == theirs
