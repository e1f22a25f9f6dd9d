"""Model folders for SGLang's `--load-format dummy`: a config and a byte-level tokenizer, no weights.

How long a step takes does not depend on the weights' values, so such a folder stands for a real model's
shape without its checkpoint. The weights are drawn with a fixed seed: two servers on it answer alike.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CONTEXT_TOKENS = 131_072
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


SHAPES: dict[str, dict[str, Any]] = {
    "llama-8b": _llama(hidden=4096, intermediate=14336, layers=32, heads=32, kv_heads=8, vocab=128_256),
    "codellama-34b": _llama(hidden=8192, intermediate=22016, layers=48, heads=64, kv_heads=8, vocab=32_000)
    | {"rope_theta": 1_000_000.0},
    "tiny": _llama(hidden=256, intermediate=512, layers=4, heads=4, kv_heads=2, vocab=512),
}


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
