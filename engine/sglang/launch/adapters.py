"""Whether the adapters (LoRA) of tenants fit the model, by their files alone.

SGLang 0.5.23 copies an adapter to the GPU at its first request. One whose shapes do not fit ends the engine
then, and each engine after it; weights that it has no use for are left out with a warning.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pdmuxd.engine.core.errors import SettingsError
from pdmuxd.engine.core.shapes import ModelShape
from pdmuxd.engine.sglang.launch.flags import ADAPTERS, adapters, value_of
from pdmuxd.engine.sglang.model_config import read_config, shape_of_config, text_config

_CONFIG = "adapter_config.json"
_ALL = ("all", "all-linear")
"""Values of `target_modules` that SGLang resolves by the model."""
_READ_HIDDEN = frozenset({"q_proj", "k_proj", "v_proj", "qkv_proj", "gate_proj", "up_proj", "gate_up_proj"})
_WRITE_HIDDEN = frozenset({"o_proj", "down_proj"})
_PLAIN = frozenset({"llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2"})
"""Types whose layers are all alike, as their configuration says. Of others the hidden size is compared."""
_WEIGHT = re.compile(r"layers\.(\d+)\.(.+)\.lora_([AB])\b")
_ENCODERS = ("vision", "visual", "audio")
_MOST_HEADER = 100_000_000
"""Bytes, as the library safetensors allows."""


def check_adapters(model: str, extra: Sequence[str]) -> None:
    """Each folder of `--lora-paths` has an adapter that fits the model. Raises: SettingsError naming it.

    What is on a hub, and weights that are no safetensors, are left to SGLang.
    """
    config = read_config(Path(model).expanduser())
    shape = None if config is None else shape_of_config(config, model)
    is_plain = config is not None and text_config(config).get("model_type") in _PLAIN
    for tenant, folder in adapters(extra).items():
        for why in _unfit(folder, shape, is_plain=is_plain, most_rank=value_of("--max-lora-rank", extra)):
            raise SettingsError(f"SGLang's flag {ADAPTERS}: {tenant}'s adapter {folder} {why}")


def _unfit(folder: str, shape: ModelShape | None, *, is_plain: bool, most_rank: str | None) -> Iterator[str]:
    path = Path(folder)
    if not path.is_dir():
        if path.exists() or folder.startswith(("/", ".", "~")) or folder.count("/") != 1:
            yield "is no folder"
        return
    told = read_config(path, _CONFIG)
    if told is None:
        yield f"has no {_CONFIG} that can be read"
        return
    rank = told.get("r")
    if not isinstance(rank, int) or rank <= 0:
        yield f"has no rank: r of its {_CONFIG} is {rank!r}"
        return
    if most_rank is not None and most_rank.isdigit() and rank > int(most_rank):
        yield f"has rank {rank}; --max-lora-rank allows {most_rank}"
    if told.get("use_dora"):
        yield "is a DoRA, which SGLang does not serve"
    targets = told.get("target_modules")
    if targets in _ALL:
        targets = None
    elif not isinstance(targets, list) or not targets or not all(isinstance(one, str) for one in targets):
        yield f"has no list of target_modules in its {_CONFIG}"
        return
    if shape is not None:
        yield from _added_tokens(path, shape)
        yield from _weights(path, shape, rank, targets, is_plain=is_plain)


def _added_tokens(path: Path, shape: ModelShape) -> Iterator[str]:
    added = read_config(path, "added_tokens.json") or {}
    if any(isinstance(number, int) and number >= shape.vocab for number in added.values()):
        yield "adds tokens to the model's, which SGLang does not serve"


def _weights(
    path: Path, shape: ModelShape, rank: int, targets: list[str] | None, *, is_plain: bool
) -> Iterator[str]:
    files = sorted(path.glob("*.safetensors"))
    if not files and not any(path.glob("*.bin")):
        yield "has no weights (adapter_model.safetensors)"
    count = 0
    for file in files:
        header = _header(file)
        if header is None:
            yield f"has weights that cannot be read: {file.name}"
            return
        for name, told in header.items():
            found = _WEIGHT.search(name)
            dims = told.get("shape") if isinstance(told, dict) else None
            if found is None or not isinstance(dims, list) or any(word in name for word in _ENCODERS):
                continue
            count += 1
            layer, module, part = int(found[1]), found[2], found[3]
            if layer >= shape.layers:
                yield f"has weights for layer {layer}; the model has {shape.layers}"
            if targets is not None and not any(f".{module}".endswith(f".{one}") for one in targets):
                yield f"has weights for {module}, which its target_modules do not name"
            if len(dims) == 2:
                yield from _dims(name, module.rpartition(".")[2], part, dims, shape, rank, is_plain=is_plain)
    if files and not count:
        yield "has no weights for the model's layers"


def _dims(
    name: str, product: str, part: str, dims: list[int], shape: ModelShape, rank: int, *, is_plain: bool
) -> Iterator[str]:
    its_rank, width = dims if part == "A" else reversed(dims)
    if its_rank != rank:
        yield f"says rank {rank}, and {name} has {its_rank}"
    expected: dict[tuple[str, str], int] = {
        **dict.fromkeys(((one, "A") for one in _READ_HIDDEN), shape.hidden),
        **dict.fromkeys(((one, "B") for one in _WRITE_HIDDEN), shape.hidden),
    }
    if is_plain:
        heads, kv_heads = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        expected |= {("q_proj", "B"): heads, ("k_proj", "B"): kv_heads, ("v_proj", "B"): kv_heads}
        expected |= {("o_proj", "A"): heads, ("down_proj", "A"): shape.intermediate}
        expected |= dict.fromkeys((("gate_proj", "B"), ("up_proj", "B")), shape.intermediate)
    should = expected.get((product, part), width)
    if width != should:
        yield f"is of another model: {name} has width {width}, not {should}"


def _header(file: Path) -> dict[str, Any] | None:
    """Names and shapes of a safetensors file: the length in 8 bytes, little-endian, then JSON."""
    try:
        with file.open("rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            header = json.loads(opened.read(length)) if length <= _MOST_HEADER else None
    except (OSError, ValueError, RecursionError):
        return None
    return header if isinstance(header, dict) else None
