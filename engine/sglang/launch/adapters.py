"""Whether the adapters (LoRA) of tenants fit the model, by their files alone.

SGLang 0.5.23 copies an adapter to the GPU at its first request. One whose shapes do not fit ends the engine
then, and each engine after it; weights that it has no use for are left out with a warning.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from pdmuxd.engine.core.errors import SettingsError
from pdmuxd.engine.core.shapes import ModelShape
from pdmuxd.engine.sglang.launch.flags import ADAPTERS, adapters, value_of
from pdmuxd.engine.sglang.model_config import read_config, shape_of_config, text_config

_CONFIG = "adapter_config.json"
_ALL = ("all", "all-linear")
"""Values of `target_modules` that SGLang resolves by the model."""
_READ_HIDDEN = frozenset({"q_proj", "k_proj", "v_proj", "qkv_proj", "gate_proj", "up_proj", "gate_up_proj"})
_ATTENTION = frozenset({"q_proj", "k_proj", "v_proj"})
_WRITE_HIDDEN = frozenset({"o_proj", "down_proj"})
_PLAIN = frozenset({"llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2"})
"""Types whose layers are all alike, as their configuration says. Of others the hidden size is compared."""
_WEIGHT = re.compile(r"layers\.(\d+)\.(.+)\.lora_([AB])\b")
_ENCODERS = ("vision", "visual", "audio")
_MOST_HEADER = 100_000_000
"""Bytes, as the library safetensors allows."""
WEIGHTS = ("*.safetensors", "*.bin", "*.pt")
"""SGLang's loader takes the files of the first that any file has."""
_OF_TRAINING = ("training_args.bin", "optimizer.bin", "optimizer.pt", "scheduler.pt", "scaler.pt")
"""And leaves these out."""

Shapes: TypeAlias = Mapping[str, object]
"""The shape of each tensor of a file, by its name: a list of sizes, if the file is as it should be."""
ReadPickled: TypeAlias = Callable[[Path], Shapes | None]
"""Reads a file that PyTorch has pickled; None if it cannot be read."""


def check_adapters(model: str, extra: Sequence[str], *, read_pickled: ReadPickled | None = None) -> None:
    """Each folder of `--lora-paths` has an adapter that fits the model. Raises: SettingsError naming it.

    What is on a hub is left alone, and so are pickled weights where nothing reads them; the engine's process
    looks into both (`fetching.py`).
    """
    config = read_config(Path(model).expanduser())
    shape = None if config is None else shape_of_config(config, model)
    is_plain = config is not None and text_config(config).get("model_type") in _PLAIN
    for tenant, folder in adapters(extra).items():
        rank = value_of("--max-lora-rank", extra)
        for why in _unfit(folder, shape, read_pickled, is_plain=is_plain, most_rank=rank):
            raise SettingsError(f"SGLang's flag {ADAPTERS}: {tenant}'s adapter {folder} {why}")


def is_on_hub(folder: str) -> bool:
    """Whether an adapter's or a model's name is taken for a hub's, as SGLang does with what is no folder."""
    path = Path(folder)
    return not path.exists() and not folder.startswith(("/", ".", "~")) and folder.count("/") == 1


def _unfit(
    folder: str,
    shape: ModelShape | None,
    read_pickled: ReadPickled | None,
    *,
    is_plain: bool,
    most_rank: str | None,
) -> Iterator[str]:
    path = Path(folder)
    if not path.is_dir():
        if not is_on_hub(folder):
            yield "is no folder"
        return
    told = read_config(path, _CONFIG)
    if told is None:
        yield f"has no {_CONFIG} that can be read"
        return
    if str(told.get("peft_type")).lower() != "lora":
        yield f"is no LoRA: peft_type of its {_CONFIG} is {told.get('peft_type')!r}"
    if not isinstance(told.get("lora_alpha"), int | float):
        yield f"has no scale: lora_alpha of its {_CONFIG} is {told.get('lora_alpha')!r}"
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
        yield from _weights(path, shape, read_pickled, rank, targets, is_plain=is_plain)


def _added_tokens(path: Path, shape: ModelShape) -> Iterator[str]:
    added = read_config(path, "added_tokens.json") or {}
    if any(isinstance(number, int) and number >= shape.vocab for number in added.values()):
        yield "adds tokens to the model's, which SGLang does not serve"


def _weights(
    path: Path,
    shape: ModelShape,
    read_pickled: ReadPickled | None,
    rank: int,
    targets: list[str] | None,
    *,
    is_plain: bool,
) -> Iterator[str]:
    files = _files(path)
    if not files:
        yield "has no weights (adapter_model.safetensors)"
        return
    count = 0
    attention: dict[tuple[str, str], set[str]] = {}
    for file in files:
        read = _header if file.suffix == ".safetensors" else read_pickled
        if read is None:
            return
        shapes = read(file)
        if shapes is None:
            yield f"has weights that cannot be read: {file.name}"
            return
        for name, dims in shapes.items():
            found = _WEIGHT.search(name)
            if found is None or not isinstance(dims, list) or any(word in name for word in _ENCODERS):
                continue
            count += 1
            layer, module, part = int(found[1]), found[2], found[3]
            if layer >= shape.layers:
                yield f"has weights for layer {layer}; the model has {shape.layers}"
            if targets is not None and not any(f".{module}".endswith(f".{one}") for one in targets):
                yield f"has weights for {module}, which its target_modules do not name"
            where, _, product = module.rpartition(".")
            if product in _ATTENTION:
                attention.setdefault((f"layer {layer}'s {where}", part), set()).add(product)
            if len(dims) == 2:
                yield from _dims(name, product, part, dims, shape, rank, is_plain=is_plain)
            elif is_plain:
                yield f"is of another kind: {name} has {len(dims)} dimensions, not 2"
    if not count:
        yield "has no weights for the model's layers"
    yield from _attention(attention)


def _attention(found: Mapping[tuple[str, str], set[str]]) -> Iterator[str]:
    """SGLang makes one product of q, k and v: it puts zeros for k where a layer has none, and ends with an
    error where q or v are missing."""
    for (where, part), products in found.items():
        missing = [one for one in ("q_proj", "v_proj") if one not in products]
        if missing:
            has, lacks = (" and ".join(each) for each in (sorted(products), missing))
            yield f"has {has} without {lacks} in {where} (lora_{part}), which SGLang does not serve"


def _files(path: Path) -> list[Path]:
    found = next(filter(None, (sorted(path.glob(pattern)) for pattern in WEIGHTS)), [])
    return [file for file in found if not file.name.endswith(_OF_TRAINING)]


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


def _header(file: Path) -> Shapes | None:
    """Names and shapes of a safetensors file: the length in 8 bytes, little-endian, then JSON."""
    try:
        with file.open("rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            header = json.loads(opened.read(length)) if length <= _MOST_HEADER else None
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(header, dict):
        return None
    return {name: told.get("shape") for name, told in header.items() if isinstance(told, dict)}
