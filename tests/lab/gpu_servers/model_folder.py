"""Model folders made up for tests and measurements: a config, a byte-level tokenizer, perhaps weights.

How long a step takes does not depend on the weights' values, so that a folder without any (SGLang's
`--load-format dummy`) stands for a real model's shape. Dummy weights are so small that an answer hardly
depends on its prompt: a comparison of answers needs `write_weights`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pdmuxd.daemon.bench.models import CONTEXT_TOKENS

_SPECIAL = ("<pad>", "<s>", "</s>")
_TEMPLATE = (
    "{% for m in messages %}<s>{{ m['role'] }}\n{{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant\n{% endif %}"
)


def _llama(
    *, hidden: int, intermediate: int, layers: int, heads: int, kv_heads: int, vocab: int
) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": hidden // heads,
        "vocab_size": vocab,
        "max_position_embeddings": CONTEXT_TOKENS,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500_000.0,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "torch_dtype": "bfloat16",
        "bos_token_id": 1,
        "eos_token_id": 2,
    }


_QWEN3 = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "head_dim": 128,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1_000_000.0,
}
"""Where it differs from a Llama; the context is longer than its 40,960 tokens: it serves the traces."""

_QWEN3_30B = (
    _llama(hidden=2048, intermediate=6144, layers=48, heads=32, kv_heads=4, vocab=151_936)
    | _QWEN3
    | {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "moe_intermediate_size": 768,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    }
)
_QWEN3_8B = _llama(hidden=4096, intermediate=12288, layers=36, heads=32, kv_heads=8, vocab=151_936) | _QWEN3
_BLOCK = 128
# As Qwen's own checkpoints: a scale for each 128 by 128 weights, and for each 128 values of a token.
_FP8_IN_BLOCKS = {
    "quantization_config": {
        "quant_method": "fp8",
        "fmt": "e4m3",
        "activation_scheme": "dynamic",
        "weight_block_size": [_BLOCK, _BLOCK],
    },
}

SHAPES: dict[str, dict[str, Any]] = {
    "llama-8b": _llama(hidden=4096, intermediate=14336, layers=32, heads=32, kv_heads=8, vocab=128_256),
    "codellama-34b": _llama(hidden=8192, intermediate=22016, layers=48, heads=64, kv_heads=8, vocab=32_000)
    | {"rope_theta": 1_000_000.0},
    "qwen3-8b": _QWEN3_8B,
    "qwen3-8b-fp8": _QWEN3_8B | _FP8_IN_BLOCKS,
    "qwen3-14b": _llama(hidden=5120, intermediate=17408, layers=40, heads=40, kv_heads=8, vocab=151_936)
    | _QWEN3,
    "qwen3-30b-a3b": _QWEN3_30B,
    "qwen3-30b-a3b-fp8": _QWEN3_30B | _FP8_IN_BLOCKS,
    "gpt-oss-20b": _llama(hidden=2880, intermediate=2880, layers=24, heads=64, kv_heads=8, vocab=201_088)
    | {
        "architectures": ["GptOssForCausalLM"],
        "model_type": "gpt_oss",
        "head_dim": 64,
        "attention_bias": True,
        "num_local_experts": 32,
        "num_experts_per_tok": 4,
        "experts_per_token": 4,
        "sliding_window": 128,
        "layer_types": ["sliding_attention", "full_attention"] * 12,
        "swiglu_limit": 7.0,
        "rope_theta": 150_000,
    },
    "deepseek-v2-lite": _llama(
        hidden=2048, intermediate=10_944, layers=27, heads=16, kv_heads=16, vocab=102_400
    )
    | {
        "architectures": ["DeepseekV2ForCausalLM"],
        "model_type": "deepseek_v2",
        "rms_norm_eps": 1e-6,
        "rope_theta": 10_000.0,
        "head_dim": 64,
        "kv_lora_rank": 512,
        "q_lora_rank": None,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "moe_intermediate_size": 1408,
        "n_routed_experts": 64,
        "n_shared_experts": 2,
        "num_experts_per_tok": 6,
        "first_k_dense_replace": 1,
        "moe_layer_freq": 1,
        "n_group": 1,
        "topk_group": 1,
        "topk_method": "greedy",
        "scoring_func": "softmax",
        "norm_topk_prob": False,
        "routed_scaling_factor": 1.0,
    },
    "llama-8b-gptq": _llama(hidden=4096, intermediate=14336, layers=32, heads=32, kv_heads=8, vocab=128_256)
    | {
        "quantization_config": {
            "quant_method": "gptq",
            "bits": 4,
            "group_size": 128,
            "desc_act": False,
            "sym": True,
            "lm_head": False,
        },
    },
    "tiny": _llama(hidden=256, intermediate=512, layers=4, heads=4, kv_heads=2, vocab=512),
}

WITHOUT_PROFILE = frozenset(
    {"gpt-oss-20b", "deepseek-v2-lite", "llama-8b-gptq", "qwen3-8b-fp8", "qwen3-30b-a3b-fp8"}
)
"""Shapes that the emulated engine has no profile of: they run on a GPU only."""


def write_model_folder(shape: str, folder: Path, **changes: Any) -> Path:
    """Write the folder of a shape, with `changes` to its config; returns `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        "config.json": SHAPES[shape] | changes,
        "generation_config.json": {"bos_token_id": 1, "eos_token_id": 2},
        "tokenizer.json": _tokenizer(),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "pad_token": "<pad>",
            "bos_token": "<s>",
            "eos_token": "</s>",
            "model_max_length": CONTEXT_TOKENS,
            "chat_template": _TEMPLATE,
        },
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=1))
    return folder


def write_weights(folder: Path, *, seed: int = 1) -> Path:
    """Add weights under which every token of a prompt matters; returns `folder`.

    In float32, or in 4 or 8 bits where the config says GPTQ or FP8. Large query and key weights make
    attention pick few tokens instead of averaging all.
    """
    config = json.loads((folder / "config.json").read_text())
    header: dict[str, Any] = {}
    blob = bytearray()
    for name, values in _tensors(config, np.random.default_rng(seed)):
        begin, kind = len(blob), _TYPES[values.dtype.str]
        blob += values.tobytes()
        header[name] = {"dtype": kind, "shape": list(values.shape), "data_offsets": [begin, len(blob)]}
    text = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + blob)
    return folder


_TYPES = {"<f4": "F32", "<f2": "F16", "<i4": "I32", "|u1": "F8_E4M3"}
_FOUR_BITS_STD = (15**2 - 1) ** 0.5 / 12**0.5
"""Of whole numbers from -7 to 7 that are equally likely. With -8, their mean is not 0, and every layer adds
the same to every token: all answers become one."""
_EIGHT_BITS = np.arange(40, 64, dtype=np.uint8)
"""E4M3's codes from 0.25 up to 2: four bits of exponent, of which 7 says 1, and three behind the point."""
_EIGHT_BITS_STD = float(np.mean((2.0 ** (_EIGHT_BITS // 8 - 7.0) * (1 + _EIGHT_BITS % 8 / 8)) ** 2) ** 0.5)
"""Where they are equally likely, and either sign is."""

Tensors = Iterator[tuple[str, np.ndarray[Any, Any]]]
"""By name."""


def _tensors(config: dict[str, Any], rng: np.random.Generator) -> Tensors:
    """Of a Llama, or of the families whose shapes are above."""
    hidden, vocab, head = config["hidden_size"], config["vocab_size"], config["head_dim"]
    q, kv = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    unit, family = hidden**-0.5, config["model_type"]
    has_norms = family.startswith("qwen3")

    def product(name: str, rows: int, columns: int, scale: float) -> Tensors:
        how = config.get("quantization_config", {})
        if how.get("quant_method") == "fp8":
            yield from _in_eight_bits(name, rows, columns, scale, rng)
        elif how:
            yield from _in_four_bits(name, rows, columns, scale, how, rng)
        else:
            yield f"{name}.weight", _normal(rng, (rows, columns), scale)
        if config["attention_bias"]:
            yield f"{name}.bias", _normal(rng, (rows,), scale)

    yield "model.embed_tokens.weight", _normal(rng, (vocab, hidden), 1.0)
    for number in range(config["num_hidden_layers"]):
        layer = f"model.layers.{number}"
        yield f"{layer}.input_layernorm.weight", _same(hidden)
        yield from product(f"{layer}.self_attn.q_proj", q, hidden, 1.6 * unit)
        yield from product(f"{layer}.self_attn.k_proj", kv, hidden, 1.6 * unit)
        yield from product(f"{layer}.self_attn.v_proj", kv, hidden, unit)
        yield from product(f"{layer}.self_attn.o_proj", hidden, q, q**-0.5)
        if has_norms:
            yield f"{layer}.self_attn.q_norm.weight", _same(head, 1.6)
            yield f"{layer}.self_attn.k_norm.weight", _same(head, 1.6)
        yield f"{layer}.post_attention_layernorm.weight", _same(hidden)
        if family == "qwen3_moe":
            yield f"{layer}.mlp.gate.weight", _normal(rng, (config["num_experts"], hidden), unit)
            for expert in range(config["num_experts"]):
                inner = config["moe_intermediate_size"]
                yield from _mlp(f"{layer}.mlp.experts.{expert}", hidden, inner, product)
        elif family == "gpt_oss":
            yield f"{layer}.self_attn.sinks", _normal(rng, (config["num_attention_heads"],), 1.0)
            yield from _gpt_oss_experts(f"{layer}.mlp", config, rng)
        else:
            yield from _mlp(f"{layer}.mlp", hidden, config["intermediate_size"], product)
    yield "model.norm.weight", _same(hidden)
    yield "lm_head.weight", _normal(rng, (vocab, hidden), unit)


def _mlp(name: str, hidden: int, inner: int, product: Callable[[str, int, int, float], Tensors]) -> Tensors:
    yield from product(f"{name}.gate_proj", inner, hidden, hidden**-0.5)
    yield from product(f"{name}.up_proj", inner, hidden, hidden**-0.5)
    yield from product(f"{name}.down_proj", hidden, inner, inner**-0.5)


def _gpt_oss_experts(name: str, config: dict[str, Any], rng: np.random.Generator) -> Tensors:
    hidden, inner, experts = config["hidden_size"], config["intermediate_size"], config["num_local_experts"]
    unit = hidden**-0.5
    yield f"{name}.router.weight", _normal(rng, (experts, hidden), unit)
    yield f"{name}.router.bias", _normal(rng, (experts,), unit)
    yield f"{name}.experts.gate_up_proj", _normal(rng, (experts, hidden, 2 * inner), unit)
    yield f"{name}.experts.gate_up_proj_bias", _normal(rng, (experts, 2 * inner), unit)
    yield f"{name}.experts.down_proj", _normal(rng, (experts, inner, hidden), inner**-0.5)
    yield f"{name}.experts.down_proj_bias", _normal(rng, (experts, hidden), unit)


def _in_four_bits(
    name: str, rows: int, columns: int, scale: float, how: dict[str, Any], rng: np.random.Generator
) -> Tensors:
    """GPTQ's: eight values in a word, along the input; a scale for each group of inputs; zero is 8."""
    groups = columns // how["group_size"]
    values = rng.integers(1, 16, (8, columns // 8, rows), dtype="<u4")
    yield f"{name}.qweight", sum(one << 4 * place for place, one in enumerate(values)).view("<i4")
    yield f"{name}.qzeros", np.full((groups, rows // 8), 0x77777777, "<i4")
    yield f"{name}.scales", np.full((groups, rows), scale / _FOUR_BITS_STD, "<f2")
    yield f"{name}.g_idx", (np.arange(columns) // how["group_size"]).astype("<i4")


def _in_eight_bits(name: str, rows: int, columns: int, scale: float, rng: np.random.Generator) -> Tensors:
    """FP8's: a scale for each block of weights."""
    signs = rng.integers(0, 2, (rows, columns), dtype=np.uint8) << 7
    yield f"{name}.weight", rng.choice(_EIGHT_BITS, (rows, columns)) | signs
    blocks = (-(-rows // _BLOCK), -(-columns // _BLOCK))
    yield f"{name}.weight_scale_inv", np.full(blocks, scale / _EIGHT_BITS_STD, "<f4")


def _normal(rng: np.random.Generator, shape: tuple[int, ...], scale: float) -> np.ndarray[Any, Any]:
    return (rng.standard_normal(shape) * scale).astype("<f4")


def _same(size: int, value: float = 1.0) -> np.ndarray[Any, Any]:
    return np.full(size, value, "<f4")


def _tokenizer() -> dict[str, Any]:
    """One token per byte: no merges, so that a text of n bytes has n tokens."""
    vocab = {token: number for number, token in enumerate((*_SPECIAL, *_byte_characters()))}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": number, "content": token, "special": True} | flags for number, token in enumerate(_SPECIAL)
        ],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": vocab, "merges": []},
    }


def _byte_characters() -> list[str]:
    """What byte-level BPE writes the 256 bytes as: themselves if printable, else characters from U+0100."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]
