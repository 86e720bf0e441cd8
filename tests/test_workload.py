"""The plan of a run is a function of the workload alone."""

from hypothesis import given
from hypothesis import strategies as st

from kvroom.matchup import Workload
from kvroom.workload import warmup, waves


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    levels = draw(st.lists(st.integers(1, 40), min_size=1, max_size=5, unique=True))
    rounds = draw(
        st.one_of(st.integers(1, 4), st.fixed_dictionaries({n: st.integers(1, 4) for n in levels}))
    )
    return Workload(
        prompt_tokens=draw(st.integers(1, 99)),
        output_tokens=draw(st.integers(1, 99)),
        concurrency=tuple(levels),
        rounds=rounds,
        warmup_requests=draw(st.integers(0, 3)),
    )


@given(workloads())
def test_every_level_has_its_rounds_in_order(workload: Workload) -> None:
    planned = [(r.concurrency, r.number) for r in waves(workload)]

    assert planned == [
        (level, number)
        for level in workload.concurrency
        for number in range(1, workload.rounds_at(level) + 1)
    ]


@given(workloads())
def test_every_request_of_a_run_has_an_ordinal_of_its_own(workload: Workload) -> None:
    rounds = [warmup(workload), *waves(workload)]
    ordinals = [request.ordinal for planned in rounds for request in planned.requests]

    assert ordinals == list(range(len(ordinals)))


@given(workloads())
def test_a_round_is_as_many_requests_as_its_level_all_due_at_once(workload: Workload) -> None:
    for planned in waves(workload):
        assert len(planned.requests) == planned.concurrency
        assert {request.due_ns for request in planned.requests} == {0}
        assert planned.output_tokens == planned.concurrency * workload.output_tokens


@given(workloads())
def test_the_keys_of_rounds_are_file_names_of_their_own(workload: Workload) -> None:
    keys = [planned.key for planned in waves(workload)]

    assert len(set(keys)) == len(keys)
    assert all(key.replace("-", "").isalnum() for key in keys)
