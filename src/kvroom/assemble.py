"""From a prepared contender to the command that starts it: engine, weights, files and caches."""

import contextlib
import os
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from kvroom.checkpoint.read import read_checkpoint
from kvroom.engine import Place
from kvroom.errors import InputError
from kvroom.launch import LOOPBACK, Command, check_port, free_port, shown_argv, shown_env
from kvroom.matchup import Model
from kvroom.observe import devices
from kvroom.options import Options
from kvroom.prepare import SERVED_MODEL, Prepared
from kvroom.provide.cache import Say, compiled_folder
from kvroom.provide.container import (
    ANYWHERE,
    Container,
    process_of,
    pulled,
    remove_words,
    run_words,
)
from kvroom.provide.environment import given_python, made_environment, packages_of
from kvroom.provide.model import evict, known_architecture, provided
from kvroom.store import Run, Start, StartFiles, write_whole

_DROPPED_ENV = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")


@dataclass(frozen=True, kw_only=True)
class Assembled:
    """Everything is there; what is left is to start it."""

    command: Command
    start: Start
    """For the record, as far as it is known before."""
    port: int
    setup: Sequence[Command]
    """What has to be run once the engine answers, before it is ready."""
    container: Container | None = None
    name: str = ""
    """Of the container."""
    cautions: tuple[str, ...] = ()
    """What the engine will do otherwise than asked with a model that is only known now."""

    def pid(self, started: int) -> int | None:
        """The process whose tree is the engine: of a container, its first one."""
        return process_of(self.container, self.name) if self.container else started


def assembled(run: Run, prepared: Prepared, files: StartFiles, kind: str, say: Say) -> Assembled:
    """Get the engine and the weights, write the engine's files, and say how it is started."""
    made = _Assembly(run, prepared, files, kind, say)
    return made.in_container() if made.container else made.in_process()


class _Assembly:
    """The parts of one launch."""

    def __init__(
        self, run: Run, prepared: Prepared, files: StartFiles, kind: str, say: Say
    ) -> None:
        provide, home, model = prepared.provide, prepared.engine.home, prepared.model
        assert provide is not None
        assert home is not None
        assert model is not None
        self.prepared, self.files, self.kind, self.home = prepared, files, kind, home
        self.container, self.python = None, None
        if provide.image is not None:
            self.container = pulled(provide, "all" if devices() else "none", say)
        elif provide.pip is not None:
            self.python = made_environment(provide.pip, home.repairs, say)
        elif provide.env is not None:
            self.python = given_python(provide.env, prepared.base)
        self.weights = provided(model, prepared.engine, prepared.base, say, run.model_revision())
        self.cache = _cache(run, prepared, kind)
        with contextlib.suppress(InputError):
            files.write_model(read_checkpoint(self.weights.path))
        if kind == "first":
            evict(Path(self.weights.path))
        self.port = _port(prepared)
        self.options = self._options()
        self._write_files()

    def _options(self) -> Options:
        place = Place(
            model=self.weights.path,
            served_model=SERVED_MODEL,
            host=ANYWHERE if self.container else LOOPBACK,
            port=self.port,
            config=str(self.files.config.resolve()),
            files=str(self.files.folder.resolve()),
        )
        caches = self.prepared.engine.caches if self.cache else {}
        kept = Options(env={name: f"{self.cache}/{sub}" for name, sub in caches.items()})
        return kept.plus(self.prepared.options(place))

    def _write_files(self) -> None:
        """The config as it is used, and whatever else the engine reads, into the run."""
        if self.options.config:
            text = yaml.safe_dump(dict(self.options.config), sort_keys=False, allow_unicode=True)
            write_whole(self.files.config, text.encode())
        for name, text in self.options.files.items():
            write_whole(self.files.folder / name, text.encode())

    def in_process(self) -> Assembled:
        """A program of this machine."""
        program = self.prepared.program(str(self.python))
        env = self._environment()
        if self.python is not None:
            env["PATH"] = f"{self.python.parent}{os.pathsep}{env.get('PATH', '')}"
        cwd = self.files.folder
        command = Command(argv=[*program, *self.options.arguments], env=env, cwd=cwd)
        return self._assembled(command, lambda words: [program[0], *words])

    def in_container(self) -> Assembled:
        """A program of an image; model, caches and files lie where they lie outside."""
        assert self.container is not None
        name = f"kvroom-{uuid.uuid4().hex[:12]}"
        program = self.prepared.program("")
        words = run_words(
            self.container, name, self.port, program, self._mounts(), list(self.options.env)
        )
        command = Command(
            argv=[*words, *self.options.arguments],
            env=self._environment(),
            cwd=self.files.folder,
            after=remove_words(self.container, name),
        )
        runtime = self.container.runtime
        inside = [runtime, "exec", name, program[0]]
        return self._assembled(command, lambda words: [*inside, *words], name)

    def _mounts(self) -> dict[Path, str]:
        mounts = {_whole(Path(self.weights.path)): "ro", self.files.folder.resolve(): "ro"}
        speculative = self.prepared.settings.speculative
        draft = Path(speculative.model or "") if speculative is not None else None
        if draft is not None and draft.is_absolute():
            mounts[_whole(draft)] = "ro"
        if self.cache:
            mounts[self.cache] = "rw"
        return mounts

    def _environment(self) -> dict[str, str]:
        env = {name: value for name, value in os.environ.items() if name not in _DROPPED_ENV}
        return {**env, **self.options.env}

    def _assembled(
        self, command: Command, again: Callable[[Sequence[str]], list[str]], name: str = ""
    ) -> Assembled:
        place = Place(
            model=self.weights.path, served_model=SERVED_MODEL, host=LOOPBACK, port=self.port,
            files=str(self.files.folder.resolve()),
        )  # fmt: skip
        setup = [
            Command(argv=again(words), env=command.env, cwd=command.cwd)
            for words in self.home.setup(place)
        ]
        return Assembled(
            command=command,
            start=self._record(command),
            port=self.port,
            setup=setup,
            cautions=self._cautions(),
            container=self.container,
            name=name,
        )

    def _cautions(self) -> tuple[str, ...]:
        """Of a model that lay here before, they have been told already."""
        prepared = self.prepared
        if prepared.model is None or prepared.model.path is not None:
            return ()
        architecture = known_architecture(Model(path=self.weights.path), Path("/"))
        if architecture is None:
            return ()
        return tuple(prepared.engine.cautions(prepared.settings, architecture))

    def _record(self, command: Command) -> Start:
        disclosure = self.home.disclosure if self.python is not None else ""
        return Start(
            argv=shown_argv(command.argv),
            env=shown_env(command.env, self.options.env),
            config=dict(self.options.config),
            kind=self.kind,
            cache=str(self.cache or ""),
            image=self.container.image if self.container else "",
            image_digest=self.container.digest if self.container else "",
            cwd=str(command.cwd),
            url=f"http://{LOOPBACK}:{self.port}",
            packages=packages_of(self.python) if self.python is not None else {},
            model=self.weights.path,
            model_note=self.weights.note,
            model_revision=self.weights.revision,
            disclosure=disclosure,
        )


def _cache(run: Run, prepared: Prepared, kind: str) -> Path | None:
    """The folder for what the engine compiles; an engine that must be set up always has one."""
    contender, home = prepared.contender, prepared.engine.home
    assert home is not None
    name = contender.cache
    if name is None and kind:
        name = f"{run.info.name}-{contender.name}"
    if name is None and home.setup(_NOWHERE):
        name = prepared.engine.name
    return compiled_folder(name, empty=kind == "first") if name else None


_NOWHERE = Place(model="", served_model="", host="", port=0)


def _whole(path: Path) -> Path:
    """What must be mounted for a path: of the hub's cache, links lead out of the snapshot."""
    if "snapshots" in path.parts:
        return next(folder.parent for folder in path.parents if folder.name == "snapshots")
    return path.resolve()


def _port(prepared: Prepared) -> int:
    port = prepared.contender.port
    if port is None:
        return free_port()
    check_port(port)
    return port
