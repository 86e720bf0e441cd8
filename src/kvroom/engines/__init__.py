"""The adapters: one module an engine, found by its file name and imported only when asked for."""

import difflib
import importlib
import pkgutil

from kvroom.engine import Engine
from kvroom.errors import InputError


def names() -> list[str]:
    """The engines kvroom knows."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))


def engine(name: str) -> Engine:
    """The adapter of that name; InputError names the nearest one there is."""
    known = names()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "known engines: " + ", ".join(known)
        raise InputError(f"unknown engine {name!r}", hint)
    adapter = importlib.import_module(f"{__name__}.{name}").ENGINE
    assert isinstance(adapter, Engine)
    return adapter
