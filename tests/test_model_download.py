"""Models of the hub on this disk: what is fetched, where it stops, how it goes on."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from checkpoints import BOTH
from conftest import Kvroom
from kvroom.errors import InputError
from kvroom.provide.hub import File, check_room, wanted_files, wanted_gguf
from test_hub import COMMIT, MODEL, Hub, hub

__all__ = ["hub"]

FETCH = """\
import json, sys
from kvroom.errors import KvroomError
from kvroom.provide.hub import fetched
gguf, file = json.loads(sys.argv[1])
said = []
try:
    path, commit = fetched("owner/name", None, gguf, file, said.append)
    print(json.dumps({"path": str(path), "commit": commit, "said": said}))
except KvroomError as error:
    print(json.dumps({"error": str(error), "hint": error.hint, "said": said}))
"""

Fetch = Callable[..., dict[str, Any]]


@pytest.fixture
def fetch(hub: Hub, tmp_path: Path) -> Fetch:
    """Fetches the model in a process of its own, with a cache of its own."""

    def call(*, gguf: bool = False, file: str | None = None, **env: str) -> dict[str, Any]:
        homes = {"HF_HOME": str(tmp_path / "hf"), "HOME": str(tmp_path), "HF_ENDPOINT": hub.url}
        proxies = {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
        done = subprocess.run(
            [sys.executable, "-c", FETCH, json.dumps([gguf, file])],
            capture_output=True, text=True, check=False, timeout=120,
            env=os.environ | homes | proxies | {"HF_HUB_DISABLE_XET": "1"} | env,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    return call


def test_what_the_engine_needs_is_fetched_once(hub: Hub, fetch: Fetch) -> None:
    (hub.folder / "README.md").write_text("words")
    (hub.folder / "tokenizer.json").write_text("{}")
    (hub.folder / "pytorch_model.bin").write_bytes(b"the same again")

    found = fetch()
    names = {path.name for path in Path(found["path"]).iterdir()}

    assert found["commit"] == COMMIT
    assert names == {"config.json", "model.safetensors.index.json", "tokenizer.json", *BOTH}
    assert found["said"][0].startswith(f"downloading {MODEL}: ")

    hub.asked.clear()
    again = fetch()
    assert again["path"] == found["path"]
    assert again["said"] == []
    assert not any("GET /owner/name/resolve" in line for line in hub.asked)


def test_a_download_that_was_cut_off_goes_on_where_it_was(hub: Hub, fetch: Fetch) -> None:
    big = b"x" * (24 << 20)
    (hub.folder / "tokenizer.json").write_bytes(big)
    hub.cut_after = 22 << 20

    first = fetch()
    found = first if "path" in first else fetch()

    assert (Path(found["path"]) / "tokenizer.json").read_bytes() == big
    asked = [line for line in hub.asked if line.startswith("GET") and "tokenizer.json" in line]
    assert any("bytes=" in line for line in asked), asked


def test_without_the_hub_the_cache_is_taken(hub: Hub, fetch: Fetch) -> None:
    found = fetch()

    assert fetch(HF_HUB_OFFLINE="1")["path"] == found["path"]


def test_without_hub_and_cache_it_is_one_sentence(fetch: Fetch) -> None:
    refused = fetch(HF_HUB_OFFLINE="1")

    assert refused["error"] == (
        "the hub is not asked (HF_HUB_OFFLINE), and owner/name is not in the cache"
    )


def test_one_gguf_file_is_fetched_alone(hub: Hub, fetch: Fetch) -> None:
    for name in ("m-Q4_0.gguf", "m-Q8_0.gguf"):
        (hub.folder / name).write_bytes(b"GGUF")

    refused = fetch(gguf=True)
    assert refused["error"] == "owner/name has 2 GGUF models on the hub"
    assert "m-Q4_0" in refused["hint"]

    found = fetch(gguf=True, file="m-Q8_0.gguf")
    assert Path(found["path"]).name == "m-Q8_0.gguf"
    assert [path.name for path in Path(found["path"]).parent.iterdir()] == ["m-Q8_0.gguf"]


def files(*names: str) -> list[File]:
    return [File(name, 1) for name in names]


def names_of(found: Sequence[File]) -> list[str]:
    return [file.name for file in found]


@pytest.mark.parametrize(
    ("there", "wanted"),
    [
        (("a.safetensors", "consolidated.safetensors", "params.json"),
         ["a.safetensors", "params.json"]),
        (("consolidated.safetensors", "params.json"), ["consolidated.safetensors", "params.json"]),
        (("m.safetensors", "original/x.pth", "m.onnx", "LICENSE"), ["m.safetensors"]),
        (("m.safetensors", "modeling_x.py", "vocab.txt", "merges.txt", "t.model"),
         ["m.safetensors", "modeling_x.py", "vocab.txt", "merges.txt", "t.model"]),
    ],
)  # fmt: skip
def test_weights_are_wanted_once_and_with_what_belongs_to_them(
    there: tuple[str, ...], wanted: list[str]
) -> None:
    assert names_of(wanted_files("m", files(*there))) == wanted


def test_a_split_gguf_is_one_model() -> None:
    parts = ("q8-00001-of-00002.gguf", "q8-00002-of-00002.gguf")

    assert names_of(wanted_gguf("m", files(*parts, "q4.gguf"), parts[0])) == list(parts)
    assert names_of(wanted_gguf("m", files(*parts), None)) == list(parts)


def test_a_model_without_safetensors_is_refused() -> None:
    with pytest.raises(InputError, match="m has no safetensors on the hub"):
        wanted_files("m", files("pytorch_model.bin", "config.json"))


def test_a_disk_that_is_too_small_is_found_before_anything_is_fetched(tmp_path: Path) -> None:
    cache = tmp_path / "not" / "yet" / "there"

    with pytest.raises(InputError, match=r"m needs 1,?0*\S+ \S+ more on the disk of .*there"):
        check_room("m", 1 << 60, cache)
    check_room("m", 1 << 20, cache)


def test_a_run_downloads_its_model_and_keeps_the_commit(
    hub: Hub, kvroom: Kvroom, stub_program: Path, tmp_path: Path
) -> None:
    (hub.folder / "m.gguf").write_bytes(b"GGUF")
    (tmp_path / "m.yaml").write_text(
        "name: hub\nmodel: {hub: owner/name, file: m.gguf}\n"
        "workload: {prompt_tokens: 16, output_tokens: 8, concurrency: [1], rounds: 1}\n"
        f"contenders:\n  - {{name: a, engine: llamacpp, provide: {{path: {stub_program}}}}}\n"
    )
    env = {"HF_HOME": str(tmp_path / "hf"), "HF_ENDPOINT": hub.url, "NO_PROXY": "127.0.0.1"}

    done = kvroom("run", "m.yaml", "-o", "r", "--json", env=env)

    assert done.returncode == 0, done.stderr
    start = json.loads(done.stdout)["contenders"][0]["start"]
    assert start["model_revision"] == COMMIT
    assert start["model"].endswith(f"snapshots/{COMMIT}/m.gguf")
    assert "a: downloading owner/name: 4 B" in done.stderr
