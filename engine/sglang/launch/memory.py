"""How much of a GPU weights and KV get, where the user does not say; and whether the weights fit at all.

SGLang 0.5.23 keeps memory for the activations of as many tokens as it prefills at once (memory_hook.py). It
takes that for 16,384 here, since `--chunked-prefill-size` is -1, and for 8,192 in a stock server on the same
GPU: 26 GB or 14 of an H100's 80. A large model then starts in a stock server and not here. Prompts whose
activations memory does not hold are prefilled in chunks, so that they need no more here either.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pdmuxd.engine.core.errors import SettingsError
from pdmuxd.engine.sglang.launch.flags import value_of
from pdmuxd.engine.sglang.model_config import read_config, shape_of_config

FLAG = "--mem-fraction-static"
GB, MIB = 1e9, float(1 << 20)
_OUR_TOKENS = 16384
_STOCK = ((20, 2048, 8), (35, 4096, 48), (60, 4096, 32), (160, 8192, 256))
"""A stock server's chunk and largest decode batch on GPUs of less than so many GiB."""
_LARGE = (16384, 512)
_SEVERAL_GPUS, _THEIR_DECODE_BS = 4, {48: 160, 32: 160, 256: 512}
_FIXED_MIB, _PER_TOKEN_MIB, _PER_ROW_MIB = 512.0, 1.5, 2.0
GRAPHS = 36
"""Of fused steps: as many as `server.FUSED_TOKENS` has sizes."""
_PER_GRAPH_MIB, _LATENT_GRAPHS_MIB = 8.0, 1536.0
_LEAST_MIB, _LEAST_FROM_GIB = 10240.0, 60
_IMAGES_RATIO, _PLAIN_ENCODER = 0.95, (24, 1024)
"""Of the fraction, what models with an encoder of images get, and the layers and width of such an encoder."""
_OTHER_WEIGHTS = (
    "--cpu-offload-gb",
    "--torchao-config",
    "--json-model-override-args",
    "--model-loader-extra-config",
)
"""With these, weights take something else on the GPU than the folder says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """What one GPU is to hold of a model."""

    bytes_per_gpu: float
    is_latent: bool = False
    encoder: tuple[int, int] | None = None
    """Layers and width of its encoder of images; None without one."""

    @property
    def images_ratio(self) -> float:
        """SGLang's: by a tenth less for each time that the encoder is larger than a plain one."""
        if self.encoder is None:
            return 1.0
        layers, width = self.encoder
        times = layers * width**2 / (_PLAIN_ENCODER[0] * _PLAIN_ENCODER[1] ** 2)
        return _IMAGES_RATIO * max(0.8, min(1.05, 1.0 - 0.1 * (times - 1.0)))


def weights_of(model: str, extra: Sequence[str], *, tp_size: int) -> Weights | None:
    """Weights by the files of the model's folder, or by its configuration where there are none; None if
    unknown."""
    folder = Path(model).expanduser()
    config = read_config(folder)
    if config is None or any(word.partition("=")[0] in _OTHER_WEIGHTS for word in extra):
        return None
    quantization = value_of("--quantization", extra)
    shape = shape_of_config(config, model, quantization=quantization)
    if shape.layers <= 1:
        return None
    size = None if quantization else _files_bytes(folder)
    if size is not None and shape.bytes_per_value == 4:
        size /= 2  # SGLang serves float32 as float16
    return Weights(
        bytes_per_gpu=(size or shape.all_weights_bytes) / tp_size,
        is_latent=shape.latent is not None,
        encoder=_encoder(config),
    )


def choose_fraction(
    weights: Weights | None, memory_bytes: int | None, extra: Sequence[str], *, tp_size: int
) -> float | None:
    """The FLAG's value to start with; None to leave it to SGLang, or to the user who gave it.

    What SGLang would keep for our 16,384 tokens stays, if it is at most half of what the weights leave: KV
    then has the other half. Else it is half, and not less than a stock server keeps.
    Raises: SettingsError for weights that do not fit.
    """
    if weights is None or memory_bytes is None:
        return None
    rest = memory_bytes - weights.bytes_per_gpu
    given = value_of(FLAG, extra)
    if given is not None:
        _check_given(given, weights, memory_bytes)
        return None
    chunk, rows = stock_sizes(memory_bytes, tp_size)
    ours, stock = (
        reserve_bytes(memory_bytes, tokens, rows, tp_size=tp_size, is_latent=weights.is_latent)
        for tokens in (_OUR_TOKENS, chunk)
    )
    if ours <= rest / 2:
        return None
    share = 1 - max(min(stock, ours), min(ours, rest / 2)) / memory_bytes
    share = round(share * weights.images_ratio, 3)
    if share * memory_bytes <= weights.bytes_per_gpu:
        raise SettingsError(
            f"{_too_large(weights, memory_bytes)}, of which {share:.0%} may hold weights and KV: use more "
            f"GPUs (engine.sglang.tp_size) or smaller weights, or give {FLAG} yourself"
        )
    return share


def total_memory_bytes(library: ctypes.CDLL, device: ctypes.c_int) -> int | None:
    """A GPU's memory, which others may have a part of; None if the driver does not say."""
    memory = ctypes.c_size_t(0)
    failed = library.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
    return None if failed else memory.value or None


def stock_sizes(memory_bytes: int, tp_size: int) -> tuple[int, int]:
    """A stock server's chunk in tokens, and its largest captured decode batch."""
    for below_gib, chunk, rows in _STOCK:
        if memory_bytes / MIB < below_gib * 1024:
            return chunk, rows if tp_size < _SEVERAL_GPUS else _THEIR_DECODE_BS.get(rows, rows)
    return _LARGE


def reserve_bytes(memory_bytes: int, tokens: int, rows: int, *, tp_size: int, is_latent: bool) -> float:
    """What SGLang keeps from weights and KV for activations of so many tokens, and for graphs."""
    kept = _FIXED_MIB + _PER_TOKEN_MIB * tokens + 1024.0 * tp_size / 8 + _PER_ROW_MIB * rows
    kept += _LATENT_GRAPHS_MIB if is_latent else _PER_GRAPH_MIB * GRAPHS
    if memory_bytes / MIB > _LEAST_FROM_GIB * 1024:
        kept = max(kept, _LEAST_MIB)
    return kept * MIB


def _check_given(given: str, weights: Weights, memory_bytes: int) -> None:
    try:
        share = float(given)
    except ValueError:
        return  # SGLang's parser says it
    if share * memory_bytes <= weights.bytes_per_gpu:
        raise SettingsError(
            f"{_too_large(weights, memory_bytes)}, of which {FLAG} {given} lets weights and KV "
            f"have {share:.0%}"
        )


def _too_large(weights: Weights, memory_bytes: int) -> str:
    return (
        f"the model's weights take {weights.bytes_per_gpu / GB:.0f} GB on each GPU, which has "
        f"{memory_bytes / GB:.0f} GB"
    )


def _encoder(config: Mapping[str, Any]) -> tuple[int, int] | None:
    encoder = config.get("vision_config")
    if not isinstance(encoder, Mapping):
        return None
    numbers = (encoder.get("num_hidden_layers"), encoder.get("hidden_size"))
    layers, width = (
        n if isinstance(n, int) else plain for n, plain in zip(numbers, _PLAIN_ENCODER, strict=True)
    )
    return layers, width


def _files_bytes(folder: Path) -> float | None:
    """Bytes by the index of its files, or of all of one kind; None if there are none."""
    try:
        index = json.loads((folder / "model.safetensors.index.json").read_text(encoding="utf-8"))
        return float(index["metadata"]["total_size"])
    except (OSError, ValueError, LookupError, TypeError):
        pass
    for pattern in ("model*.safetensors", "*.safetensors", "pytorch_model*.bin"):
        sizes = [path.stat().st_size for path in folder.glob(pattern) if path.is_file()]
        if sizes:
            return float(sum(sizes))
    return None
