"""From a contender of the matchup to what would be started, checked before anything is."""

import re
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from kvroom import engines, servers
from kvroom.catalogue import Complaint, complaints, version_of
from kvroom.control import api_key
from kvroom.engine import Engine, Place
from kvroom.errors import InputError
from kvroom.launch import LOOPBACK, check_port, find_program, has_secret
from kvroom.load.request import Address
from kvroom.matchup import Contender, Matchup, Model, Provide
from kvroom.options import Options
from kvroom.provide.container import container_program
from kvroom.provide.environment import given_python, installed_version
from kvroom.provide.model import check_model, known_architecture, model_of
from kvroom.settings import Settings

SERVERS = Path(servers.__file__).parent
_TAG = re.compile(r":v?(\d+\.\d+[\w.]*)$")
SERVED_MODEL = "model"
"""The name launched engines serve the model under."""
SOME_PORT = 65_536
"""No port at all: it stands for one that is chosen when the engine starts."""


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
    complaints: tuple[Complaint, ...] = ()
    """What is wrong or doubtful about its options; none of them fatal once a run has begun."""

    def options(self, place: Place) -> Options:
        """What the engine is started with at a place, verbatim options last."""
        contender = self.contender
        verbatim = Options(
            arguments=tuple(contender.words), config=contender.config, env=contender.env
        )
        return self.engine.options(place, self.settings, verbatim)

    def program(self, python: str) -> list[str]:
        """What stands before the arguments; ``python`` is that of the environment, if any."""
        home = self.engine.home
        assert home is not None
        assert self.provide is not None
        if self.provide.image is not None:
            return [home.image_program or home.program, *home.subcommand]
        if self.provide.path is not None:
            return [find_program(self.provide.path), *home.subcommand]
        return [python, *(word.replace("{servers}", str(SERVERS)) for word in home.within)]

    def shown(self) -> str:
        """For people: what would be started, or where it already runs."""
        if self.provide is None:
            return f"attach to {self.contender.url}"
        options = self.options(self.somewhere())
        named = [f"{name}={value}" for name, value in options.env.items()]
        words = [*named, *self.program("python"), *options.arguments]
        command = " ".join(words).replace(str(SOME_PORT), "PORT")
        origin = self._origin_shown()
        config = f"\n  CONFIG: {msgspec.json.encode(options.config).decode()}"
        return f"{origin}{command}{config if options.config else ''}"

    def _origin_shown(self) -> str:
        provide = self.provide
        assert provide is not None
        if provide.pip is not None:
            return f"in an environment with {', '.join(provide.pip)}: "
        if provide.image is not None:
            return f"in a container of {provide.image}: "
        return f"in {provide.env}: " if provide.env else ""

    def somewhere(self) -> Place:
        """A place as good as any, for showing and checking what would be started."""
        model = self.model
        name = (model.path or model.hub or model.file or "MODEL") if model else "MODEL"
        port = self.contender.port or SOME_PORT
        return Place(
            model=name, served_model=SERVED_MODEL, host=LOOPBACK, port=port, config="CONFIG",
            files="RUN",
        )  # fmt: skip


def prepare(matchup: Matchup, file: Path, base: Path) -> list[Prepared]:
    """All contenders resolved; InputError names the file, the contender and what is wrong.

    ``base`` is where relative paths start: the folder the matchup came from.
    """
    return [prepare_one(matchup, contender, file, base) for contender in matchup.contenders]


def prepare_one(matchup: Matchup, contender: Contender, file: Path, base: Path) -> Prepared:
    """One contender resolved; InputError as for all of them."""
    try:
        return _prepare(matchup, contender, base)
    except InputError as error:
        raise InputError(f"{file}: {contender.name}: {error}", error.hint) from None


def _prepare(matchup: Matchup, contender: Contender, base: Path) -> Prepared:
    prepared = resolved(matchup, contender, base)
    return _judged(prepared) if prepared.provide else prepared


def resolved(matchup: Matchup, contender: Contender, base: Path) -> Prepared:
    """A contender with its adapter, its settings and where its engine comes from; InputError if it
    cannot be."""
    engine = engines.engine(contender.engine)
    attached = contender.url is not None
    if engine.home is None and not attached:
        raise InputError(f"{engine.name} is not started by kvroom", "give its address under url:")
    if not attached and matchup.model is None:
        raise InputError("there is no model to serve", "name one at the top: model: PATH")
    result = Prepared(
        contender=contender,
        engine=engine,
        settings=_with_draft_at(base, matchup.settings_of(contender)),
        provide=None if attached else _origin(contender, engine),
        model=None if attached or matchup.model is None else model_of(matchup.model, base),
        base=base,
    )
    if attached:
        _check_attached(contender)
    else:
        _check_started(result)
    return result


def _with_draft_at(base: Path, settings: Settings) -> Settings:
    """A draft model's path starts where all relative paths do; a name on the hub stays one."""
    guess = settings.speculative
    if guess is None or guess.model is None or not (base / guess.model).exists():
        return settings
    found = msgspec.structs.replace(guess, model=str((base / guess.model).resolve()))
    return msgspec.structs.replace(settings, speculative=found)


def _judged(prepared: Prepared) -> Prepared:
    """With what is said about its options; InputError for the first that cannot work."""
    found = tuple(complaints_of(prepared))
    for one in found:
        if one.fatal:
            raise InputError(one.what, one.hint)
    return replace(prepared, complaints=found)


def complaints_of(prepared: Prepared) -> list[Complaint]:
    """What is wrong or doubtful about the options of a contender that would be started."""
    engine, settings = prepared.engine, prepared.settings
    options = prepared.options(prepared.somewhere())
    found = complaints(engine, _version(prepared), options)
    model = prepared.model and known_architecture(prepared.model, prepared.base)
    if model:
        found += [Complaint(what=said) for said in engine.cautions(settings, model)]
    return found


def _version(prepared: Prepared) -> str | None:
    """The engine's version as far as it is known before it runs."""
    contender, provide = prepared.contender, prepared.provide
    assert provide is not None
    if contender.version is not None:
        return contender.version
    if provide.pip is not None:
        return version_of(prepared.engine, provide.pip)
    if provide.env is not None:
        return installed_version(given_python(provide.env, prepared.base), prepared.engine.name)
    tag = _TAG.search(provide.image or "")
    return tag[1] if tag else None


def _check_attached(contender: Contender) -> None:
    assert contender.url is not None
    Address.of(contender.url)
    api_key(contender.api_key_env)
    if contender.settings.given():
        raise InputError("with 'url' the engine already runs, so 'settings' cannot be set")


def _check_started(prepared: Prepared) -> None:
    """What can be known to fail is refused now."""
    contender, provide = prepared.contender, prepared.provide
    assert provide is not None
    if has_secret(contender.words, contender.env):
        raise InputError(
            "a key in 'flags' or 'env' would be kept with the run",
            "export it in the environment of kvroom, which the engine inherits",
        )
    prepared.options(prepared.somewhere())
    if provide.path is not None:
        find_program(provide.path)
    if provide.env is not None:
        given_python(provide.env, prepared.base)
    if provide.image is not None:
        container_program(provide)
    if contender.port is not None:
        check_port(contender.port)
    assert prepared.model is not None
    check_model(prepared.model, prepared.engine, prepared.base)


def _origin(contender: Contender, engine: Engine) -> Provide:
    """Where the engine comes from: as said; else from the PATH; else from its version's wheel."""
    home, given = engine.home, contender.provide
    assert home is not None
    if given is not None:
        if given.path is not None and not home.program:
            raise InputError(f"{engine.name} has no program of its own", _hint(engine))
        if given.image is not None and not home.program:
            raise InputError(f"{engine.name} is not started in a container", _hint(engine))
        if (given.pip or given.env) and not home.within:
            raise InputError(
                f"{engine.name} is not started inside a Python environment",
                "give its program (path) or an image",
            )
        return given
    if home.program and shutil.which(home.program):
        return Provide(path=home.program)
    if contender.version is not None and home.packages is not None:
        return Provide(pip=home.packages(contender.version))
    missing = f"{home.program!r} is not on the PATH" if home.program else "nothing is installed"
    raise InputError(f"{missing}, and no version says what to install", _hint(engine))


def _hint(engine: Engine) -> str:
    """What to say under ``provide``."""
    home = engine.home
    if home is not None and home.packages is None and home.image:
        return f"say provide: {{image: {home.image.format(version='VERSION')}}}"
    packages = home.packages("VERSION") if home is not None and home.packages else ["..."]
    return f"say provide: {{pip: [{', '.join(packages)}]}} with a version"
