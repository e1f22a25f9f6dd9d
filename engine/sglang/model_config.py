"""A model's shape, read from its configuration: SGLang's object, or the text of its config.json.

Without SGLang and PyTorch, so that the daemon can say what a model needs before anything is loaded.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pdmuxd.engine.core.shapes import Experts, Latent, ModelShape

_TEXT = ("text_config", "llm_config", "language_config", "thinker_config")
"""Where configurations of models with images or sound have their text decoder's."""
_IN_8_BITS = frozenset({"fp8", "w8a8_fp8", "modelopt_fp8", "fbgemm_fp8", "w8a8_int8", "mxfp8"})
"""Weights and activations of 8 bits."""
_BITS: Mapping[str, float] = {
    **dict.fromkeys(_IN_8_BITS, 8.0),
    "mxfp4": 4 + 8 / 32,  # a scale of 8 bits for 32 weights (OCP's microscaling formats)
    "modelopt_fp4": 4 + 8 / 16,
    "nvfp4": 4 + 8 / 16,
    "bitsandbytes": 4 + 16 / 64,
}
_SCALES_BITS = 16 + 4
"""Of a group of weights in GPTQ and AWQ: a scale, and where zero is."""
_PLAIN_GROUP = 128


def read_config(folder: Path, name: str = "config.json") -> dict[str, Any] | None:
    """What a folder's config.json says; None where there is none, or none that can be read."""
    try:
        config = json.loads((folder / name).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return config if isinstance(config, dict) else None


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a configuration that is of the text decoder."""
    for name in _TEXT:
        inner = config.get(name)
        if isinstance(inner, Mapping):
            return text_config(inner)
    return config


def shape_of_config(config: Mapping[str, Any], name: str, *, quantization: str | None = None) -> ModelShape:
    """The shape, from what `read_config` has read."""
    inner = text_config(config)
    quantized = config.get("quantization_config") or inner.get("quantization_config")
    return model_shape(SimpleNamespace(**inner), name, quantized=quantized, quantization=quantization)


def model_shape(
    config: object,
    name: str,
    *,
    quantized: object = None,
    quantization: str | None = None,
    kv_type: str = "auto",
) -> ModelShape:
    """Read the configuration of the model's text decoder, whatever it lacks: what a shape cannot say of a
    family is a plain guess, which the first measurement replaces, and no reason not to serve.

    `quantized` is the configuration's `quantization_config`, `quantization` and `kv_type` are SGLang's flags.
    """
    heads = _count(config, "num_attention_heads", "num_heads") or 1
    hidden = _count(config, "hidden_size") or 1
    layers = _count(config, "num_hidden_layers") or 1
    dtype = getattr(config, "torch_dtype", None) or getattr(config, "dtype", None)
    kinds = _kinds(config, layers)
    shape = ModelShape(
        name=name,
        layers=layers,
        hidden=hidden,
        intermediate=_count(config, "intermediate_size") or 4 * hidden,
        heads=heads,
        kv_heads=_count(config, "num_key_value_heads") or heads,
        head_dim=_count(config, "head_dim") or max(1, hidden // heads),
        vocab=_count(config, "vocab_size") or 1,
        max_context_tokens=_count(config, "max_position_embeddings", "context_len") or 32768,
        bytes_per_value=4 if "32" in str(dtype) and "b" not in str(dtype).rpartition(".")[2] else 2,
        bytes_per_kv_value=1.0 if "fp8" in kv_type else 0.5 if "fp4" in kv_type else 0.0,
        experts=_experts(config, layers, hidden),
        latent=_latent(config),
        window=_count(config, "sliding_window") or 0,
        windowed_layers=kinds.count("sliding_attention") if _count(config, "sliding_window") else 0,
        linear_layers=kinds.count("linear_attention"),
    )
    if not shape.windowed_layers:
        shape = replace(shape, window=0)
    return _with_formats(shape, quantized, quantization)


def _experts(config: object, layers: int, hidden: int) -> Experts | None:
    count = _count(config, "n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts")
    taken = _count(config, "num_experts_per_tok", "experts_per_token", "moe_k", "moe_topk", "top_k_experts")
    if count is None or taken is None or not 0 < taken <= count or count < 2:
        return None
    width = _count(config, "moe_intermediate_size", "intermediate_size") or 4 * hidden
    shared = _count(config, "shared_expert_intermediate_size", "shared_intermediate_size")
    if shared is None:
        shared = (_count(config, "n_shared_experts", "moe_num_shared_experts") or 0) * width
    listed = getattr(config, "mlp_only_layers", None)
    dense = len(listed) if isinstance(listed, list | tuple) else 0
    dense += _count(config, "first_k_dense_replace", "moe_layer_start_index") or 0
    step = _count(config, "decoder_sparse_step", "moe_layer_freq", "interleave_moe_layer_step") or 1
    if step > 1:
        dense = layers - layers // step
    return Experts(
        count=count,
        per_token=taken,
        intermediate=width,
        shared_intermediate=shared,
        dense_layers=min(dense, layers),
    )


def _latent(config: object) -> Latent | None:
    rank, rope = _count(config, "kv_lora_rank"), _count(config, "qk_rope_head_dim")
    key, value = _count(config, "qk_nope_head_dim"), _count(config, "v_head_dim")
    if rank is None or rope is None or key is None or value is None:
        return None
    q_rank = _count(config, "q_lora_rank") or 0
    return Latent(kv_rank=rank, rope_dim=rope, key_dim=key, value_dim=value, q_rank=q_rank)


def _kinds(config: object, layers: int) -> list[str]:
    """What each layer's attention is, where the configuration says it."""
    kinds = getattr(config, "layer_types", None)
    if isinstance(kinds, list | tuple):
        return [str(kind) for kind in kinds]
    every = _count(config, "full_attention_interval")  # Qwen3-Next
    if every is not None:
        return ["linear_attention" if number % every else "full_attention" for number in range(1, layers + 1)]
    return []


def _with_formats(shape: ModelShape, quantized: object, quantization: str | None) -> ModelShape:
    """Add the types of its weights. MXFP4 is of the experts alone, as gpt-oss has it."""
    given = quantized if isinstance(quantized, Mapping) else {}
    method = str(given.get("quant_method") or quantization or "").lower()
    bits = _bits(method, given)
    if bits is None:
        return shape
    each = bits / 8
    if method == "mxfp4" and shape.experts is not None:
        return replace(shape, experts=replace(shape.experts, bytes_per_weight=each))
    in_8_bits = method in _IN_8_BITS or (method == "compressed-tensors" and _activations_bits(given) == 8)
    return replace(shape, bytes_per_weight=each, computes_in_8_bits=in_8_bits)


def _bits(method: str, given: Mapping[str, Any]) -> float | None:
    """Bits of a weight, its part of a scale included; None where nothing is known."""
    if method == "modelopt":
        method = "modelopt_fp4" if "FP4" in str(given.get("quant_algo")) else "modelopt_fp8"
    if method in _BITS:
        return _BITS[method]
    if method == "compressed-tensors":
        weights = _of_group(given, "weights")
        bits, group = weights.get("num_bits"), weights.get("group_size")
    elif "gptq" in method or "awq" in method:
        bits, group = given.get("bits") or 4, given.get("group_size") or _PLAIN_GROUP
    else:
        return None
    if not isinstance(bits, int | float) or bits <= 0:
        return None
    if bits >= 8 or not isinstance(group, int | float) or group <= 0:
        return float(bits)
    return bits + _SCALES_BITS / group


def _activations_bits(given: Mapping[str, Any]) -> object:
    return _of_group(given, "input_activations").get("num_bits")


def _of_group(given: Mapping[str, Any], what: str) -> Mapping[str, Any]:
    """Read what compressed-tensors says of its first group of layers."""
    groups = given.get("config_groups")
    for group in groups.values() if isinstance(groups, Mapping) else ():
        part = group.get(what) if isinstance(group, Mapping) else None
        return part if isinstance(part, Mapping) else {}
    return {}


def _count(config: object, *names: str) -> int | None:
    """The first of these fields that is a number above 0; of a list by layer, the mean."""
    for name in names:
        value = getattr(config, name, None)
        each = value if isinstance(value, list | tuple) else [value]
        numbers = [one for one in each if isinstance(one, int | float) and 0 < one < math.inf]
        if numbers:
            return max(1, round(sum(numbers) / len(each)))
    return None
