"""A Run explained: each contender by itself, and why the best is ahead of the others."""

from collections.abc import Sequence

import msgspec

from kvroom.analyse.contender import Measured, measured
from kvroom.checkpoint.read import Checkpoint
from kvroom.explain.contenders import cases
from kvroom.explain.explain import Explanation, explain
from kvroom.explain.pair import Pair, pairs
from kvroom.store import Run


class Contended(msgspec.Struct, frozen=True, kw_only=True):
    """The explanation of one contender."""

    contender: str
    concurrency: int | None
    """The level it is explained at; None where none was measured."""
    explanation: Explanation


class Whole(msgspec.Struct, frozen=True, kw_only=True):
    """The explanation of a run."""

    run: str
    contenders: tuple[Contended, ...]
    pairs: tuple[Pair, ...]

    def of(self, contender: str) -> Explanation | None:
        """The explanation of a contender."""
        found = (one.explanation for one in self.contenders if one.contender == contender)
        return next(found, None)


def explain_run(
    run: Run,
    contenders: Sequence[Measured] | None = None,
    checkpoint: Checkpoint | None = None,
) -> Whole:
    """The explanation of a run, read now unless its contenders are given; ``checkpoint`` as for
    ``cases``."""
    found = cases(run, measured(run) if contenders is None else contenders, checkpoint)
    return Whole(
        run=str(run.path),
        contenders=tuple(
            Contended(
                contender=case.measured.contender.name if case.measured else case.engine,
                concurrency=case.level,
                explanation=explain(case),
            )
            for case in found
        ),
        pairs=tuple(pairs(found)),
    )
