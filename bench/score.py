"""How often the labelled cause of a case is the first finding, and every number right or wrong.

    python bench/score.py ../shared/cases/public [--show ID]

Of each case's file only what a user would have is given to kvroom; what is expected is compared
afterwards. A finding counts as a wrong claim if it is neither the cause nor the second one. A
number counts as not stated where no figure of that name is in the answer.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from cases import case, load
from rich.console import Console
from rich.table import Table

from kvroom.explain.explain import ASIDE, Explanation, explain
from kvroom.report.explained import show_explanation

GOAL = 0.95
CLOSE = 0.006
"""Share by which two figures may differ: labels are rounded to three digits."""


class Scored(msgspec.Struct, frozen=True, kw_only=True):
    """One case."""

    id: str
    expected: str
    causes: list[str]
    wrong: list[str]
    facts: Mapping[str, str]
    """Of each expected number: ``right``, ``wrong`` or ``not stated``."""
    error: str = ""

    @property
    def first(self) -> bool:
        """Whether the labelled cause is the first finding."""
        return self.causes[:1] == [self.expected]


def score(file: Path) -> Scored:
    """The score of one case; an exception is a wrong answer, not the end."""
    given, expected = load(file)
    try:
        found = explain(case(given))
    except Exception as error:  # noqa: BLE001 - one broken case must not hide the others
        return Scored(id=given.id, expected=expected["cause"], causes=[], wrong=[], facts={},
                      error=f"{type(error).__name__}: {error}")  # fmt: skip
    causes = [finding.cause for finding in found.findings if finding.cause not in ASIDE]
    allowed = {expected["cause"], expected.get("secondary_cause")}
    return Scored(
        id=given.id,
        expected=expected["cause"],
        causes=list(causes),
        wrong=[cause for cause in causes if cause not in allowed],
        facts=dict(_facts(expected.get("facts") or {}, _stated(found))),
    )


# Numbers ------------------------------------------------------------------------------------------

ALIKE: Mapping[str, tuple[str, ...]] = {
    "kv_block_tokens": ("block_size", "tokens_per_block"),
    "kv_blocks": ("num_blocks", "blocks"),
    "kv_tokens": ("kv_tokens", "pool_tokens", "logged_tokens"),
    "tokens_of_longest": ("true_tokens",),
    "pages_of_longest": ("blocks_per_request",),
    "bytes_per_token": ("bytes_per_token",),
    "max_concurrency": ("max_concurrency",),
    "pages_per_request": ("blocks_per_request", "blocks_per_short_request"),
    "fit": ("requests_that_fit", "fit"),
    "waiting": ("requests_waiting", "waiting", "queued"),
    "running": ("running", "effective_running"),
    "state_slots": ("state_slots", "max_mamba_cache_size"),
    "slots": ("slots", "parallel"),
    "compile_s": ("compile_seconds", "compile_s"),
    "graph_capture_s": ("graph_capture_s", "graphs_s"),
    "engine_init_s": ("init_engine_s",),
    "largest_graph": ("largest_graph",),
    "padding_layers": ("padding_layers",),
}
"""Our names -> the beginnings of the labels' names."""


def _stated(found: Explanation) -> dict[str, set[float]]:
    """Every number of the answer, by name."""
    stated: dict[str, set[float]] = {}
    for one in found.capacities:
        for value in (one.planned, one.logged, one.observed):
            if value is not None:
                stated.setdefault(one.name, set()).add(float(value))
    for finding in found.findings:
        for figure in finding.figures:
            if isinstance(figure.value, int | float):
                stated.setdefault(figure.name, set()).add(float(figure.value))
    return stated


def _facts(
    expected: Mapping[str, Any], stated: Mapping[str, set[float]]
) -> Iterator[tuple[str, str]]:
    for name, value in expected.items():
        if isinstance(value, bool | str):
            continue
        ours = [number for known in _names(name) for number in stated.get(known, ())]
        if not ours:
            yield name, "not stated"
        else:
            yield name, "right" if any(_equal(number, value) for number in ours) else "wrong"


def _names(label: str) -> list[str]:
    """Our names for a label's."""
    return [
        ours
        for ours, labels in ALIKE.items()
        if label == ours or label in labels or any(label == f"{one}_range" for one in labels)
    ]


def _equal(ours: float, label: Any) -> bool:
    if isinstance(label, list):
        return bool(min(label) <= ours <= max(label))
    return bool(abs(ours - label) <= CLOSE * abs(label))


# The table ----------------------------------------------------------------------------------------


def main() -> None:
    """Print the table; the exit code says whether the goal is met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", type=Path)
    parser.add_argument("--show", metavar="ID", help="Print the explanation of one case.")
    given = parser.parse_args()
    files = sorted(given.cases.glob("*/case.yaml"))
    if not files:
        sys.exit(f"{given.cases}: no */case.yaml in it")
    out = Console(width=None if sys.stdout.isatty() else 140)
    if given.show:
        for file in files:
            if file.parent.name.startswith(given.show):
                show_explanation(explain(case(load(file)[0])), out)
        return
    scored = [score(file) for file in files]
    out.print(_table(scored))
    right = sum(one.first for one in scored)
    wrong = sum(len(one.wrong) for one in scored)
    _summary(scored, right, wrong, out)
    sys.exit(0 if right >= GOAL * len(scored) and not wrong else 1)


def _table(scored: list[Scored]) -> Table:
    table = Table("case", "labelled cause", "first", "findings", "wrong claims", "numbers")
    for one in scored:
        counts = Counter(one.facts.values())
        numbers = ", ".join(f"{count} {word}" for word, count in sorted(counts.items()))
        table.add_row(
            one.id,
            one.expected,
            "yes" if one.first else "no",
            one.error or ", ".join(one.causes) or "not enough evidence",
            ", ".join(one.wrong),
            numbers,
        )
    return table


def _summary(scored: list[Scored], right: int, wrong: int, out: Console) -> None:
    among = sum(one.expected in one.causes for one in scored)
    silent = sum(not one.causes for one in scored)
    facts = Counter(word for one in scored for word in one.facts.values())
    total = len(scored)
    out.print(f"{total} cases: cause is the first finding in {right} ({right / total:.0%}), "
              f"among the findings in {among} ({among / total:.0%}), "
              f"not enough evidence in {silent}.")  # fmt: skip
    out.print(f"{wrong} findings were wrong.")
    out.print(
        f"Numbers: {facts['right']} right, {facts['wrong']} wrong, "
        f"{facts['not stated']} not stated."
    )
    for one in scored:
        names = [name for name, word in one.facts.items() if word == "wrong"]
        if names:
            out.print(f"  {one.id}: wrong: {', '.join(names)}")


if __name__ == "__main__":
    main()
