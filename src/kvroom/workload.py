"""What arrives in which order: a pure function of the workload and its seed."""

from collections.abc import Iterator

import msgspec

from kvroom.matchup import Workload


class PlannedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request before it exists; ``ordinal`` is unique in the run and picks its prompt."""

    ordinal: int
    due_ns: int
    prompt_tokens: int
    output_tokens: int


class PlannedRound(msgspec.Struct, frozen=True, kw_only=True):
    """The ``number``-th measured wave at a level."""

    concurrency: int
    number: int
    requests: tuple[PlannedRequest, ...]

    @property
    def key(self) -> str:
        """The name of the round's file, such as ``c032-1``."""
        return f"c{self.concurrency:03d}-{self.number}"

    @property
    def output_tokens(self) -> int:
        """All tokens the round asks for."""
        return sum(request.output_tokens for request in self.requests)


def warmup(workload: Workload) -> PlannedRound:
    """The wave that is thrown away; its prompts are used nowhere else."""
    return _wave(workload, workload.warmup_requests, 0, 0)


def waves(workload: Workload) -> list[PlannedRound]:
    """All measured rounds in order: for each level its rounds, all of a round due together."""
    return list(_waves(workload))


def _waves(workload: Workload) -> Iterator[PlannedRound]:
    ordinal = workload.warmup_requests
    for level in workload.concurrency:
        for number in range(1, workload.rounds_at(level) + 1):
            yield _wave(workload, level, number, ordinal)
            ordinal += level


def _wave(workload: Workload, size: int, number: int, first: int) -> PlannedRound:
    requests = tuple(
        PlannedRequest(
            ordinal=first + i,
            due_ns=0,
            prompt_tokens=workload.prompt_tokens,
            output_tokens=workload.output_tokens,
        )
        for i in range(size)
    )
    return PlannedRound(concurrency=size, number=number, requests=requests)
