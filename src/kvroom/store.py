"""The Run: a folder on disk between measuring and reading. Everything raw is kept as it came."""

import contextlib
import fcntl
import io
import itertools
import os
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from kvroom import __version__
from kvroom.checkpoint.read import Checkpoint
from kvroom.errors import InputError
from kvroom.loglines import log_lines
from kvroom.matchup import Matchup, load_matchup
from kvroom.records import LogLine, RequestRecord, RoundInfo, Sample

if TYPE_CHECKING:
    import polars as pl

T = TypeVar("T")

FORMAT = 1
"""Rises only when a stored field changes its meaning."""

_INFO_KEY = "kvroom.round"
_ROUND_FILE = re.compile(r"c(\d+)-(\d+)\.parquet")


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """run.json: what holds for the whole run."""

    format: int
    kvroom: str
    name: str
    created: str
    matchup_folder: str
    """Where relative paths of the matchup start."""
    machine: dict[str, Any]


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """command.json: one launch of a contender, or one attachment to an endpoint."""

    argv: list[str]
    env: dict[str, str]
    url: str
    config: dict[str, Any] = {}
    """Of the engine's config file, where it was given one."""
    kind: str = ""
    """``first``: with empty caches on purpose; ``warm``: with those of an earlier start."""
    cache: str = ""
    """Where the engine keeps what it compiles; empty where that is its own business."""
    image: str = ""
    image_digest: str = ""
    cwd: str = ""
    packages: dict[str, str] = {}
    """Distributions of the environment with their versions, where kvroom knows it."""
    model: str = ""
    model_note: str = ""
    model_revision: str = ""
    """The commit of the hub that the weights are of."""
    started_ns: int | None = None
    """When the process was started, on the clock of the run."""
    disclosure: str = ""
    version: str | None = None
    """As the server reports it."""
    ready_s: float | None = None
    """From the start of the process until the ready probe answered."""
    length_forced: bool = True
    """Whether the engine can be made to write as many tokens as were asked for."""
    left_out: list[str] = []
    """Fields of a request that the server refused, so that it was asked without them."""


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """outcome.json: how the last launch of a contender came out."""

    state: str
    """``measured``, ``failed`` or ``interrupted``."""
    reason: str = ""
    hint: str = ""
    last_lines: list[str] = []
    warnings: list[str] = []


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """A change that was recommended for a contender of another run, and what it promised."""

    run: str
    contender: str
    changed: str
    """The contender of this run."""
    setting: str
    now: str
    to: str
    concurrency: int | None
    before: float | None
    """Tokens a second at that level without the change."""
    expected: tuple[float, float, float] | None
    """The least, the likeliest and the most tokens a second with it."""


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """A stored round: what is known of it, and one row per request."""

    info: RoundInfo
    frame: Any
    """A polars DataFrame with the fields of RequestRecord."""


class Run:
    """One run folder."""

    def __init__(self, path: Path, info: RunInfo, matchup: Matchup) -> None:
        self.path = path
        self.info = info
        self.matchup = matchup

    @classmethod
    def create(
        cls,
        path: Path,
        source: Path,
        matchup: Matchup,
        machine: dict[str, Any],
        text: bytes | None = None,
    ) -> "Run":
        """A new folder with the matchup as given; InputError if it cannot be made.

        ``text`` is that of a matchup which is in no file; relative paths start where the source
        would lie.
        """
        info = RunInfo(
            format=FORMAT,
            kvroom=__version__,
            name=matchup.name,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            matchup_folder=str(source.parent.resolve()),
            machine=machine,
        )
        try:
            path.mkdir(parents=True)
            write_whole(path / "matchup.yaml", text or source.read_bytes())
            write_whole(path / "run.json", _pretty(info))
        except FileExistsError:
            raise InputError(f"{path} exists already", "to go on with it: --resume RUN") from None
        except OSError as error:
            raise InputError(f"cannot write a run to {path}: {_lower(error)}") from None
        return cls(path, info, matchup)

    @classmethod
    def open(cls, path: Path) -> "Run":
        """The run in a folder; InputError if it is none, or of a later format."""
        file = path / "run.json"
        if not file.is_file():
            raise InputError(
                f"{path} is not a run: it has no run.json",
                "name the folder that 'kvroom run' printed, such as runs/2026-12-01-demo",
            )
        try:
            info = msgspec.json.decode(file.read_bytes(), type=RunInfo)
        except msgspec.DecodeError as error:
            raise InputError(f"{file}: {_lower(error)}") from None
        if info.format > FORMAT:
            raise InputError(f"{path} has format {info.format}; this kvroom reads up to {FORMAT}")
        return cls(path, info, load_matchup(path / "matchup.yaml"))

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run alone; InputError if another kvroom is writing to it."""
        with (self.path / "run.lock").open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise InputError(f"another kvroom is measuring into {self.path}") from None
            yield

    def folder(self, contender: str) -> Path:
        """The contender's folder."""
        return self.path / contender

    # what was started

    def next_start(self, contender: str) -> "StartFiles":
        """Names for the files of another launch; those of earlier launches stay."""
        folder = self.folder(contender)
        folder.mkdir(exist_ok=True)
        for number in itertools.count(1):
            files = StartFiles(folder, number)
            if not files.log.exists() and not files.command.exists():
                return files
        raise AssertionError("unreachable")

    def starts(self, contender: str) -> list["StartFiles"]:
        """The launches so far, first to last."""
        found = (StartFiles(self.folder(contender), number) for number in itertools.count(1))
        return list(itertools.takewhile(lambda files: files.command.exists(), found))

    def read_start(self, files: "StartFiles") -> Start:
        """What was started in one launch."""
        return _decode(files.command, Start)

    def model_revision(self) -> str | None:
        """The commit of the hub that contenders of this run got, if any did."""
        for contender in self.matchup.contenders:
            for files in self.starts(contender.name):
                if revision := self.read_start(files).model_revision:
                    return revision
        return None

    def start(self, contender: str) -> Start | None:
        """The last launch."""
        starts = self.starts(contender)
        return _decode(starts[-1].command, Start) if starts else None

    def log_lines(self, files: "StartFiles", marks: Sequence[str] = ()) -> Iterator[LogLine]:
        """What the engine printed in one launch, streamed, with arrival times; with marks, only
        lines that have one of them."""
        if not files.log.exists():
            return
        yield from log_lines(files.log, files.times, marks)

    def samples(self, files: "StartFiles") -> list[Sample]:
        """What was seen of one launch from outside; a line cut off by a kill is left out."""
        if not files.samples.exists():
            return []
        found = []
        for line in files.samples.read_bytes().splitlines():
            with contextlib.suppress(msgspec.DecodeError):
                found.append(msgspec.json.decode(line, type=Sample))
        return found

    def checkpoint(self, contender: str) -> Checkpoint | None:
        """The shape of the model that the last launch served, if it could be read."""
        starts = self.starts(contender)
        file = starts[-1].model if starts else None
        return _decode(file, Checkpoint) if file is not None and file.exists() else None

    # how it came out

    def write_ending(self, contender: str, ending: Ending) -> None:
        """Say how the contender's launch came out."""
        self.folder(contender).mkdir(exist_ok=True)
        write_whole(self.folder(contender) / "outcome.json", _pretty(ending))

    def ending(self, contender: str) -> Ending | None:
        """How the contender's last launch came out, if it has."""
        file = self.folder(contender) / "outcome.json"
        return _decode(file, Ending) if file.exists() else None

    def write_applied(self, changes: Sequence["Applied"]) -> None:
        """Say which changes of another run this one measures."""
        write_whole(self.path / "applied.json", _pretty(list(changes)))

    def applied(self) -> list["Applied"]:
        """The changes of another run that this one measures."""
        file = self.path / "applied.json"
        return _decode(file, list[Applied]) if file.exists() else []

    # rounds

    def round_file(self, contender: str, key: str) -> Path:
        """Where a finished round is kept."""
        return self.folder(contender) / "rounds" / f"{key}.parquet"

    def write_round(
        self, contender: str, key: str, info: RoundInfo, records: Sequence[RequestRecord]
    ) -> None:
        """Keep a round: the whole file or none."""
        file = self.round_file(contender, key)
        file.parent.mkdir(parents=True, exist_ok=True)
        _write_round(file, info, records)

    def write_warmup(
        self, files: "StartFiles", info: RoundInfo, records: Sequence[RequestRecord]
    ) -> None:
        """Keep what warmed an engine up: it counts for nothing but the start."""
        _write_round(files.warmup, info, records)

    def warmup(self, files: "StartFiles") -> Round | None:
        """The requests that warmed up one launch, if there were any."""
        return _read_round(files.warmup) if files.warmup.exists() else None

    def rounds(self, contender: str) -> list[Round]:
        """The finished rounds, by level and number."""
        folder = self.folder(contender) / "rounds"
        matches = [(_ROUND_FILE.fullmatch(file.name), file) for file in folder.glob("*.parquet")]
        files = sorted((int(m[1]), int(m[2]), file) for m, file in matches if m)
        return [_read_round(file) for _, _, file in files]


class StartFiles:
    """The files of a contender's n-th launch: engine.log, then engine-2.log, and so on."""

    def __init__(self, folder: Path, number: int) -> None:
        suffix = "" if number == 1 else f"-{number}"
        self.command = folder / f"command{suffix}.json"
        self.log = folder / f"engine{suffix}.log"
        self.times = folder / f"engine{suffix}.times"
        self.samples = folder / f"samples{suffix}.jsonl"
        self.config = folder / f"config{suffix}.yaml"
        self.warmup = folder / f"warmup{suffix}.parquet"
        self.model = folder / f"model{suffix}.json"
        self.folder = folder

    def write(self, start: Start) -> None:
        """Keep what was started."""
        write_whole(self.command, _pretty(start))

    def write_model(self, checkpoint: Checkpoint) -> None:
        """Keep the shape of the model that was served."""
        write_whole(self.model, _pretty(checkpoint))


def write_whole(file: Path, data: bytes) -> None:
    """Write a file so that a kill at any moment leaves the old one or the new one."""
    partial = file.with_name(file.name + ".partial")
    with partial.open("wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
    partial.replace(file)


def new_run_path(parent: Path, name: str) -> Path:
    """A folder name of today that is not taken: ``2026-12-01-demo``, then ``2026-12-01-demo-2``."""
    today = datetime.now().astimezone().strftime("%Y-%m-%d")
    for number in itertools.count(1):
        path = parent / (f"{today}-{name}" + (f"-{number}" if number > 1 else ""))
        if not path.exists():
            return path
    raise AssertionError("unreachable")


def _pretty(value: Any) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value)) + b"\n"


def _decode(file: Path, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(file.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError) as error:
        raise InputError(f"{file}: {_lower(error)}") from None


def _lower(error: Exception) -> str:
    text = getattr(error, "strerror", None) or str(error)
    return str(text[:1].lower() + text[1:])


def to_frame(records: Sequence[RequestRecord]) -> "pl.DataFrame":
    """One row per record, one column per field."""
    import polars as pl

    small, big, times = pl.Int64(), pl.Int64(), pl.List(pl.Int64())
    schema: dict[str, Any] = {
        "ordinal": small,
        "prompt_tokens": small,
        "output_tokens": small,
        "due_ns": big,
        "sent_ns": big,
        "first_byte_ns": big,
        "ended_ns": big,
        "event_ns": times,
        "event_read_ns": times,
        "event_tokens": pl.List(pl.Int32()),
        "prompt_tokens_reported": small,
        "completion_tokens": small,
        "token_source": pl.String(),
        "clock": pl.String(),
        "outcome": pl.String(),
        "reason": pl.String(),
        "text": pl.String(),
    }
    assert list(schema) == list(RequestRecord.__struct_fields__)
    columns = {name: [getattr(record, name) for record in records] for name in schema}
    return pl.DataFrame(columns, schema=schema)


def _write_round(file: Path, info: RoundInfo, records: Sequence[RequestRecord]) -> None:
    buffer = io.BytesIO()
    metadata = {_INFO_KEY: msgspec.json.encode(info).decode()}
    to_frame(records).write_parquet(buffer, metadata=metadata)
    write_whole(file, buffer.getvalue())


def _read_round(file: Path) -> Round:
    import polars as pl

    try:
        info = pl.read_parquet_metadata(file)[_INFO_KEY]
        frame = pl.read_parquet(file)
        return Round(info=msgspec.json.decode(info, type=RoundInfo), frame=frame)
    except (OSError, KeyError, pl.exceptions.PolarsError, msgspec.DecodeError) as error:
        raise InputError(f"{file} cannot be read as a round: {error}") from None
