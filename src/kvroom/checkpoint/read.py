"""A model folder, a GGUF file or a hub id -> Checkpoint."""

from pathlib import Path

import msgspec

from kvroom.checkpoint.architecture import Architecture
from kvroom.checkpoint.config import Config, read_bounded
from kvroom.checkpoint.families import architecture
from kvroom.checkpoint.weights import Weights, weights_of
from kvroom.errors import InputError

QUANTIZATION = "hf_quant_config.json"
"""What ModelOpt writes beside config.json."""
MAX_INDEX_BYTES = 64 << 20


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """What a model says of itself."""

    name: str
    architecture: Architecture
    weights: Weights | None
    """None where there is a configuration and no weights."""


def read_checkpoint(model: str) -> Checkpoint:
    """The checkpoint at a path, or of a hub id; InputError says what is wrong with it."""
    try:
        return _read(model)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise InputError(f"the model {model[:200]} cannot be read: {why}") from None


def _read(model: str) -> Checkpoint:
    try:
        path = Path(model).expanduser()
    except RuntimeError:
        raise InputError(f"the model {model[:200]} cannot be found: no such user") from None
    if path.is_file() and path.suffix == ".gguf":
        return _read_gguf(path)
    if path.is_dir():
        return _read_folder(path)
    if path.exists():
        raise InputError(
            f"{path} is neither a model folder nor a .gguf file", "give the folder it lies in"
        )
    if looks_like_hub_id(model):
        from kvroom.checkpoint.hub import read_hub

        return read_hub(model)
    raise InputError(f"the model {model} does not exist", "give a folder, a .gguf file or a hub id")


def looks_like_hub_id(model: str) -> bool:
    """Whether a text could name a model of the hub: an owner, a slash, a name."""
    owner, slash, name = model.partition("/")
    return bool(slash and owner and name) and "/" not in name and not model.startswith((".", "~"))


def _read_folder(folder: Path) -> Checkpoint:
    if not (folder / "config.json").is_file():
        some = next(folder.glob("*.gguf"), None)
        hint = f"give the file itself, such as {some}" if some else "give a folder that has one"
        raise InputError(f"the model folder {folder} has no config.json", hint)
    config = Config.read(folder / "config.json")
    if (folder / QUANTIZATION).is_file():
        config = config.with_quantization(Config.read(folder / QUANTIZATION))
    return Checkpoint(
        name=folder.resolve().name,
        architecture=architecture(config),
        weights=folder_weights(folder, depth_of(config)),
    )


def folder_weights(folder: Path, depth: int | None) -> Weights | None:
    """The weights in a folder by the headers of its files, or by the index where it has only that.

    None where there is neither; InputError where a file is damaged or missing.
    """
    from kvroom.checkpoint import index, tensors

    path = folder / index.INDEX
    listed = None
    if path.is_file():
        listed = index.parse_index(str(path), read_bounded(path, MAX_INDEX_BYTES))
    names = index.chosen(index.safetensors_in(folder), listed, str(path))
    if names:
        return weights_of(tensors.tensors_of(folder / name for name in names), depth)
    told = index.total_size(str(path), listed) if listed is not None else None
    return None if told is None else Weights(parts={"other": told}, dtypes={})


def depth_of(config: Config) -> int | None:
    """Layers of the language model, where the configuration says."""
    return config.text.count("num_hidden_layers", "n_layer", "num_layers", default=0) or None


def _read_gguf(path: Path) -> Checkpoint:
    from kvroom.checkpoint import gguf_file, gguf_layers

    head = gguf_file.GgufHead(path)
    return Checkpoint(
        name=path.name,
        architecture=gguf_layers.gguf_architecture(head),
        weights=weights_of(gguf_file.gguf_tensors(head), gguf_layers.depth_of(head)),
    )
