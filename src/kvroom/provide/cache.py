"""The user's cache, where environments and models are made once and shared by all runs."""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from kvroom.errors import InputError

Say = Callable[[str], None]
"""Shows one line of progress."""

_DONE = ".complete"


def cache_folder() -> Path:
    """``$KVROOM_CACHE``, else ``kvroom`` in the user's cache folder."""
    given = os.environ.get("KVROOM_CACHE")
    if given:
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "kvroom"


def compiled_folder(name: str, *, empty: bool) -> Path:
    """Where engines keep what they compile, under a name; emptied for a first start."""
    folder = cache_folder() / "compiled" / name
    try:
        if empty:
            shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write to the cache {folder}: {error.strerror}") from None
    return folder


@contextlib.contextmanager
def made_once(folder: Path) -> Iterator[bool]:
    """Whether the folder has still to be filled; it counts as made only if the block ends well.

    A folder left half made by a kill is emptied first. Two kvrooms that want the same folder wait
    for each other.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = folder.with_name(folder.name + ".lock").open("a")
    except OSError as error:
        raise InputError(
            f"cannot write to the cache {folder.parent}: {error.strerror}",
            "set KVROOM_CACHE to a folder that can be written",
        ) from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / _DONE).exists():
            yield False
            return
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        yield True
        (folder / _DONE).touch()
