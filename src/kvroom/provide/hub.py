"""A model of the hub on this disk: only what an engine needs, at one commit, room checked first."""

import contextlib
import re
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from kvroom.checkpoint.hub import Unreachable, ask, library
from kvroom.errors import InputError
from kvroom.provide.cache import Say
from kvroom.units import show_bytes

AT_ONCE = 8
REPORT_S = 5.0
MOST_NAMES = 6
SPARE_BYTES = 256 << 20
"""Left free beside the download."""
_NEEDED = re.compile(
    r"[^/]+\.(json|safetensors|txt|model|tiktoken|jinja|py|vocab|merges)|[^/]+/config\.json"
)
_OTHER_LAYOUT = re.compile(r"consolidated.*\.safetensors")
_SPLIT = re.compile(r"-\d{5}-of-\d{5}\.gguf$")


class File(msgspec.Struct, frozen=True):
    """A file of a model on the hub."""

    name: str
    size: int


def fetched(
    model: str, revision: str | None, gguf: bool, file: str | None, say: Say
) -> tuple[Path, str]:
    """The model's folder, or its GGUF file, and the commit it is of; downloaded if need be.

    A download that was cut off goes on where it was. InputError if the hub or the disk has no room
    for it; of a hub that cannot be reached, what is in the cache is taken.
    """
    hub = library()
    try:
        info = ask(hub, model, hub.HfApi().model_info, model, revision=revision,
                   files_metadata=True)  # fmt: skip
    except Unreachable as error:
        return _cached(hub, model, revision, gguf, file, error)
    files = [File(str(s.rfilename), int(s.size or 0)) for s in info.siblings or ()]
    wanted = wanted_gguf(model, files, file) if gguf else wanted_files(model, files)
    commit = str(info.sha)
    missing = [f for f in wanted if not _is_cached(hub, model, commit, f.name)]
    cache = Path(hub.constants.HF_HUB_CACHE)
    check_room(model, sum(f.size for f in missing), cache)
    folder = _downloaded(hub, model, commit, wanted, missing, say)
    return (folder / wanted[0].name if gguf else folder), commit


def wanted_files(model: str, files: Sequence[File]) -> list[File]:
    """What an engine loads of a model in safetensors: weights once, configuration, tokenizer."""
    wanted = [f for f in files if _NEEDED.fullmatch(f.name)]
    weights = [f for f in wanted if f.name.endswith(".safetensors")]
    usual = [f for f in weights if not _OTHER_LAYOUT.fullmatch(f.name)]
    if not weights:
        raise InputError(f"{model} has no safetensors on the hub", "give another model, or a file:")
    return [f for f in wanted if f not in weights or f in (usual or weights)]


def wanted_gguf(model: str, files: Sequence[File], name: str | None) -> list[File]:
    """The GGUF file that is named, or the only one, with all its parts if it is split."""
    models: dict[str, list[File]] = {}
    for one in sorted(files, key=lambda f: f.name):
        if one.name.endswith(".gguf"):
            models.setdefault(_SPLIT.sub(".gguf", one.name), []).append(one)
    whole = _SPLIT.sub(".gguf", name) if name is not None else next(iter(models), "")
    if whole in models and (name is not None or len(models) == 1):
        return models[whole]
    what = f"no file {name!r}" if name else f"{len(models)} GGUF models"
    some = ", ".join(list(models)[:MOST_NAMES]) or "none"
    raise InputError(f"{model} has {what} on the hub", f"say which with file: ({some})")


def check_room(model: str, needed: int, cache: Path) -> None:
    """InputError if a download would not fit on the disk of the cache."""
    there = next(folder for folder in (cache, *cache.parents) if folder.exists())
    free = shutil.disk_usage(there).free
    if needed and needed + SPARE_BYTES > free:
        raise InputError(
            f"{model} needs {show_bytes(needed)} more on the disk of {cache}, "
            f"which has {show_bytes(free)} free",
            "make room, or set HF_HOME to another disk",
        )


def _is_cached(hub: Any, model: str, commit: str, name: str) -> bool:
    return isinstance(hub.try_to_load_from_cache(model, name, revision=commit), str)


def _downloaded(
    hub: Any, model: str, commit: str, wanted: Sequence[File], missing: Sequence[File], say: Say
) -> Path:
    names = [f.name for f in wanted]
    if missing:
        say(f"downloading {model}: {show_bytes(sum(f.size for f in missing))}")
    blobs = _repository(hub, model) / "blobs"
    needed = sum(f.size for f in missing)
    with _progress(model, needed, blobs, say), ThreadPoolExecutor(AT_ONCE) as workers:
        paths = list(
            workers.map(
                lambda name: ask(hub, model, hub.hf_hub_download, model, name, revision=commit),
                names,
            )
        )
    return Path(paths[0].removesuffix(names[0]))


def _repository(hub: Any, model: str) -> Path:
    """Where the cache keeps a model, as its published layout says."""
    return Path(hub.constants.HF_HUB_CACHE, f"models--{model.replace('/', '--')}")


@contextlib.contextmanager
def _progress(model: str, needed: int, blobs: Path, say: Say) -> Iterator[None]:
    """Say now and then how much has come, by what lies in the cache."""
    done = threading.Event()
    before, began = _held(blobs), time.monotonic()

    def report() -> None:
        while not done.wait(REPORT_S):
            came = _held(blobs) - before
            pace = came / (time.monotonic() - began)
            say(
                f"downloading {model}: {show_bytes(came)} of {show_bytes(needed)}, "
                f"{show_bytes(pace)}/s"
            )

    reporter = threading.Thread(target=report, daemon=True)
    reporter.start()
    try:
        yield
    finally:
        done.set()
        reporter.join()


def _held(blobs: Path) -> int:
    total = 0
    for file in blobs.glob("*"):
        with contextlib.suppress(OSError):
            total += file.stat().st_blocks * 512
    return total


def _cached(
    hub: Any, model: str, revision: str | None, gguf: bool, file: str | None, why: Unreachable
) -> tuple[Path, str]:
    """What an earlier download left, whole."""
    snapshots = _repository(hub, model) / "snapshots"
    found = [f for f in snapshots.glob("*") if revision is None or f.name == revision]
    if not found:
        raise InputError(f"{why}, and {model} is not in the cache", why.hint)
    folder = max(found, key=lambda f: f.stat().st_mtime)
    names = [str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()]
    files = [File(name, 0) for name in names]
    if gguf:
        return folder / wanted_gguf(model, files, file)[0].name, folder.name
    wanted_files(model, files)
    return folder, folder.name
