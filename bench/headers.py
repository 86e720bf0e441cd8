"""How long it takes to weigh a checkpoint of 700 GB by its headers, beside safetensors' own reader.

    python bench/headers.py [--shards 160] [-o docs/reference/headers.md]

The checkpoint is sparse: headers of real lengths, with the names and shapes of a DeepSeek-V3, and
holes for data. Each reader is a process of its own, and its time includes its start.
"""

import argparse
import importlib.util
import json
import os
import platform
import subprocess
import sys
import tempfile
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any

from kvroom.provide.environment import made_environment

ROUNDS = 5
LAYERS, EXPERTS, DENSE = 61, 256, 3
HIDDEN, EXPERT, WIDE, VOCAB = 7168, 2048, 18432, 129_280

CONFIG = {
    "model_type": "deepseek_v3",
    "torch_dtype": "bfloat16",
    "hidden_size": HIDDEN,
    "intermediate_size": WIDE,
    "moe_intermediate_size": EXPERT,
    "n_routed_experts": EXPERTS,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "num_nextn_predict_layers": 1,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "max_position_embeddings": 163_840,
    "vocab_size": VOCAB,
}

SAFETENSORS = """
import glob, sys
from safetensors import safe_open
sizes = {"F32": 4, "BF16": 2, "F8_E4M3": 1}
total = count = 0
for path in sorted(glob.glob(sys.argv[1] + "/*.safetensors")):
    with safe_open(path, framework="np") as file:
        for key in file.keys():
            part = file.get_slice(key)
            size = sizes[part.get_dtype()]
            for one in part.get_shape():
                size *= one
            total, count = total + size, count + 1
print(count, total)
"""
HUB = """
import glob, sys
import huggingface_hub
total = count = 0
for path in sorted(glob.glob(sys.argv[1] + "/*.safetensors")):
    file = huggingface_hub.parse_local_safetensors_file_metadata(path)
    for one in file.tensors.values():
        total, count = total + one.data_offsets[1] - one.data_offsets[0], count + 1
print(count, total)
"""

LAUNCH = """
import resource, subprocess, sys, time
began = time.perf_counter()
subprocess.run(sys.argv[1:], check=True)
wall = time.perf_counter() - began
print(wall, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shards", type=int, default=160)
    parser.add_argument("-o", "--out", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        count, total = make(Path(folder), given.shards)
        rows = [measured(name, command) for name, command in readers(folder).items()]
    for row in rows:
        assert row["total"] == total, row
    page = PAGE.format(
        shards=given.shards, tensors=count, size=total / 1e9, rounds=ROUNDS, table=table(rows),
        date=date.today(), python=platform.python_version(), cores=os.cpu_count(),  # noqa: DTZ011
        kvroom=metadata.version("kvroom"),
    )  # fmt: skip
    print(page)
    if given.out is not None:
        given.out.write_text(page)


# the checkpoint


def make(folder: Path, shards: int) -> tuple[int, int]:
    """Writes it; tensors and bytes of data."""
    tensors = list(deepseek())
    total = sum(size_of(dtype, shape) for _, dtype, shape in tensors)
    weight_map: dict[str, str] = {}
    for number in range(shards):
        name = f"model-{number + 1:05}-of-{shards:06}.safetensors"
        part = tensors[number * len(tensors) // shards : (number + 1) * len(tensors) // shards]
        weight_map |= {tensor: name for tensor, _, _ in part}
        write_shard(folder / name, part)
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return len(tensors), total


Tensor = tuple[str, str, tuple[int, ...]]


def write_shard(path: Path, tensors: list[Tensor]) -> None:
    """A header and a hole."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, dtype, shape in tensors:
        start, end = end, end + size_of(dtype, shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)


def size_of(dtype: str, shape: tuple[int, ...]) -> int:
    size = {"BF16": 2, "F8_E4M3": 1, "F32": 4}[dtype]
    for one in shape:
        size *= one
    return size


def deepseek() -> Any:
    """Names, dtypes and shapes: fp8 in blocks of 128 by 128, with a scale for each block."""
    yield "model.embed_tokens.weight", "BF16", (VOCAB, HIDDEN)
    yield "lm_head.weight", "BF16", (VOCAB, HIDDEN)
    yield "model.norm.weight", "BF16", (HIDDEN,)
    for layer in range(LAYERS + 1):
        at = f"model.layers.{layer}"
        yield f"{at}.input_layernorm.weight", "BF16", (HIDDEN,)
        yield f"{at}.post_attention_layernorm.weight", "BF16", (HIDDEN,)
        for name, out, into in (
            ("q_a_proj", 1536, HIDDEN), ("q_b_proj", 24_576, 1536),
            ("kv_a_proj_with_mqa", 576, HIDDEN), ("kv_b_proj", 32_768, 512),
            ("o_proj", HIDDEN, 16_384),
        ):  # fmt: skip
            yield from linear(f"{at}.self_attn.{name}", out, into)
        if layer < DENSE:
            yield from mlp(f"{at}.mlp", WIDE)
            continue
        yield f"{at}.mlp.gate.weight", "BF16", (EXPERTS, HIDDEN)
        yield f"{at}.mlp.gate.e_score_correction_bias", "F32", (EXPERTS,)
        yield from mlp(f"{at}.mlp.shared_experts", EXPERT)
        for expert in range(EXPERTS):
            yield from mlp(f"{at}.mlp.experts.{expert}", EXPERT)


def mlp(at: str, wide: int) -> Any:
    yield from linear(f"{at}.gate_proj", wide, HIDDEN)
    yield from linear(f"{at}.up_proj", wide, HIDDEN)
    yield from linear(f"{at}.down_proj", HIDDEN, wide)


def linear(at: str, out: int, into: int) -> Any:
    yield f"{at}.weight", "F8_E4M3", (out, into)
    yield f"{at}.weight_scale_inv", "F32", (-(-out // 128), -(-into // 128))


# the readers


def readers(folder: str) -> dict[str, list[str]]:
    """A name and a command each; safetensors in an environment of its own, if it can be had."""
    plan = [
        "plan",
        folder,
        "--engine",
        "vllm",
        "--card",
        "H200",
        "--tensor-parallel",
        "8",
        "--json",
    ]
    found = {"kvroom plan": [sys.executable, "-m", "kvroom", *plan]}
    found["huggingface_hub, header by header"] = [sys.executable, "-c", HUB, folder]
    python = python_with("safetensors")
    if python is not None:
        found["safetensors.safe_open"] = [python, "-c", SAFETENSORS, folder]
    return found


def python_with(package: str) -> str | None:
    if importlib.util.find_spec(package) is not None:
        return sys.executable
    try:
        return str(made_environment([package, "numpy"], {}, lambda text: None))
    except Exception as error:  # noqa: BLE001  a peer that cannot be had is left out
        print(f"{package}: {error}", file=sys.stderr)
        return None


def measured(name: str, command: list[str]) -> dict[str, Any]:
    """The median wall time and the highest memory, files in the page cache."""
    rounds = [once(command) for _ in range(ROUNDS + 1)][1:]
    return {
        "name": name,
        "wall_s": sorted(wall for wall, _, _ in rounds)[ROUNDS // 2],
        "memory_mb": max(memory for _, memory, _ in rounds),
        "total": total_of(rounds[0][2]),
    }


def once(command: list[str]) -> tuple[float, float, str]:
    """Seconds, MB at the peak, and what it printed; started by a small process, whose own memory
    would otherwise count as the peak."""
    small = [sys.executable, "-I", "-S", "-c", LAUNCH, *command]
    done = subprocess.run(small, capture_output=True, text=True, check=True)
    wall, kilobytes = done.stderr.split()[-2:]
    return float(wall), int(kilobytes) * 1024 / 1e6, done.stdout


def total_of(printed: str) -> int:
    if not printed.startswith(("{", "[")):
        return int(printed.split()[1])
    told = json.loads(printed)
    told = told[0] if isinstance(told, list) else told
    return sum(told["weights"]["parts"].values())


def table(rows: list[dict[str, Any]]) -> str:
    lines = ["| reader | wall time | peak memory |", "|---|---:|---:|"]
    lines += [f"| {r['name']} | {r['wall_s']:.2f} s | {r['memory_mb']:.0f} MB |" for r in rows]
    return "\n".join(lines)


PAGE = """# Reading headers

A sparse checkpoint of {size:,.0f} GB: {tensors:,} tensors in {shards} shards, with the names and
shapes of DeepSeek-V3. Each reader is a process of its own and sums the bytes of all tensors; all
come to the same total. `kvroom plan` also parts the weights, reads the configuration and plans.

{table}

The median of {rounds} rounds, start of the process included, files in the page cache.
kvroom {kvroom}, Python {python}, {cores} cores, {date}.
"""

if __name__ == "__main__":
    main()
