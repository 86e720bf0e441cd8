"""A model on a hub: its configuration, and the headers of its weights by ranged requests."""

import contextlib
from typing import Any

import msgspec

from kvroom.checkpoint.config import Config
from kvroom.checkpoint.families import architecture
from kvroom.checkpoint.read import Checkpoint, depth_of
from kvroom.checkpoint.tensors import Tensor
from kvroom.checkpoint.weights import weights_of
from kvroom.errors import InputError


def read_hub(model: str) -> Checkpoint:
    """The checkpoint of a hub id. HF_ENDPOINT, HF_HUB_OFFLINE and HF_TOKEN are honoured."""
    hub = _library()
    config = Config(_config(hub, model), f"{model}/config.json")
    tensors = _tensors(hub, model)
    return Checkpoint(
        name=model,
        architecture=architecture(config),
        weights=weights_of(tensors, depth_of(config)) if tensors else None,
    )


def _library() -> Any:
    try:
        import huggingface_hub
    except ImportError:
        raise InputError(
            "reading a model from a hub needs huggingface-hub",
            "pip install huggingface-hub, or give a local folder",
        ) from None
    return huggingface_hub


def _config(hub: Any, model: str) -> dict[str, Any]:
    try:
        path = hub.hf_hub_download(model, "config.json")
        with open(path, "rb") as file:  # noqa: PTH123
            values = msgspec.json.decode(file.read())
    except msgspec.DecodeError as error:
        raise InputError(f"{model}: config.json is not JSON: {error}") from None
    except (OSError, ValueError) as error:
        raise _explained(model, error) from None
    if not isinstance(values, dict):
        raise InputError(f"{model}: config.json does not hold an object")
    return values


def _tensors(hub: Any, model: str) -> list[Tensor]:
    """Empty where the model has no safetensors; the plan then knows no weights."""
    with contextlib.suppress(OSError, ValueError):
        metadata = hub.get_safetensors_metadata(model)
        return [
            Tensor(name, info.dtype, info.data_offsets[1] - info.data_offsets[0])
            for file in metadata.files_metadata.values()
            for name, info in file.tensors.items()
        ]
    return []


def _explained(model: str, error: Exception) -> InputError:
    kind = type(error).__name__
    if kind == "GatedRepoError":
        return InputError(f"{model} asks for a login", "accept its terms and set HF_TOKEN")
    if kind in ("RepositoryNotFoundError", "EntryNotFoundError", "RevisionNotFoundError"):
        return InputError(
            f"{model} is not on the hub, or needs a login", "check the name, HF_TOKEN"
        )
    if kind in ("LocalEntryNotFoundError", "OfflineModeIsEnabled"):
        return InputError(
            f"{model} cannot be fetched: no connection to the hub, and it is not in the cache",
            "give a local folder, or unset HF_HUB_OFFLINE",
        )
    return InputError(f"{model} cannot be read from the hub: {str(error)[:200]}")
