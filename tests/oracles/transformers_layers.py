"""What the layers of a model really keep, by transformers' own modules. One question a line.

In: {"model_type": ..., "overrides": {...}}. Out: {"config": ..., "layers": [...]}, where the
configuration is as config.json would hold it and each layer is told from the shapes of its weights,
on the meta device, so that nothing is computed.
"""

import json
import sys
import warnings
from typing import Any

warnings.simplefilter("ignore")

import torch  # noqa: E402
from transformers import (  # noqa: E402
    CONFIG_MAPPING,
    AutoModel,
    AutoModelForCausalLM,
    logging,
)

logging.set_verbosity_error()


def main() -> None:
    """Answer until the questions end."""
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """The configuration and what each layer keeps, or why there is none."""
    try:
        config = CONFIG_MAPPING[question["model_type"]](**question["overrides"])
        text = config.get_text_config()
        text._attn_implementation = "eager"
        with torch.device("meta"):
            model = model_of(config, text)
        kept = [layer_of(layer) for layer in layers_of(model)]
    except Exception as error:  # noqa: BLE001
        return {"error": f"{type(error).__name__}: {error}"[:500]}
    return {"config": json.loads(config.to_json_string(use_diff=False)), "layers": kept}


def model_of(config: Any, text: Any) -> Any:
    """With a head if there is such a class, else without; last, what the wrapper makes of it."""
    for cls, given in ((AutoModelForCausalLM, text), (AutoModel, text)):
        try:
            return cls.from_config(given)
        except ValueError:
            continue
    return AutoModelForCausalLM.from_config(config)


def layers_of(model: Any) -> list[Any]:
    """The decoder's layers: the longest list of modules outside any other."""
    lists: list[Any] = [m for m in model.modules() if isinstance(m, torch.nn.ModuleList)]
    sizes = [sum(p.numel() for p in found.parameters()) for found in lists]
    return list(lists[sizes.index(max(sizes))])


def layer_of(layer: Any) -> list[dict[str, Any]]:
    """Everything that one layer keeps between tokens."""
    found: list[dict[str, Any]] = []
    for name, module in layer.named_modules():
        if "vision" not in name:
            found += state(module) or attention(module)
    return found


def attention(module: Any) -> list[dict[str, Any]]:
    """Keys and values, or one latent vector."""
    if hasattr(module, "kv_a_proj_with_mqa"):
        size = out(module.kv_a_proj_with_mqa)
        latent = {"kind": "mla", "heads": 1, "key": size, "value": 0, "window": None}
        index = getattr(module, "indexer", None)
        return [latent] if index is None else [latent, {"kind": "index", "key": out(index.wk)}]
    sizes = keys_and_values(module)
    if getattr(module, "is_kv_shared_layer", False) or sizes is None:
        return []
    kind, window = reach(module)
    key, value = sizes
    heads = key // module.head_dim
    return [{"kind": kind, "heads": heads, "key": key, "value": value, "window": window}]


def reach(module: Any) -> tuple[str, int | None]:
    """How far back: a chunk where positions rotate (Llama 4), a window, or all the way.

    Cross attention (Mllama) looks at a picture instead.
    Modules that know no window leave it to the mask, which then is the same for all layers.
    """
    config = module.config
    if "Cross" in type(module).__name__:
        return "cross", None
    if getattr(module, "use_rope", None) and getattr(config, "attention_chunk_size", None):
        return "chunked", int(config.attention_chunk_size)
    default = (
        None if getattr(config, "layer_types", None) else config.__dict__.get("sliding_window")
    )
    window = getattr(module, "sliding_window", default)
    if not window or getattr(module, "is_sliding", True) is False:
        return "full", None
    return "sliding", int(window)


def keys_and_values(module: Any) -> tuple[int, int] | None:
    """Elements of all keys and of all values of a token."""
    if hasattr(module, "k_proj") and hasattr(module, "q_proj"):
        value = getattr(module, "v_proj", None)
        return out(module.k_proj), out(value) if value is not None else out(module.k_proj)
    for fused, behind in (("qkv_proj", "o_proj"), ("query_key_value", "dense")):
        if hasattr(module, fused):
            queries = getattr(module, behind).in_features
            rest = (out(getattr(module, fused)) - queries) // 2
            return rest, rest
    return None


def state(module: Any) -> list[dict[str, Any]]:
    """A state of fixed size: its convolution, and what is recurrent."""
    if hasattr(module, "conv") and hasattr(module, "conv_kernel_size") and hasattr(module, "bias"):
        return [state_of("short_conv", module.conv, 0)]
    if not hasattr(module, "conv1d"):
        return []
    if hasattr(module, "head_k_dim"):
        recurrent = module.num_v_heads * module.head_k_dim * module.head_v_dim
        return [state_of("gated_delta_net", module.conv1d, recurrent)]
    if hasattr(module, "qkv_dim"):
        return [state_of("kda", module.conv1d, module.num_heads * module.head_dim**2)]
    if module.A_log.dim() == 2:
        return [state_of("mamba1", module.conv1d, module.A_log.numel())]
    recurrent = module.A_log.numel() * module.head_dim * module.ssm_state_size
    return [state_of("mamba2", module.conv1d, recurrent)]


def state_of(kind: str, conv: Any, recurrent: int) -> dict[str, Any]:
    """Channels and past columns of the convolution, and recurrent elements."""
    return {
        "kind": kind,
        "channels": conv.weight.shape[0],
        "columns": conv.weight.shape[-1] - 1,
        "recurrent": int(recurrent),
    }


def out(linear: Any) -> int:
    """Features that a projection makes."""
    return int(linear.weight.shape[0])


if __name__ == "__main__":
    main()
