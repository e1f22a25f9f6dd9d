"""What is said of well-known models, against what their makers publish of their parameters."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pdmuxd.engine.core.errors import ProfileError
from pdmuxd.engine.core.partitions import SmRules
from pdmuxd.engine.core.roofline import RooflineModel
from pdmuxd.engine.core.shapes import Experts, ModelShape
from pdmuxd.engine.core.types import DecodeShape
from pdmuxd.engine.emulator.shapes import LLAMA_8B
from pdmuxd.engine.sglang.assumed_device import ASSUMED_OVERHEADS, assumed_device
from pdmuxd.engine.sglang.model_config import model_shape, read_config, shape_of_config

DEVICE = assumed_device("NVIDIA H100 80GB HBM3", SmRules(total_sms=132, min_sms=8, multiple_sms=8))
ROWS, CONTEXT = 32, 2000


@dataclass(frozen=True, kw_only=True)
class Published:
    """Billions of parameters from the model's card, and its configuration on the hub."""

    config: dict[str, Any]
    total: float
    active: float
    """Of a token, with `vocab_matrices` of embedding and classifier in it."""
    vocab_matrices: int
    experts: float = 0.0
    """Of `total`, all experts that tokens choose among."""
    touched: float = 0.0
    """Share of the experts that 32 rows read, worked out apart (112 of 128 and so on)."""
    kv_bytes: int
    """Of one token, over all layers."""
    seen_ratio: float = 1.0
    """Of a context's KV, what a step reads."""
    expert_bytes: float = 2.0


_LLAMA = {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8}
MODELS = {
    "Llama-3.1-8B": Published(
        config={**_LLAMA, "intermediate_size": 14336, "vocab_size": 128256, "torch_dtype": "bfloat16"},
        total=8.03,
        active=8.03,
        vocab_matrices=2,
        kv_bytes=131072,
    ),
    "Qwen3-30B-A3B": Published(
        config={
            "hidden_size": 2048,
            "num_hidden_layers": 48,
            "num_attention_heads": 32,
            "head_dim": 128,
            "num_key_value_heads": 4,
            "intermediate_size": 6144,
            "moe_intermediate_size": 768,
            "num_experts": 128,
            "num_experts_per_tok": 8,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
            "vocab_size": 151936,
            "sliding_window": None,
            "torch_dtype": "bfloat16",
        },
        total=30.5,
        active=3.3,
        vocab_matrices=2,
        experts=29.0,
        touched=112 / 128,
        kv_bytes=98304,
    ),
    "Mixtral-8x7B": Published(
        config={
            **_LLAMA,
            "intermediate_size": 14336,
            "vocab_size": 32000,
            "torch_dtype": "bfloat16",
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
            "sliding_window": None,
        },
        total=46.7,
        active=12.9,
        vocab_matrices=2,
        experts=45.1,
        touched=1.0,
        kv_bytes=131072,
    ),
    "gpt-oss-20b": Published(
        config={
            "hidden_size": 2880,
            "num_hidden_layers": 24,
            "num_attention_heads": 64,
            "head_dim": 64,
            "num_key_value_heads": 8,
            "intermediate_size": 2880,
            "vocab_size": 201088,
            "num_local_experts": 32,
            "num_experts_per_tok": 4,
            "experts_per_token": 4,
            "sliding_window": 128,
            "layer_types": ["sliding_attention", "full_attention"] * 12,
            "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]},
        },
        total=20.91,
        active=3.61,
        vocab_matrices=1,
        experts=19.12,
        touched=31.6 / 32,
        kv_bytes=49152,
        seen_ratio=0.5 + 0.5 * 128 / CONTEXT,
        expert_bytes=0.531,
    ),
    "DeepSeek-V2-Lite": Published(
        config={
            "hidden_size": 2048,
            "num_hidden_layers": 27,
            "num_attention_heads": 16,
            "vocab_size": 102400,
            "num_key_value_heads": 16,
            "intermediate_size": 10944,
            "moe_intermediate_size": 1408,
            "kv_lora_rank": 512,
            "q_lora_rank": None,
            "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64,
            "v_head_dim": 128,
            "n_routed_experts": 64,
            "n_shared_experts": 2,
            "num_experts_per_tok": 6,
            "first_k_dense_replace": 1,
            "moe_layer_freq": 1,
            "torch_dtype": "bfloat16",
        },
        total=15.7,
        active=2.4,
        vocab_matrices=1,
        experts=14.4,
        touched=61 / 64,
        kv_bytes=31104,
    ),
}


def shape_of(config: dict[str, Any], **flags: str) -> ModelShape:
    return model_shape(SimpleNamespace(**config), "any", quantized=config.get("quantization_config"), **flags)


def roofline(shape: ModelShape) -> RooflineModel:
    return RooflineModel(model=shape, device=DEVICE, overheads=ASSUMED_OVERHEADS)


@pytest.fixture(params=MODELS)
def published(request: pytest.FixtureRequest) -> Published:
    return MODELS[request.param]


def test_all_weights_take_what_is_published(published: Published) -> None:
    needed = 1e9 * (2 * (published.total - published.experts) + published.expert_bytes * published.experts)
    assert shape_of(published.config).all_weights_bytes == pytest.approx(needed, rel=0.03)


def test_a_decode_step_moves_what_is_needed(published: Published) -> None:
    shape = shape_of(published.config)
    embedding = shape.hidden * shape.vocab
    weights = 2 * (1e9 * (published.total - published.experts) - embedding)
    weights += 1e9 * published.experts * published.touched * published.expert_bytes
    kv = ROWS * CONTEXT * published.kv_bytes * published.seen_ratio
    said = roofline(shape).decode_cost(DecodeShape.of([CONTEXT] * ROWS), 132).hbm_bytes
    assert said == pytest.approx(weights + kv, rel=0.1)


def test_a_prefill_computes_what_active_parameters_need(published: Published) -> None:
    shape = shape_of(published.config)
    active = 1e9 * published.active - published.vocab_matrices * shape.hidden * shape.vocab
    said = roofline(shape).prefill_terms(64, 0).compute_s * DEVICE.flops
    assert said == pytest.approx(2 * active * 64, rel=0.1)


def test_a_token_keeps_what_its_layers_keep(published: Published) -> None:
    assert shape_of(published.config).kv_bytes_per_token == published.kv_bytes


def test_a_llama_is_the_shape_that_its_profiles_were_measured_of() -> None:
    shape = shape_of(MODELS["Llama-3.1-8B"].config | {"max_position_embeddings": 131072})
    assert shape == replace(LLAMA_8B, name="any")


def test_a_small_batch_touches_few_experts() -> None:
    experts = Experts(count=128, per_token=8, intermediate=768)
    assert experts.touched(1) == pytest.approx(8)
    assert experts.touched(32) == pytest.approx(112, abs=1)
    assert experts.touched(4096) == pytest.approx(128)


@pytest.mark.parametrize(
    ("quantized", "bytes_each", "in_8_bits"),
    [
        (None, 0.0, False),
        ({"quant_method": "fp8"}, 1.0, True),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, 4.15625 / 8, False),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, 1.0, False),
        ({"quant_method": "awq", "bits": 4}, 4.15625 / 8, False),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 4.5 / 8, False),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {
                    "group_0": {"weights": {"num_bits": 8}, "input_activations": {"num_bits": 8}}
                },
            },
            1.0,
            True,
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {
                    "a": {"weights": {"num_bits": 4, "group_size": 32}, "input_activations": None}
                },
            },
            4.625 / 8,
            False,
        ),
        ({"quant_method": "of the future"}, 0.0, False),
        ({"quant_method": "gptq", "bits": "four"}, 0.0, False),
    ],
)
def test_weights_have_the_bytes_of_their_type(quantized: Any, bytes_each: float, in_8_bits: bool) -> None:
    shape = shape_of(MODELS["Llama-3.1-8B"].config | {"quantization_config": quantized})
    assert shape.bytes_per_weight == pytest.approx(bytes_each)
    assert shape.computes_in_8_bits is in_8_bits


def test_fp8_halves_what_a_llama_reads_and_computes() -> None:
    plain = shape_of(MODELS["Llama-3.1-8B"].config)
    small = shape_of(MODELS["Llama-3.1-8B"].config, quantization="fp8", kv_type="fp8_e4m3")
    assert small.kv_bytes_per_token == plain.kv_bytes_per_token / 2
    assert roofline(small).prefill_terms(64, 0).compute_s == pytest.approx(
        roofline(plain).prefill_terms(64, 0).compute_s / 2, rel=0.01
    )
    decode = DecodeShape.of([1])
    head = plain.hidden * plain.vocab * 2
    whole, half = (roofline(shape).decode_cost(decode, 132).hbm_bytes - head for shape in (plain, small))
    assert half == pytest.approx(whole / 2, rel=0.01)


def test_linear_attention_keeps_nothing_of_a_token() -> None:
    config = {**_LLAMA, "full_attention_interval": 4, "intermediate_size": 8192}
    shape = shape_of(config)
    assert shape.linear_layers == 24
    assert shape.kv_bytes_per_token == 8 * 2 * 8 * 128 * 2


def test_a_size_is_a_guess_when_the_configuration_has_no_number() -> None:
    inner = MODELS["Llama-3.1-8B"].config | {"vocab_size": math.inf, "head_dim": math.nan}
    shape = shape_of_config(inner, "it")
    assert (shape.vocab, shape.head_dim) == (1, 128)


def test_experts_are_refused_when_a_token_takes_more_than_there_are() -> None:
    with pytest.raises(ProfileError, match=r"model\.experts\.per_token is 9; allowed are 1 to 8"):
        Experts(count=8, per_token=9, intermediate=1)


def test_the_decoder_is_found_in_a_folder_of_a_model_with_images(tmp_path: Path) -> None:
    inner = MODELS["Llama-3.1-8B"].config
    (tmp_path / "config.json").write_text(json.dumps({"vision_config": {}, "text_config": inner}))
    config = read_config(tmp_path)
    assert config is not None
    shape = shape_of_config(config, "it")
    assert (shape.layers, shape.vocab) == (32, 128256)


@pytest.mark.parametrize("text", [None, "", "[]", "{", "\ud800"])
def test_no_shape_is_made_up_when_there_is_no_configuration(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "config.json").write_bytes(text.encode(errors="surrogatepass"))
    assert read_config(tmp_path) is None
