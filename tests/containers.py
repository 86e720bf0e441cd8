"""A container runtime that works here, and an image of a real engine made without any registry."""

import contextlib
import os
import re
import resource
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvroom import servers
from kvroom.provide.environment import made_environment

ENGINE = "xllamacpp==2026.10.11549"
IMAGE = "localhost/kvroom-test:1.0"
PROGRAM = "/app/llama-server"
_LIBRARY = re.compile(r"(/\S+) \(0x")
LEFT_OUT = ("site-packages", "test", "idlelib", "tkinter", "ensurepip", "__pycache__")

CONF = """\
[containers]
default_ulimits = ["nofile={files}:{files}", "nproc={processes}:{processes}"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""
"""For machines whose limits may not be raised, and whose control groups are of the first kind."""


def working(runtime: str, folder: Path) -> None:
    """Make the runtime work, or skip the test with what it says."""
    if shutil.which(runtime) is None:
        pytest.skip(f"{runtime} is not on the PATH")
    conf = folder / "containers.conf"
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    conf.write_text(CONF.format(files=min(files, 20_000), processes=32_768))
    said = _run(runtime, "info").stderr
    for settings in ({}, {"CONTAINERS_CONF": str(conf)}):
        os.environ.update(settings)
        if _imported(runtime):
            done = _run(runtime, "run", "--rm", "--entrypoint", PROGRAM, IMAGE, "--help")
            if done.returncode == 0:
                return
            said = done.stderr
    os.environ.pop("CONTAINERS_CONF", None)
    pytest.skip(f"{runtime} does not run containers here: {said.strip()[-200:]}")


def _imported(runtime: str) -> bool:
    if _run(runtime, "image", "inspect", IMAGE).returncode == 0:
        return True
    words = [runtime, "import", "-", IMAGE]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            with tarfile.open(fileobj=process.stdin, mode="w|", dereference=True) as tar:
                for name, path in dict(_files()).items():
                    tar.add(path, name, recursive=False)
            process.stdin.close()
    return process.returncode == 0


def _files() -> Iterator[tuple[str, Path]]:
    """What llama.cpp's server needs to run: an interpreter, its libraries, the wheel."""
    python = made_environment([ENGINE], {}, print)
    program = python.parent.parent / "llama-server"
    server = Path(servers.__file__).with_name("llama_server.py").read_text()
    program.write_text(f"#!{python}\n{server}")
    program.chmod(0o755)
    yield PROGRAM, program
    folders = [python.parent.parent, Path(sys.base_prefix, "bin"), Path(sys.base_prefix, "lib")]
    kept = [path for folder in folders for path in _below(folder)]
    libraries = {Path(sys.executable).resolve(), *(p for p in kept if ".so" in p.suffixes)}
    for path in (*kept, *_libraries(libraries)):
        yield str(path), path


def _below(folder: Path) -> Iterator[Path]:
    ours = folder.name.startswith("xllamacpp")
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder).parts
        if (ours or not set(inside) & set(LEFT_OUT)) and "__pycache__" not in inside:
            yield path


def _libraries(programs: set[Path]) -> set[Path]:
    found: set[Path] = set()
    for program in programs:
        done = _run("ldd", str(program))
        found |= {Path(match) for match in _LIBRARY.findall(done.stdout)}
    return {path for path in found if path.exists()}


def _run(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)


def left(runtime: str) -> str:
    """Containers that are there, running or not."""
    return _run(runtime, "ps", "--all", "--quiet", "--filter", "name=kvroom-").stdout.strip()
