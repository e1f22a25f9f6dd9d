"""Whether a model is expected to be split, by its configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pdmuxd.engine.sglang.launch import mode
from pdmuxd.engine.sglang.launch.mode import mode_of, why_fused


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"architectures": ["LlamaForCausalLM"]}, ""),
        ({}, ""),
        ({"architectures": None, "layer_types": None, "quantization_config": None}, ""),
        ({"layer_types": ["sliding_attention", "full_attention"]}, ""),
        ({"layer_types": ["linear_attention", "full_attention"]}, mode.STATE),
        ({"text_config": {"full_attention_interval": 4}}, mode.STATE),
        ({"hybrid_override_pattern": "M-M*"}, mode.STATE),
        ({"model_type": "bailing_hybrid", "layer_group_size": 4}, mode.STATE),
        ({"text_config": {"model_type": "qwen3_5_text"}}, mode.STATE),
        ({"model_type": ["llama"], "mixer_types": ["minicpm4", "lightning-attn"]}, mode.STATE),
        ({"model_type": "minicpm_sala", "mixer_types": ["minicpm4"]}, ""),
        ({"mamba_d_state": 128, "layer_types": ["attention"]}, ""),
        ({"architectures": ["MllamaForConditionalGeneration"]}, mode.ENCODER),
        ({"architectures": ["DeepseekV32ForCausalLM"], "index_topk": 2048}, mode.SPARSE),
        ({"architectures": ["Llama4ForConditionalGeneration"]}, mode.OWN_STREAM),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, mode.MARLIN),
        ({"quantization_config": {"quant_method": "awq"}}, mode.MARLIN),
        ({"quantization_config": {"quant_method": "fp8"}}, ""),
        ({"quantization_config": {"quant_method": "mxfp4"}}, ""),
        (
            {"quantization_config": {"quant_method": "compressed-tensors", "config_groups": {"a": {}}}},
            mode.MARLIN,
        ),
        (
            {
                "quantization_config": {
                    "quant_method": "compressed-tensors",
                    "config_groups": {"a": {"input_activations": {"num_bits": 8}}},
                }
            },
            "",
        ),
    ],
)
def test_a_configuration_tells_whether_its_model_is_split(config: dict[str, Any], why: str) -> None:
    assert why_fused(config) == why


@pytest.mark.parametrize("field", ["num_experts", "num_local_experts", "n_routed_experts"])
def test_marlins_linear_layers_alone_are_split_when_that_is_to_be_tried(field: str) -> None:
    config: dict[str, Any] = {"quantization_config": {"quant_method": "gptq", "bits": 4}}
    assert why_fused(config, marlin=True) == ""
    assert why_fused(config | {"text_config": {field: 8}}, marlin=True) == mode.MARLIN_EXPERTS
    assert why_fused(config | {field: 8}) == mode.MARLIN
    assert why_fused({field: 8}, marlin=True) == ""


@pytest.mark.parametrize(("value", "is_split"), [(None, False), ("", False), ("0", False), ("1", True)])
def test_a_folder_of_marlins_is_told_by_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str | None, is_split: bool
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": {"quant_method": "awq"}}))
    monkeypatch.delenv(mode.SPLIT_MARLIN, raising=False)
    if value is not None:
        monkeypatch.setenv(mode.SPLIT_MARLIN, value)
    told = mode_of(str(tmp_path), (), tp_size=1)
    assert told == (mode.SPLIT if is_split else f"fused steps: {mode.MARLIN}")
    assert is_split or f"{mode.SPLIT_MARLIN}=1 makes them" in (told or "")


def test_some_models_are_split_on_one_gpu_alone() -> None:
    config = {"architectures": ["MiniMaxM2ForCausalLM"]}
    assert why_fused(config) == ""
    assert why_fused(config, tp_size=2) == mode.OWN_SUM


@pytest.mark.parametrize(
    ("flags", "is_split"),
    [
        (("--moe-a2a-backend", "deepep"), False),
        (("--moe-a2a-backend=none",), True),
        (("--cpu-offload-gb", "0"), True),
        (("--cpu-offload-gb", "8"), False),
        (("--enable-torch-compile",), False),
        (("--attention-backend", "flashinfer_mla"), False),
        (("--attention-backend", "fa3"), True),
        (("--moe-runner-backend", "cutlass"), False),
        (("--moe-runner-backend", "triton"), True),
        (("--lora-paths", "chat=/a"), False),
        (("--quantization", "awq_marlin"), False),
        (("--quantization", "fp8"), True),
    ],
)
def test_flags_that_end_a_split_are_named(flags: tuple[str, ...], is_split: bool) -> None:
    assert (why_fused({}, flags) == "") is is_split


def test_a_folder_is_told_in_a_few_words(tmp_path: Path) -> None:
    assert mode_of("meta/llama", (), tp_size=1) is None
    (tmp_path / "config.json").write_text(json.dumps({"layer_types": ["mamba"]}))
    assert mode_of(str(tmp_path), (), tp_size=1) == f"fused steps: {mode.STATE}"
    (tmp_path / "config.json").write_text("{}")
    assert mode_of(str(tmp_path), (), tp_size=1) == mode.SPLIT
