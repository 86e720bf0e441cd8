"""Containers through the docker or podman command line: pulled, run, removed."""

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from kvroom.errors import EngineError, InputError
from kvroom.matchup import Provide
from kvroom.provide.cache import Say

RUNTIMES = ("docker", "podman")
CATATONIT = ("catatonit", "/usr/libexec/podman/catatonit", "/usr/lib/podman/catatonit")
ANSWER_S = 30.0
SHOWN = 160
ANYWHERE = "0.0.0.0"


class Container(msgspec.Struct, frozen=True, kw_only=True):
    """An image that is here, and how it will run."""

    runtime: str
    """The program, with its path."""
    image: str
    digest: str
    """What the image is, whatever its tag says later."""
    gpus: str

    @property
    def has_init(self) -> bool:
        """Whether a small first process can be put before the engine: docker brings one, podman
        needs catatonit. Without it an engine that ignores TERM is killed after a while."""
        return not self.is_podman or any(map(shutil.which, CATATONIT))

    @property
    def is_podman(self) -> bool:
        """Podman's options differ in a few places."""
        return Path(self.runtime).name == "podman"


def container_program(provide: Provide) -> str:
    """The program that runs images; InputError if there is none."""
    wanted = (provide.runtime,) if provide.runtime else RUNTIMES
    found = next((path for name in wanted if (path := shutil.which(name))), None)
    if found is None:
        raise InputError(
            f"{' or '.join(wanted)} is not on the PATH, and the image {provide.image} needs it",
            "install it, or say another provide: {path: ...} or {pip: [...]}",
        )
    return found


def pulled(provide: Provide, default_gpus: str, say: Say) -> Container:
    """The image on this machine, pulled now if need be; EngineError says what the runtime says."""
    runtime, image = container_program(provide), str(provide.image)
    digest = _digest(runtime, image)
    if digest is None:
        say(f"pulling {image}")
        _pull(runtime, image, say)
        digest = _digest(runtime, image)
    if digest is None:
        raise EngineError(f"{image} was pulled, but {Path(runtime).name} does not find it")
    gpus = provide.gpus or default_gpus
    return Container(runtime=runtime, image=image, digest=digest, gpus=gpus)


def _digest(runtime: str, image: str) -> str | None:
    """The image's id, None if it is not here; EngineError if the runtime does not work."""
    done = _run(runtime, "image", "inspect", image)
    if done.returncode == 0:
        try:
            found = json.loads(done.stdout)[0]
            return str((found.get("RepoDigests") or [found["Id"]])[0])
        except (ValueError, LookupError, TypeError, AttributeError):
            raise EngineError(f"{runtime} image inspect {image} is not understood") from None
    said = done.stderr.lower()
    if "no such image" in said or "not known" in said or "no such object" in said:
        return None
    name = Path(runtime).name
    raise EngineError(
        f"{name} does not work here: {_last(done.stderr)}",
        "is its service running, and may you use it?" if name == "docker" else "",
    )


def _pull(runtime: str, image: str, say: Say) -> None:
    with subprocess.Popen(
        [runtime, "pull", image], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        last = ""
        try:
            for line in process.stdout:
                last = line.strip() or last
                say(f"pulling: {last[:SHOWN]}")
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        raise EngineError(f"{image} could not be pulled: {last[:SHOWN]}")


def run_words(
    container: Container,
    name: str,
    port: int,
    program: Sequence[str],
    mounts: Mapping[Path, str],
    env: Sequence[str],
) -> list[str]:
    """The words that run a program in a container, up to its arguments.

    Mounts have the same path inside; their mode is ``ro`` or ``rw``. Variables are named only:
    their values come from the environment of the runtime, so that none stands in a process list.
    """
    entry, *rest = program
    return [
        *(container.runtime, "run", "--rm", "--name", name),
        *(("--init",) if container.has_init else ()),
        *("--publish", f"127.0.0.1:{port}:{port}", "--ipc", "host"),
        *_gpu_words(container),
        *(f"--volume={path}:{path}:{mode}" for path, mode in mounts.items()),
        *(f"--env={variable}" for variable in env),
        *("--entrypoint", entry, container.image, *rest),
    ]


def _gpu_words(container: Container) -> tuple[str, ...]:
    gpus = container.gpus
    if gpus == "none":
        return ()
    if container.is_podman:
        numbers = gpus.split(",")
        return tuple(f"--device=nvidia.com/gpu={number}" for number in numbers)
    return ("--gpus", "all" if gpus == "all" else f'"device={gpus}"')


def remove_words(container: Container, name: str) -> list[str]:
    """The words that remove a container whether it runs or not."""
    at_once = ("--time", "0") if container.is_podman else ()
    return [container.runtime, "rm", "--force", *at_once, name]


def process_of(container: Container, name: str) -> int | None:
    """The first process of a running container as this machine sees it."""
    done = _run(container.runtime, "inspect", "--format", "{{.State.Pid}}", name)
    text = done.stdout.strip()
    return int(text) if done.returncode == 0 and text.isdigit() and text != "0" else None


def _run(*words: str) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=ANSWER_S, check=False)
    except subprocess.TimeoutExpired:
        raise EngineError(f"{' '.join(words[:3])} does not answer in {ANSWER_S:g} s") from None
    except OSError as error:
        raise EngineError(f"cannot start {words[0]}: {error.strerror}") from None


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:SHOWN] if lines else "it says nothing"
