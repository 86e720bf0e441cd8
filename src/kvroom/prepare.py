"""From a contender of the matchup to what would be started, checked before anything is."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kvroom import engines, servers
from kvroom.control import api_key
from kvroom.engine import Engine, Place
from kvroom.errors import InputError
from kvroom.launch import LOOPBACK, check_port, find_program, has_secret
from kvroom.load.request import Address
from kvroom.matchup import Contender, Matchup, Model, Provide, Settings
from kvroom.provide.environment import given_python
from kvroom.provide.model import check_model

SERVERS = Path(servers.__file__).parent
SERVED_MODEL = "model"
"""The name launched engines serve the model under."""


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """One contender, resolved and checked."""

    contender: Contender
    engine: Engine
    settings: Settings
    provide: Provide | None
    """Where the engine comes from; None where nothing is started."""
    model: Model | None
    base: Path
    """Where relative paths start."""

    def arguments(self, model: str, port: int) -> list[str]:
        """The engine's arguments for a model and a port, verbatim flags last."""
        place = Place(model=model, served_model=SERVED_MODEL, host=LOOPBACK, port=port)
        return self.engine.arguments(place, self.settings, self.contender.words)

    def program(self, python: str) -> list[str]:
        """What stands before the arguments; ``python`` is that of the environment, if any."""
        home = self.engine.home
        assert home is not None
        assert self.provide is not None
        if self.provide.path is not None:
            return [find_program(self.provide.path), *home.subcommand]
        return [python, *(word.replace("{servers}", str(SERVERS)) for word in home.within)]

    def shown(self) -> str:
        """One line for people: what would be started, or where it already runs."""
        if self.provide is None:
            return f"attach to {self.contender.url}"
        model = self.model.path or self.model.file if self.model else "MODEL"
        words = self.program("python") + self.arguments(str(model), self.contender.port or 0)
        command = " ".join("PORT" if word == "0" else word for word in words)
        if self.provide.pip is not None:
            return f"in an environment with {', '.join(self.provide.pip)}: {command}"
        return f"in {self.provide.env}: {command}" if self.provide.env else command


def prepare(matchup: Matchup, file: Path, base: Path) -> list[Prepared]:
    """All contenders resolved; InputError names the file, the contender and what is wrong.

    ``base`` is where relative paths start: the folder the matchup came from.
    """
    prepared = []
    for contender in matchup.contenders:
        try:
            prepared.append(_prepare(matchup, contender, base))
        except InputError as error:
            raise InputError(f"{file}: {contender.name}: {error}", error.hint) from None
    return prepared


def _prepare(matchup: Matchup, contender: Contender, base: Path) -> Prepared:
    engine = engines.engine(contender.engine)
    attached = contender.url is not None
    if engine.home is None and not attached:
        raise InputError(f"{engine.name} is not started by kvroom", "give its address under url:")
    if not attached and matchup.weights is None:
        raise InputError("there is no model to serve", "name one at the top: model: PATH")
    result = Prepared(
        contender=contender,
        engine=engine,
        settings=matchup.settings_of(contender),
        provide=None if attached else _origin(contender, engine),
        model=None if attached else matchup.weights,
        base=base,
    )
    _check(result)
    return result


def _check(prepared: Prepared) -> None:
    """What can be known to fail is refused now."""
    contender, provide = prepared.contender, prepared.provide
    if contender.url is not None:
        Address.of(contender.url)
        api_key(contender.api_key_env)
        if contender.settings.given():
            raise InputError("with 'url' the engine already runs, so 'settings' cannot be set")
        return
    assert provide is not None
    if has_secret(contender.words, contender.env):
        raise InputError(
            "a key in 'flags' or 'env' would be kept with the run",
            "export it in the environment of kvroom, which the engine inherits",
        )
    prepared.arguments("", 0)
    if provide.path is not None:
        find_program(provide.path)
    if provide.env is not None:
        given_python(provide.env, prepared.base)
    if contender.port is not None:
        check_port(contender.port)
    assert prepared.model is not None
    check_model(prepared.model, prepared.engine, prepared.base)


def _origin(contender: Contender, engine: Engine) -> Provide:
    """Where the engine comes from: as said; else from the PATH; else from its version's wheel."""
    home = engine.home
    assert home is not None
    if contender.provide is not None:
        if contender.provide.path is not None and not home.program:
            raise InputError(f"{engine.name} has no program of its own", _pip_hint(engine))
        return contender.provide
    if home.program and shutil.which(home.program):
        return Provide(path=home.program)
    if contender.version is not None and home.packages is not None:
        return Provide(pip=home.packages(contender.version))
    missing = f"{home.program!r} is not on the PATH" if home.program else "nothing is installed"
    raise InputError(f"{missing}, and no version says what to install", _pip_hint(engine))


def _pip_hint(engine: Engine) -> str:
    packages: Sequence[str] = ()
    if engine.home is not None and engine.home.packages is not None:
        packages = engine.home.packages("VERSION")
    return f"say provide: {{pip: [{', '.join(packages) or '...'}]}} with a version"
