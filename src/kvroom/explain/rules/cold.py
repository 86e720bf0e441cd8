"""Where the time of a start goes."""

from collections.abc import Iterator

from kvroom.explain.case import Case
from kvroom.explain.finding import CIRCUMSTANCE, SAYS, Finding, logged, quote
from kvroom.units import show_seconds

PARTS = ("compile_s", "compilation_s", "dynamo_s", "graph_compile_s", "profiling_s",
         "graph_capture_s", "engine_init_s")  # fmt: skip
WORTH_IT_S, ALARMING_S = 20.0, 120.0


def cold_start(case: Case) -> Iterator[Finding]:
    """The start spends its time on compiling, tuning and capturing, not on weights.

    What is compiled can be kept: with the caches of an earlier start most of it is gone. Kernels
    that are built when a request first needs them make the first requests slow instead.
    """
    told = {name: case.number(name) for name in PARTS}
    seconds = {name: value for name, value in told.items() if value}
    longest, built = max(seconds.values(), default=0.0), case.fact("jit_module")
    alone = not case.load.given
    if longest < (WORTH_IT_S if alone else ALARMING_S):
        return
    named = ", ".join(f"{name.removesuffix('_s').replace('_', ' ')} {show_seconds(value)}"
                      for name, value in seconds.items())  # fmt: skip
    claim = f"the start compiles and captures: {named}"
    if built is not None:
        claim += f"; kernels are built on this machine ({built.value})"
    facts = [case.fact(name) for name in seconds]
    yield Finding(
        cause="jit-compile/cold-start",
        claim=claim,
        confidence="certain",
        decides=SAYS if alone else CIRCUMSTANCE,
        quotes=quote(built, *facts),
        figures=tuple(figure for fact in facts for figure in logged(fact)),
        remedy="keep the caches of compiled code over starts (the folder of VLLM_CACHE_ROOT and "
        "those of Triton and FlashInfer on a volume), and warm up before the first request counts",
        rule="cold_start",
    )
