"""Python environments for engines: one for each distinct list of requirements, made once."""

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from kvroom.engine import Repair
from kvroom.errors import EngineError, InputError
from kvroom.provide.cache import Say, cache_folder, made_once

_NAME = re.compile(r"[A-Za-z0-9._-]+")
_SHOWN_PIP = re.compile(r"\s*(Collecting|Downloading|Building|Installing|Using cached)\b")
LAST_LINES = 8


def made_environment(requirements: Sequence[str], repairs: Mapping[str, Repair], say: Say) -> Path:
    """The Python of an environment with these requirements, made now if need be.

    ``repairs`` says for a package what to mend after it is installed. Raises EngineError with pip's
    last words if the installation fails.
    """
    folder = cache_folder() / "envs" / _folder_name(requirements)
    python = folder / "bin" / "python"
    with made_once(folder) as needed:
        if needed:
            say(f"making an environment for {' '.join(requirements)}")
            _run([sys.executable, "-m", "venv", str(folder)], folder, say)
            _run([str(python), *_PIP_INSTALL, *requirements], folder, say)
            for repair in _needed(requirements, repairs):
                say(f"mending: {repair.why}")
                _mend(repair, folder, python, say)
    return python


_PIP_INSTALL = ("-m", "pip", "install", "--disable-pip-version-check", "--no-input")
_PIP_UNINSTALL = ("-m", "pip", "uninstall", "--disable-pip-version-check", "--yes")


def given_python(env: str, base: Path) -> Path:
    """The Python of an environment that the user names."""
    folder = base / Path(env).expanduser()
    python = folder / "bin" / "python"
    if not python.exists():
        raise InputError(
            f"{folder} is not a Python environment: it has no bin/python",
            "name the folder of a virtual environment under provide: {env: ...}",
        )
    return python


def installed_version(python: Path, name: str) -> str | None:
    """The version of a distribution whose name begins so, without starting its Python."""
    pattern = f"lib/python*/site-packages/{name}*.dist-info"
    found = sorted(folder.name for folder in python.parent.parent.glob(pattern))
    return found[0].removesuffix(".dist-info").rpartition("-")[2] if found else None


def packages_of(python: Path) -> dict[str, str]:
    """Distributions installed in an environment, with their versions."""
    code = (
        "import importlib.metadata as m, json;"
        "print(json.dumps({d.name: d.version for d in m.distributions() if d.name}))"
    )
    done = subprocess.run(
        [str(python), "-I", "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    return dict(sorted(json.loads(done.stdout).items())) if done.returncode == 0 else {}


def _folder_name(requirements: Sequence[str]) -> str:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    digest = hashlib.sha256("\n".join((version, *requirements)).encode()).hexdigest()[:10]
    name = _NAME.match(requirements[0]) if requirements else None
    return f"{name[0].lower() if name else 'plain'}-{digest}"


def _run(argv: Sequence[str], folder: Path, say: Say) -> None:
    """Run a step of the installation; its whole output goes to install.log."""
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    lines: list[str] = []
    with (
        (folder / "install.log").open("a") as log,
        subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env
        ) as process,
    ):
        assert process.stdout is not None
        try:
            for line in process.stdout:
                log.write(line)
                lines.append(line.rstrip())
                if _SHOWN_PIP.match(line):
                    say(line.strip()[:120])
        except BaseException:
            process.kill()
            raise
    code = process.returncode
    if code != 0:
        raise EngineError(
            f"the environment could not be made: {_error(lines)}",
            f"the whole output is in {folder / 'install.log'}",
            tuple(lines[-LAST_LINES:]),
        )


def _error(lines: Sequence[str]) -> str:
    errors = [line for line in lines if line.lower().startswith("error")]
    return errors[-1] if errors else (lines[-1] if lines else "no output")


def _needed(requirements: Sequence[str], repairs: Mapping[str, Repair]) -> list[Repair]:
    names = {match[0].lower() for r in requirements if (match := _NAME.match(r))}
    return [repair for package, repair in repairs.items() if package in names]


def _mend(repair: Repair, folder: Path, python: Path, say: Say) -> None:
    if repair.uninstall:
        _run([str(python), *_PIP_UNINSTALL, *repair.uninstall], folder, say)
    for file in repair.empty:
        for path in folder.glob(f"lib/python*/site-packages/{file}"):
            path.write_text("")
