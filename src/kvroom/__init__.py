"""Which LLM serving engine, with which settings, is best for your model, card and load, and why.

The public names, each imported when it is first asked for:

    matchup = load_matchup(Path("matchup.yaml"))
    run = start_run(matchup, Path("matchup.yaml"), Path("runs/mine"))
    conduct(run, watcher)
    for contender in measured(Run.open(Path("runs/mine"))): ...
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvroom.analyse.compare import verdict
    from kvroom.analyse.contender import Measured, measured
    from kvroom.errors import EngineError, InputError, KvroomError
    from kvroom.matchup import Matchup, load_matchup
    from kvroom.report.data import data
    from kvroom.rounds import conduct, start_run
    from kvroom.store import Run

__version__ = "0.1.0"

_HOMES = {
    "EngineError": "errors",
    "InputError": "errors",
    "KvroomError": "errors",
    "Matchup": "matchup",
    "Measured": "analyse.contender",
    "Run": "store",
    "conduct": "rounds",
    "data": "report.data",
    "load_matchup": "matchup",
    "measured": "analyse.contender",
    "start_run": "rounds",
    "verdict": "analyse.compare",
}

__all__ = [
    "EngineError",
    "InputError",
    "KvroomError",
    "Matchup",
    "Measured",
    "Run",
    "conduct",
    "data",
    "load_matchup",
    "measured",
    "start_run",
    "verdict",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"kvroom has no {name!r}")
    return getattr(import_module(f"kvroom.{_HOMES[name]}"), name)
