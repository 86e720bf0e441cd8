"""What kvroom needs to know of an engine: data and pure functions, no process and no socket."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from kvroom.checkpoint.architecture import Architecture
from kvroom.dialect import Dialect
from kvroom.errors import InputError
from kvroom.options import Knob, Options, without
from kvroom.records import Fact, LogLine
from kvroom.room import Plan, ShareFor
from kvroom.settings import Settings

Format = Literal["gguf", "safetensors"]


@dataclass(frozen=True, kw_only=True)
class Repair:
    """What to mend in a fresh environment, and why."""

    why: str
    uninstall: tuple[str, ...] = ()
    empty: tuple[str, ...] = ()
    """Files below site-packages that are made empty."""


@dataclass(frozen=True, kw_only=True)
class Home:
    """How an engine is started once it is there, and what brings it."""

    program: str
    """Its program when it is taken from the PATH."""
    within: tuple[str, ...] = ()
    """What follows ``python`` inside an environment; ``{servers}`` is kvroom's own servers. Empty
    where no wheel is known to work."""
    subcommand: tuple[str, ...] = ()
    """Words between the program and its arguments, on the PATH and in an image."""
    packages: Callable[[str], list[str]] | None = None
    """Requirements that install a version."""
    image: str = ""
    """The published image of a version, with ``{version}`` in it."""
    image_program: str = ""
    """The program inside the image where it is not called as on the PATH."""
    config_option: str = ""
    """The option that takes the engine's config file; empty where it has none."""
    names_model: bool = True
    """Whether it serves the model under the name it is given, not one of its own."""
    setup: Callable[["Place"], Sequence[Sequence[str]]] = lambda place: ()
    """Words of further runs of the program, in order, once it answers and before it is ready."""
    repairs: Mapping[str, Repair] = field(default_factory=dict)
    """For a package: what has to be mended after installing it."""
    disclosure: str = ""
    """What a reader of the numbers must know of an engine started inside an environment."""


@dataclass(frozen=True, kw_only=True)
class Probes:
    """Cheap requests that disturb nothing."""

    ready: str = "/health"
    version: tuple[str, str] | None = None
    """Path and JSON key of the version as the server reports it."""
    load: tuple[str, Mapping[str, Any]] | None = None
    """Path and body of a request that loads the model, where the server starts without it;
    ``{model}`` stands for its name."""


@dataclass(frozen=True, kw_only=True)
class Gauges:
    """Where the engine tells its state, and what its figures are called in our words.

    Only an endpoint that disturbs nothing: SGLang's ``/health`` generates a token, TensorRT-LLM's
    ``/metrics`` empties a queue.
    """

    names: Mapping[str, str]
    """A Prometheus name -> ours. Several series add up; of a usage the largest counts."""
    path: str = "/metrics"


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where one launch of the engine lives."""

    model: str
    served_model: str
    host: str
    port: int
    config: str = ""
    """The file that its config is written to."""
    files: str = ""
    """The contender's folder, for the files of its options."""


@dataclass(frozen=True, kw_only=True)
class Known:
    """An option that is known to fail, or to do nothing."""

    option: str
    value: Any = None
    """The value that fails; None for any that switches it on."""
    versions: tuple[str, ...]
    """Releases seen to fail."""
    error: str
    """What the engine says, or does, then."""
    cause: str
    remedy: str
    source: str
    """Where it was seen."""


@dataclass(frozen=True, kw_only=True)
class Engine:
    """One adapter."""

    name: str
    summary: str
    home: Home | None
    """None for endpoints that kvroom only attaches to."""
    formats: tuple[Format, ...] = ()
    base: Callable[[Place, Settings], Options] = lambda place, settings: Options()
    """What every launch needs."""
    knobs: Mapping[str, Knob] = field(default_factory=dict)
    cannot: Mapping[str, str] = field(default_factory=dict)
    """Settings it has no option for, and why, in a clause."""
    cautions: Callable[[Settings, Architecture], Iterable[str]] = lambda settings, model: ()
    """What it will do otherwise than asked with this model; one sentence each."""
    known: tuple[Known, ...] = ()
    twins: Mapping[str, str] = field(default_factory=dict)
    """Command-line options that mean a key of the config file, which must not contradict them."""
    env: Mapping[str, str] = field(default_factory=dict)
    caches: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that say where it keeps what it compiles -> folders of a cache."""
    dialect: Dialect = field(default_factory=Dialect)
    probes: Probes = field(default_factory=Probes)
    gauges: Gauges | None = None
    """None where nothing can be asked without disturbing it."""
    ready_line: str = ""
    """A pattern of the line that says the engine serves."""
    read_log: Callable[[Iterable[LogLine], str], Iterator[Fact]] = lambda lines, file: iter(())
    """Log lines and the name of their file -> what the engine said of itself."""
    effective: Mapping[str, str] = field(default_factory=dict)
    """A setting -> the fact that tells its value, where the two are not called alike; with ``!``
    before it, the fact tells the contrary."""
    log_marks: tuple[str, ...] = ()
    """Words of which at least one stands in every line of its real logs that ``read_log`` knows: of
    a large log only lines with one of them are tried."""
    phases: tuple[tuple[str, str], ...] = ()
    """Phases of a start, in order: a name, and a pattern of the lines that end it."""
    log_signature: str = ""
    """A pattern that only this engine's logs have: its name in a prefix, a file of its own."""
    room: Plan | None = None
    """The engine's allocator; None where nothing is known of it."""
    kv_dtypes: tuple[str, ...] = ("auto",)
    """Data types of the cache that a plan compares unless one is named."""
    share: ShareFor | None = None
    """Its memory fraction; None where the cache is sized by other settings."""
    block_option: str = ""
    """Its own option for the tokens of a page."""
    pool_option: str = ""
    """Its own option for the size of the cache in blocks, where it has no setting for memory."""
    takes_what_is_left: bool = True
    """Whether the pool is made of what is left; else of what slots and lengths ask for."""

    def options(self, place: Place, settings: Settings, verbatim: Options) -> Options:
        """What the engine is started with; verbatim options come last, so they win.

        InputError for a setting the engine has no option for, or a config it has no file for.
        """
        made = self.base(place, settings)
        for name, value in settings.given().items():
            made = made.plus(self._knob(name)(value, settings))
        made = Options(env=self.env).plus(made)
        for argument in verbatim.arguments:
            if twin := self.twins.get(argument.partition("=")[0]):
                made = replace(made, config=without(made.config, twin))
        whole = made.plus(Options(config=verbatim.config, env=verbatim.env))
        return self._with_config(whole, place).plus(Options(arguments=verbatim.arguments))

    def _knob(self, setting: str) -> Knob:
        if setting not in self.knobs:
            why = self.cannot.get(setting, "")
            known = ", ".join(sorted(self.knobs)) or "none"
            raise InputError(
                f"{self.name} has no setting {setting!r}" + (f": {why}" if why else ""),
                f"it knows {known}; its own options go under 'flags'",
            )
        return self.knobs[setting]

    def _with_config(self, options: Options, place: Place) -> Options:
        if not options.config:
            return options
        if self.home is None or not self.home.config_option:
            raise InputError(f"{self.name} has no config file", "give its options under 'flags'")
        named = (self.home.config_option, place.config)
        return options.plus(Options(arguments=named))
