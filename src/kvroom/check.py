"""All that is wrong with a matchup, found without starting anything."""

from pathlib import Path

import msgspec

from kvroom.catalogue import Complaint
from kvroom.errors import InputError
from kvroom.matchup import Contender, Matchup
from kvroom.prepare import complaints_of, resolved


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a contender before anything is started."""

    contender: str
    engine: str
    command: str = ""
    """What would be started; empty where that cannot be said."""
    complaints: list[Complaint] = []


def checked(matchup: Matchup, file: Path) -> list[Checked]:
    """All that is wrong or doubtful, contender by contender, and not only the first of it."""
    base = file.parent.resolve()
    return [_checked(matchup, contender, base) for contender in matchup.contenders]


def _checked(matchup: Matchup, contender: Contender, base: Path) -> Checked:
    found = Checked(contender=contender.name, engine=contender.engine)
    try:
        prepared = resolved(matchup, contender, base)
        said = complaints_of(prepared) if prepared.provide else []
        shown = prepared.shown()
        return msgspec.structs.replace(found, command=shown, complaints=said)
    except InputError as error:
        wrong = Complaint(what=str(error), hint=error.hint, fatal=True)
        return msgspec.structs.replace(found, complaints=[wrong])
