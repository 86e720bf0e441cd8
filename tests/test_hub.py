"""Models on a hub, played by a server on the loopback; nothing outside a test's folder is used."""

import json
import re
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from checkpoints import BOTH, EMBEDDING, INDEXED, LAYER, LLAMA, a_shard
from conftest import Kvroom
from kvroom.checkpoint import hub as headers
from kvroom.checkpoint.index import INDEX
from kvroom.errors import InputError

COMMIT = "0123456789abcdef0123456789abcdef01234567"
MODEL = "owner/name"
LARGE = 40 << 20
"""Bytes of data in a shard, as a hole; far more than any header."""

Done = subprocess.CompletedProcess[str]


class Hub(ThreadingHTTPServer):
    """Serves a folder as one model, counts what it sends, and misbehaves as it is told."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.folder = folder
        self.sent = 0
        self.asked: list[str] = []
        self.statuses: dict[str, tuple[int, str]] = {}
        """What to answer for a file instead of sending it: a status, and the hub's own code."""
        self.sizes: dict[str, int] = {}
        """What to claim as a file's size."""
        self.delay_s = 0.0
        self.drip_s = 0.0
        self.cut_after: int | None = None
        """Bytes of a file after which the connection is closed, once."""
        self.ranges = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, *_: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        hub = self.server
        hub.asked.append(f"{self.command} {self.path} {self.headers.get('range', '')}".strip())
        time.sleep(hub.delay_s)
        path = self.path.partition("?")[0]
        api = re.fullmatch(f"/api/models/{MODEL}(/revision/.+)?", path)
        if api:
            self.api()
            return
        file = re.fullmatch(f"/{MODEL}/resolve/(main|{COMMIT})/(.+)", path)
        if file:
            self.file(file[2])
        else:
            self.refuse(401, "RepoNotFound")

    def api(self) -> None:
        if "api" in self.server.statuses:
            self.refuse(*self.server.statuses["api"])
            return
        paths = sorted(self.server.folder.iterdir())
        files = [{"rfilename": path.name, "size": path.stat().st_size} for path in paths]
        told = {"id": MODEL, "sha": COMMIT, "siblings": files}
        self.send(200, json.dumps(told).encode(), {"content-type": "application/json"})

    def file(self, name: str) -> None:
        if name in self.server.statuses:
            self.refuse(*self.server.statuses[name])
            return
        path = self.server.folder / name
        if not path.is_file():
            self.refuse(404, "EntryNotFound")
            return
        size = path.stat().st_size
        headers = {"etag": f'"{size}-{name}"', "x-repo-commit": COMMIT, "accept-ranges": "bytes"}
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("range", ""))
        with path.open("rb") as file:
            if asked and self.server.ranges:
                first, last = int(asked[1]), min(int(asked[2] or size), size - 1)
                file.seek(first)
                headers["content-range"] = f"bytes {first}-{last}/{size}"
                self.send(206, file.read(last - first + 1), headers)
            else:
                claimed = self.server.sizes.get(name, size)
                self.send(200, b"" if self.command == "HEAD" else file.read(), headers, claimed)

    def refuse(self, status: int, code: str) -> None:
        self.send(status, b"", {"x-error-code": code, "x-error-message": "you may not"})

    def send(
        self, status: int, body: bytes, headers: Mapping[str, str], size: int | None = None
    ) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("content-length", str(len(body) if size is None else size))
        self.end_headers()
        if self.command != "HEAD":
            self.pour(body)

    def pour(self, body: bytes) -> None:
        """In pieces, and slowly if it is told so; a reader that has enough may leave."""
        step = 16 if self.server.drip_s and self.headers.get("range") else 1 << 16
        try:
            for start in range(0, len(body), step):
                if self.server.cut_after is not None and start >= self.server.cut_after:
                    self.server.cut_after = None
                    self.close_connection = True
                    return
                self.wfile.write(body[start : start + step])
                self.server.sent += len(body[start : start + step])
                if step == 16:
                    time.sleep(self.server.drip_s)
        except OSError:
            self.close_connection = True


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    """A hub with a model of two shards beside a consolidated copy of them."""
    folder = tmp_path / "served"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    (folder / INDEX).write_text(json.dumps(INDEXED))
    for name, shapes in BOTH.items():
        a_shard(folder / name, shapes)
    a_shard(folder / "consolidated.safetensors", {**EMBEDDING, **LAYER})
    with Hub(folder) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


Ask = Callable[..., Done]


@pytest.fixture
def ask(hub: Hub, kvroom: Kvroom, tmp_path: Path) -> Ask:
    """Plans the model of the hub, in a home of its own."""

    def call(*words: str, model: str = MODEL, **env: str) -> Done:
        homes = {"HF_HOME": str(tmp_path / "hf"), "HOME": str(tmp_path), "HF_ENDPOINT": hub.url}
        proxies = {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
        plan = ("plan", model, "--engine", "vllm", "--available", "1GiB", "--json", *words)
        return kvroom(*plan, env={**homes, **proxies, **env})

    return call


def told(done: Done) -> Any:
    """The answer; nothing but it is printed."""
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    answers = json.loads(done.stdout)
    return answers[0] if isinstance(answers, list) else answers


def refused(done: Done) -> str:
    """The one sentence; a hint may follow it, and nothing else does."""
    assert done.returncode == 2, done.stdout + done.stderr
    error, *hints = done.stderr.splitlines()
    assert error.startswith("error: ")
    assert [hint[:6] for hint in hints] in ([], ["hint: "])
    assert done.stdout == ""
    return error


def test_weights_are_read_by_ranges_only(hub: Hub, ask: Ask) -> None:
    """Two shards of 40 MiB; the copy beside them is not asked for."""
    shards = {
        name: {**shapes, f"model.layers.1.mlp.up_proj.{n}": ("U8", [LARGE])}
        for n, (name, shapes) in enumerate(BOTH.items())
    }
    for name, shapes in shards.items():
        a_shard(hub.folder / name, shapes)
    found = told(ask())

    assert found["weights"]["parts"] == {"embeddings": 12_800, "layers": 16_384 + 2 * LARGE}
    assert hub.sent < 1 << 20
    asked = [line for line in hub.asked if ".safetensors" in line and INDEX not in line]
    assert all("bytes=" in line for line in asked)
    assert not any("consolidated" in line for line in asked)


def test_a_long_header_costs_a_second_request(hub: Hub, ask: Ask) -> None:
    (hub.folder / INDEX).unlink()
    for name in BOTH:
        (hub.folder / name).unlink()
    many = {f"model.layers.0.mlp.experts.{n}.up_proj.weight": ("F4", [8, 8]) for n in range(3000)}
    a_shard(hub.folder / "model.safetensors", many)

    assert told(ask())["weights"]["parts"] == {"experts": 3000 * 32}
    assert len([line for line in hub.asked if "/model.safetensors" in line]) == 2


def test_a_server_without_ranges_is_left_when_enough_was_read(hub: Hub, ask: Ask) -> None:
    hub.ranges = False
    a_shard(hub.folder / next(iter(BOTH)), {**EMBEDDING, "big": ("U8", [LARGE])})

    assert told(ask())["weights"]["parts"]["other"] == LARGE
    assert hub.sent < LARGE


def test_a_model_without_safetensors_has_unknown_weights(hub: Hub, ask: Ask) -> None:
    for path in hub.folder.glob("*safetensors*"):
        path.unlink()

    assert told(ask())["weights"] is None


def test_an_index_without_its_shards_is_enough(hub: Hub, ask: Ask) -> None:
    for path in hub.folder.glob("*.safetensors"):
        path.unlink()

    assert told(ask())["weights"]["parts"] == {"other": 29_184}


@pytest.mark.parametrize(
    ("name", "status", "sentence", "hint"),
    [
        ("config.json", (401, "GatedRepo"), "owner/name asks for a login", "HF_TOKEN"),
        (INDEX, (403, "GatedRepo"), "owner/name asks for a login", "HF_TOKEN"),
        (next(iter(BOTH)), (401, ""), "owner/name asks for a login", "HF_TOKEN"),
        (next(iter(BOTH)), (404, ""), "cannot be read from the hub: Client error '404", "again"),
        (next(iter(BOTH)), (500, ""), "cannot be read from the hub: Server error '500", "again"),
        ("api", (500, ""), "owner/name cannot be read from the hub: ", "again"),
        ("api", (404, "RepoNotFound"), "owner/name is not on the hub, or needs a login", "name"),
        ("api", (401, "RepoNotFound"), "owner/name is not on the hub, or needs a login", "name"),
    ],
)
def test_a_hub_that_refuses(
    name: str, status: tuple[int, str], sentence: str, hint: str, hub: Hub, ask: Ask
) -> None:
    hub.statuses[name] = status
    done = ask()

    assert sentence in refused(done)
    assert hint in done.stderr.splitlines()[1]


def test_a_model_that_is_not_there(ask: Ask) -> None:
    assert "nobody/nothing is not on the hub" in refused(ask(model="nobody/nothing"))
    assert "..weird/--name cannot be read from the hub" in refused(ask(model="a..weird/--name"))


def test_a_model_without_a_config_is_told_what_to_do(hub: Hub, ask: Ask) -> None:
    (hub.folder / "config.json").rename(hub.folder / "model.gguf")
    done = ask()

    assert "owner/name has no config.json on the hub" in refused(done)
    assert "hint: fetch 'model.gguf' and give its path" in done.stderr


def a_dead_end() -> str:
    """An address where nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


def test_a_hub_that_is_down(ask: Ask) -> None:
    address = a_dead_end()
    said = refused(ask(HF_ENDPOINT=address))

    assert f"the hub at {address} cannot be reached" in said
    assert "owner/name is not in the cache" in said


def test_an_endpoint_that_is_no_address(ask: Ask) -> None:
    refused(ask(HF_ENDPOINT="not an address"))


def test_offline_means_the_hub_is_not_asked(hub: Hub, ask: Ask) -> None:
    done = ask(HF_HUB_OFFLINE="1")

    assert "the hub is not asked (HF_HUB_OFFLINE), and owner/name is not in" in refused(done)
    assert "unset HF_HUB_OFFLINE" in done.stderr
    assert hub.asked == []


@pytest.mark.parametrize("down", [True, False])
def test_what_was_read_before_is_enough_without_the_hub(down: bool, hub: Hub, ask: Ask) -> None:
    """The configuration and the index are in the cache; the headers of the shards are not."""
    told(ask())
    asked = len(hub.asked)
    found = told(ask(HF_ENDPOINT=a_dead_end()) if down else ask(HF_HUB_OFFLINE="1"))

    assert found["weights"]["parts"] == {"other": 29_184}
    assert len(hub.asked) == asked


def test_weights_that_are_not_in_the_cache_are_said_to_be_unknown(hub: Hub, ask: Ask) -> None:
    (hub.folder / INDEX).unlink()
    told(ask())
    found = told(ask(HF_HUB_OFFLINE="1"))

    assert found["weights"] is None
    assert found["guesses"] == [
        "the weights are not known: the hub is not asked (HF_HUB_OFFLINE), and they are not in "
        "the cache"
    ]


HASTY = {"HF_HUB_ETAG_TIMEOUT": "1", "HF_HUB_DOWNLOAD_TIMEOUT": "1"}


def test_a_hub_that_does_not_answer_in_time(hub: Hub, ask: Ask) -> None:
    hub.delay_s = 30
    began = time.monotonic()

    assert "cannot be reached" in refused(ask(**HASTY))
    assert time.monotonic() - began < 20


def test_a_hub_that_stops_within_a_header(hub: Hub, ask: Ask) -> None:
    hub.drip_s = 30
    began = time.monotonic()

    assert "takes too long to send the headers of owner/name" in refused(ask(**HASTY))
    assert time.monotonic() - began < 20


def test_a_hub_that_drips_is_left_in_the_end(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each piece comes in time, and the whole would take hours."""
    monkeypatch.setattr(headers, "PATIENCE_S", 0.5)
    hub.drip_s = 0.05
    library = SimpleNamespace(
        hf_hub_url=lambda model, name: f"{hub.url}/{model}/resolve/main/{name}",
        utils=SimpleNamespace(build_hf_headers=dict),
        constants=SimpleNamespace(HF_HUB_DOWNLOAD_TIMEOUT=1),
    )
    a_shard(hub.folder / "model.safetensors", {"a" * 10_000: ("U8", [1])})

    with (
        headers.Headers(library, MODEL) as reader,
        pytest.raises(InputError, match="takes too long to send the headers"),
    ):
        list(reader.tensors(["model.safetensors"]))


@pytest.mark.parametrize("name", ["config.json", INDEX])
def test_a_file_of_absurd_size_is_not_fetched(name: str, hub: Hub, ask: Ask) -> None:
    hub.sizes[name] = 1 << 40

    assert f"owner/name/{name} is larger than" in refused(ask())
    assert not any(line.startswith("GET") and name in line for line in hub.asked)


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        (b"", "is too short to be safetensors"),
        (b"\0" * 7, "is too short to be safetensors"),
        (b"\xff" * 8 + b"{}", "the header says 18446744073709551615 bytes, the file has 10"),
        (b"\2" + b"\0" * 7 + b"[]", "the header cannot be read"),
        (b"\2" + b"\0" * 7 + b"{}" + b"x", "the tensors take 0 bytes, the file has 1 for them"),
    ],
)
def test_a_hostile_header(raw: bytes, sentence: str, hub: Hub, ask: Ask) -> None:
    name = next(iter(BOTH))
    (hub.folder / name).write_bytes(raw)

    said = refused(ask())
    assert sentence in said
    assert f"owner/name/{name}" in said


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "owner/name/config.json is not JSON"),
        ("[]", "owner/name/config.json does not hold an object"),
        ('{"num_hidden_layers": 0}', "owner/name/config.json: num_hidden_layers: 0 is not"),
    ],
)
def test_a_hostile_config(text: str, sentence: str, hub: Hub, ask: Ask) -> None:
    (hub.folder / "config.json").write_text(text)

    assert sentence in refused(ask())


def test_an_index_that_names_what_is_not_there(hub: Hub, ask: Ask) -> None:
    name = next(iter(BOTH))
    (hub.folder / name).unlink()

    assert f"owner/name/{INDEX} names {name}, which is missing (1 of 2" in refused(ask())
