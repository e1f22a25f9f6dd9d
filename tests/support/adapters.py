"""Adapters (LoRA) of random weights for the tiny model, and what SGLang needs to serve them on a CPU."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import sglang_plugin
import unpinned

RANK = 8
_PICKLE = """
import sys, safetensors.torch, torch
torch.save(safetensors.torch.load_file(sys.argv[1]), sys.argv[2])
"""
FLAGS = ("--lora-backend", "torch_native")


def variables(folder: Path) -> dict[str, str]:
    """The environment of a server that serves adapters."""
    folder.mkdir()
    return sglang_plugin.install(folder, unpinned.NAME, "unpinned", [Path(unpinned.__file__)])


def write_adapter(folder: Path, model: Path, *, seed: int) -> Path:
    """Of each product of a Llama in `model`, in PEFT's format; returns `folder`."""
    config = json.loads((model / "config.json").read_text())
    folder.mkdir()
    rng = np.random.default_rng(seed)
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    q = config["num_attention_heads"] * config["head_dim"]
    kv = config["num_key_value_heads"] * config["head_dim"]
    products = {
        "self_attn.q_proj": (hidden, q),
        "self_attn.k_proj": (hidden, kv),
        "self_attn.v_proj": (hidden, kv),
        "self_attn.o_proj": (q, hidden),
        "mlp.gate_proj": (hidden, inner),
        "mlp.up_proj": (hidden, inner),
        "mlp.down_proj": (inner, hidden),
    }
    header, blob = {}, bytearray()
    for layer in range(config["num_hidden_layers"]):
        for product, (inputs, outputs) in products.items():
            for part, shape, scale in (
                ("lora_A", (RANK, inputs), inputs**-0.5),
                ("lora_B", (outputs, RANK), 0.6),
            ):
                data = (rng.standard_normal(shape) * scale).astype("<f4").tobytes()
                header[f"base_model.model.model.layers.{layer}.{product}.{part}.weight"] = {
                    "dtype": "F32",
                    "shape": list(shape),
                    "data_offsets": [len(blob), len(blob) + len(data)],
                }
                blob += data
    text = json.dumps(header).encode()
    (folder / "adapter_model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + blob)
    told = {"r": RANK, "lora_alpha": RANK, "lora_dropout": 0.0, "bias": "none"}
    told |= {"peft_type": "LORA", "task_type": "CAUSAL_LM"}
    told |= {"target_modules": [product.rpartition(".")[2] for product in products]}
    (folder / "adapter_config.json").write_text(json.dumps(told))
    return folder


def pickle_weights(python: Path, folder: Path) -> Path:
    """Turn an adapter's weights into those that PyTorch pickles; returns `folder`."""
    file = folder / "adapter_model.safetensors"
    subprocess.run([python, "-c", _PICKLE, file, file.with_suffix(".bin")], check=True, timeout=120)
    file.unlink()
    return folder


def put_on_hub(cache: Path, name: str, folder: Path) -> dict[str, str]:
    """Move a folder into a hub's cache, as if it had been fetched; the environment that finds it there."""
    repository = cache / "hub" / f"models--{name.replace('/', '--')}"
    revision = "0" * 40
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(revision)
    (repository / "snapshots").mkdir()
    shutil.move(folder, repository / "snapshots" / revision)
    return {"HF_HOME": str(cache), "HF_HUB_OFFLINE": "1"}
