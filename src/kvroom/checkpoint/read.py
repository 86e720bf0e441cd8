"""A model folder, a GGUF file or a hub id -> Checkpoint."""

from pathlib import Path

import msgspec

from kvroom.checkpoint.architecture import Architecture
from kvroom.checkpoint.config import Config
from kvroom.checkpoint.families import architecture
from kvroom.checkpoint.weights import Weights, weights_of
from kvroom.errors import InputError


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """What a model says of itself."""

    name: str
    architecture: Architecture
    weights: Weights | None
    """None where there is a configuration and no weights."""


def read_checkpoint(model: str) -> Checkpoint:
    """The checkpoint at a path, or of a hub id; InputError says what is wrong with it."""
    path = Path(model).expanduser()
    if path.is_file() and path.suffix == ".gguf":
        return _read_gguf(path)
    if path.is_dir():
        return _read_folder(path)
    if path.exists():
        raise InputError(f"{path} is neither a model folder nor a .gguf file")
    if _looks_like_hub_id(model):
        from kvroom.checkpoint.hub import read_hub

        return read_hub(model)
    raise InputError(f"the model {model} does not exist", "give a folder, a .gguf file or a hub id")


def _looks_like_hub_id(model: str) -> bool:
    owner, slash, name = model.partition("/")
    return bool(slash and owner and name) and "/" not in name and not model.startswith((".", "~"))


def _read_folder(folder: Path) -> Checkpoint:
    from kvroom.checkpoint.tensors import tensors_of

    if not (folder / "config.json").is_file():
        raise InputError(f"the model folder {folder} has no config.json")
    config = Config.read(folder / "config.json")
    tensors = tensors_of(folder)
    return Checkpoint(
        name=folder.name,
        architecture=architecture(config),
        weights=weights_of(tensors, depth_of(config)) if tensors else None,
    )


def depth_of(config: Config) -> int | None:
    """Layers of the language model, where the configuration says."""
    return config.text.count("num_hidden_layers", "n_layer", "num_layers", default=0) or None


def _read_gguf(path: Path) -> Checkpoint:
    from kvroom.checkpoint.gguf_file import GgufFile, gguf_architecture

    file = GgufFile(path)
    return Checkpoint(
        name=path.name,
        architecture=gguf_architecture(file),
        weights=weights_of(file.tensors()),
    )
