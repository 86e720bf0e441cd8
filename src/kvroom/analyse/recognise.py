"""Whose log it is: the engine that signs it, and whose reader finds most in its beginning."""

import re
from collections.abc import Iterable
from itertools import islice

from kvroom import engines
from kvroom.errors import InputError
from kvroom.records import LogLine

MOST_LINES = 20_000
COMMON = ("error", "ready", "version", "jit_module")
"""What several engines say in the same words."""


def recognise(lines: Iterable[LogLine], file: str) -> str:
    """The name of the engine that wrote these lines; InputError if none or several might have."""
    beginning = list(islice(lines, MOST_LINES))
    scores = {name: _score(name, beginning, file) for name in engines.names()}
    best = max(scores.values())
    found = [name for name, score in scores.items() if score == best and any(best)]
    if len(found) == 1:
        return found[0]
    which = f"{' and '.join(found)} print such lines" if found else "no engine is known to print it"
    raise InputError(f"{file}: whose log it is cannot be told: {which}", "name it with --engine")


def _score(name: str, lines: list[LogLine], file: str) -> tuple[bool, int]:
    """Whether the engine signs it, and how many different things its reader finds."""
    engine = engines.engine(name)
    signature = re.compile(engine.log_signature) if engine.log_signature else None
    signed = signature is not None and any(signature.search(line.text) for line in lines)
    found = {fact.name for fact in engine.read_log(lines, file)} - set(COMMON)
    return signed, len(found)
