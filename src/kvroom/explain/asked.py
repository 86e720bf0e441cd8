"""The options of ``kvroom explain`` and a log -> a case."""

import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from kvroom import engines
from kvroom.analyse.recognise import recognise
from kvroom.checkpoint.read import read_checkpoint
from kvroom.errors import InputError
from kvroom.explain.case import Case, Load
from kvroom.explain.gather import Known, gather
from kvroom.explain.log import read
from kvroom.explain.signatures import marks
from kvroom.loglines import log_lines
from kvroom.memory import card, size
from kvroom.options import Options
from kvroom.settings import ASKED, Settings

STDIN = "-"
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*=")


def asked(target: str, given: Mapping[str, Any]) -> Case:
    """The case of a log and what was said beside it; InputError says which option is wrong."""
    with log_file(target) as (path, name):
        engine = engines.engine(given["engine"] or recognise(log_lines(path), name))
        log = read(engine, log_lines(path, marks=(*engine.log_marks, *marks(engine.name))), name)
    return gather(_known(engine.name, given), log)


@contextmanager
def log_file(target: str) -> Iterator[tuple[Path, str]]:
    """The file to read and the name to cite; what is piped in is kept on disk meanwhile."""
    if target != STDIN:
        yield Path(target), Path(target).name
        return
    with tempfile.TemporaryDirectory(prefix="kvroom-") as folder:
        kept = Path(folder) / "stdin"
        with kept.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        yield kept, "stdin"


def _known(engine: str, given: Mapping[str, Any]) -> Known:
    if given["card"] and given["memory"]:
        raise InputError("both --card and --memory are given", "name one of them")
    named = card(given["card"]) if given["card"] else None
    return Known(
        engine=engine,
        version=given["engine_version"],
        settings=Settings(**{name: given[name] for name in ASKED if given[name] is not None}),
        options=flags(given["flags"]),
        load=Load(prompt=given["prompt"], output=given["output"], concurrency=given["concurrency"]),
        checkpoint=read_checkpoint(given["model"]) if given["model"] else None,
        available=size(given["available"], "--available"),
        memory=named.memory if named else size(given["memory"], "--memory"),
        card=named.name if named else "",
        on_cpu=given["on_cpu"],
    )


def flags(texts: tuple[str, ...]) -> Options:
    """Words as on a command line: ``NAME=value`` before the options are variables."""
    try:
        words = list(chain.from_iterable(shlex.split(text) for text in texts))
    except ValueError as error:
        raise InputError(f"--flags: {str(error).lower()}", "quote it as for a shell") from None
    variables = [word for word in words if _VARIABLE.match(word)]
    return Options(
        arguments=tuple(word for word in words if word not in variables),
        env=dict(word.split("=", 1) for word in variables),
    )
