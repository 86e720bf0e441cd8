"""A model on a hub: its configuration, and the headers of its weights by ranged requests.

Names, tokens, the cache and the endpoint are huggingface-hub's. The headers are read here, so that
no answer can be larger or slower than they may be.
"""

import logging
import re
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import msgspec

from kvroom.checkpoint import index, tensors
from kvroom.checkpoint.config import MAX_CONFIG_BYTES, Config, read_bounded
from kvroom.checkpoint.families import architecture
from kvroom.checkpoint.read import (
    MAX_INDEX_BYTES,
    QUANTIZATION,
    Checkpoint,
    depth_of,
    folder_weights,
)
from kvroom.checkpoint.tensors import Tensor
from kvroom.checkpoint.weights import Weights, weights_of
from kvroom.errors import InputError

FIRST_BYTES = 128 << 10
"""Enough for the header of most shards; a longer one costs a second request."""
MAX_HEADER_BYTES = 25 << 20
PATIENCE_S = 120
"""For the headers of all shards together."""
AT_ONCE = 8


class Unreachable(InputError):
    """The hub did not answer, or may not be asked."""


def read_hub(model: str) -> Checkpoint:
    """The checkpoint of a hub id; of what is in the cache where the hub cannot be reached.

    HF_ENDPOINT, HF_HUB_OFFLINE, HF_TOKEN, HF_HOME and huggingface-hub's time-outs are honoured.
    """
    hub = library()
    try:
        return _from_hub(hub, model)
    except Unreachable as error:
        return _from_cache(hub, model, error)


def library() -> Any:
    """The package huggingface_hub; InputError if it is not there."""
    try:
        import huggingface_hub
        import huggingface_hub.constants
        import huggingface_hub.utils
    except ImportError:
        raise InputError(
            "reading a model from a hub needs huggingface-hub",
            "pip install huggingface-hub, or give a local folder",
        ) from None
    logging.getLogger("huggingface_hub").setLevel(logging.CRITICAL)
    return huggingface_hub


def _from_hub(hub: Any, model: str) -> Checkpoint:
    timeout = hub.constants.HF_HUB_ETAG_TIMEOUT
    info = ask(hub, model, hub.HfApi().model_info, model, timeout=timeout)
    names = [str(sibling.rfilename) for sibling in info.siblings or ()]
    if "config.json" not in names:
        some = next((name for name in names if name.endswith(".gguf")), None)
        hint = f"fetch {tensors.shown(some)} and give its path" if some else "give a folder"
        raise InputError(f"{model} has no config.json on the hub", hint)
    text = _fetched(hub, model, "config.json", MAX_CONFIG_BYTES)
    config = Config.parse(text, f"{model}/config.json")
    if QUANTIZATION in names:
        text = _fetched(hub, model, QUANTIZATION, MAX_CONFIG_BYTES)
        config = config.with_quantization(Config.parse(text, f"{model}/{QUANTIZATION}"))
    made = architecture(config)
    return Checkpoint(
        name=model, architecture=made, weights=_weights(hub, model, names, depth_of(config))
    )


def _from_cache(hub: Any, model: str, why: Unreachable) -> Checkpoint:
    try:
        path = Path(ask(hub, model, hub.hf_hub_download, model, "config.json",
                         local_files_only=True))  # fmt: skip
    except Unreachable:
        raise InputError(f"{why}, and {model} is not in the cache", why.hint) from None
    config = Config.parse(read_bounded(path, MAX_CONFIG_BYTES), f"{model}/config.json")
    made, weights = architecture(config), folder_weights(path.parent, depth_of(config))
    if weights is None:
        guess = f"the weights are not known: {why}, and they are not in the cache"
        made = msgspec.structs.replace(made, guesses=(*made.guesses, guess))
    return Checkpoint(name=model, architecture=made, weights=weights)


def _fetched(hub: Any, model: str, name: str, most: int) -> bytes:
    """A file of the model by way of the cache; its size is asked for before it is fetched."""
    timeout = hub.constants.HF_HUB_ETAG_TIMEOUT
    facts = ask(hub, model, hub.get_hf_file_metadata, hub.hf_hub_url(model, name), timeout=timeout)
    if facts.size is not None and facts.size > most:
        raise InputError(f"{model}/{name} is larger than {most >> 20} MiB", "it is no such file")
    return read_bounded(Path(ask(hub, model, hub.hf_hub_download, model, name)), most)


def _weights(hub: Any, model: str, names: Sequence[str], depth: int | None) -> Weights | None:
    """None where the model has no safetensors; InputError where they cannot be read."""
    listed, name = None, f"{model}/{index.INDEX}"
    if index.INDEX in names:
        listed = index.parse_index(name, _fetched(hub, model, index.INDEX, MAX_INDEX_BYTES))
    there = [one for one in names if one.endswith(".safetensors") and "/" not in one]
    shards = index.chosen(there, listed, name)
    if len(shards) > index.MAX_FILES:
        raise InputError(f"{model} has more than {index.MAX_FILES:,} safetensors files")
    if shards:
        with Headers(hub, model) as headers:
            return weights_of(tensors.bounded(headers.tensors(shards)), depth)
    told = index.total_size(name, listed) if listed is not None else None
    return None if told is None else Weights(parts={"other": told}, dtypes={})


class Headers:
    """Headers of safetensors files of one model, by ranged requests; a context manager."""

    def __init__(self, hub: Any, model: str) -> None:
        self.model = model
        self.url: Callable[..., str] = hub.hf_hub_url
        self.deadline = time.monotonic() + PATIENCE_S
        self.client = httpx.Client(
            headers={**hub.utils.build_hf_headers(), "accept-encoding": "identity"},
            timeout=hub.constants.HF_HUB_DOWNLOAD_TIMEOUT,
            follow_redirects=True,
        )

    def __enter__(self) -> "Headers":
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def tensors(self, names: Sequence[str]) -> Iterator[Tensor]:
        """The tensors of these files, a few of which are in memory at a time."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for first in range(0, len(names), AT_ONCE):
                some = names[first : first + AT_ONCE]
                for name, (text, data_bytes) in zip(some, pool.map(self._read, some), strict=True):
                    yield from tensors.parse(f"{self.model}/{name}", text, data_bytes)

    def _read(self, name: str) -> tuple[bytes, int]:
        """The JSON of a file's header, and the bytes of data after it."""
        start, size = self._range(name, 0, FIRST_BYTES)
        length = tensors.header_length(f"{self.model}/{name}", start[:8], size)
        if length > MAX_HEADER_BYTES:
            raise InputError(
                f"{self.model}/{name}: a header of {length} bytes is absurdly large",
                "fetch the model and give its folder",
            )
        text = start[8 : 8 + length]
        if len(text) < length:
            text += self._range(name, 8 + len(text), length - len(text))[0]
        if len(text) < length:
            raise InputError(f"{self.model}/{name}: the hub sent less than was asked", TRY_AGAIN)
        return text, size - 8 - length

    def _range(self, name: str, start: int, count: int) -> tuple[bytes, int]:
        """So many bytes from a place in a file, fewer at its end, and the size of the file."""
        asked = {"range": f"bytes={start}-{start + count - 1}"}
        try:
            with self.client.stream("GET", self.url(self.model, name), headers=asked) as answer:
                size = self._size(name, answer)
                skipped = start if answer.status_code == httpx.codes.OK else 0
                data = bytearray()
                for chunk in answer.iter_raw():
                    if time.monotonic() > self.deadline:
                        raise _late(self.model)
                    data += chunk
                    if len(data) >= skipped + count:
                        break
        except httpx.TimeoutException:
            raise _late(self.model) from None
        except httpx.HTTPError as error:
            raise InputError(
                f"{self.model}/{name} cannot be read from the hub: {_line(error)}", TRY_AGAIN
            ) from None
        return bytes(data[skipped : skipped + count]), size

    def _size(self, name: str, answer: httpx.Response) -> int:
        """Of the whole file, from what the answer says of its part."""
        if answer.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            raise InputError(f"{self.model} asks for a login", LOG_IN)
        answer.raise_for_status()
        told = (
            answer.headers.get("content-range", "").rpartition("/")[2]
            if answer.status_code == httpx.codes.PARTIAL_CONTENT
            else answer.headers.get("content-length", "")
        )
        if not re.fullmatch(r"\d{1,18}", told, re.ASCII):
            raise InputError(f"{self.model}/{name}: the hub does not say how large it is")
        return int(told)


LOG_IN = "accept its terms on its page, and set HF_TOKEN or run hf auth login"
TRY_AGAIN = "try again, or give a local folder"


def _late(model: str) -> InputError:
    return InputError(f"the hub takes too long to send the headers of {model}", TRY_AGAIN)


def ask(hub: Any, model: str, call: Callable[..., Any], *words: Any, **options: Any) -> Any:
    """What huggingface-hub answers; InputError for whatever it raises."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            hub.utils.disable_progress_bars()
            return call(*words, **options)
    except Exception as error:  # noqa: BLE001  its HTTP client, and so its errors, vary by version
        raise _explained(hub, model, error) from None


def _explained(hub: Any, model: str, error: Exception) -> InputError:
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if "GatedRepoError" in kinds:
        return InputError(f"{model} asks for a login", LOG_IN)
    if "OfflineModeIsEnabled" in kinds:
        return Unreachable(
            "the hub is not asked (HF_HUB_OFFLINE)", "give a local folder, or unset HF_HUB_OFFLINE"
        )
    if kinds & {"LocalEntryNotFoundError", "TransportError", "ConnectionError", "Timeout"}:
        return Unreachable(
            f"the hub at {hub.constants.ENDPOINT} cannot be reached ({_line(error)})",
            "check the network and HF_ENDPOINT, or give a local folder",
        )
    if kinds & {"RepositoryNotFoundError", "RevisionNotFoundError"}:
        return InputError(
            f"{model} is not on the hub, or needs a login", "check the name, and HF_TOKEN"
        )
    return InputError(f"{model} cannot be read from the hub: {_line(error)}", TRY_AGAIN)


def _line(error: Exception) -> str:
    """The first line of an error, fit to be printed."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else type(error).__name__
    return "".join(sign for sign in text if sign.isprintable())[:200].rstrip(" .")
