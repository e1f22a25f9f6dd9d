"""How a model will be served, told by its configuration before anything is loaded: split, or in fused steps.

The engine decides when the model is loaded (`internals/splitting.py`). This is what it will come to, unless
the comparison that it makes then fails. `tests/sglang/test_modes.py` holds it against SGLang's classes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pdmuxd.engine.sglang.launch.flags import value_of
from pdmuxd.engine.sglang.marlin_blocks import most_waiting_in
from pdmuxd.engine.sglang.model_config import read_config, shape_of_config, text_config

SPLIT = "split: prefills pause between its layers, if a comparison at the start agrees"
STATE = "it keeps a state of each request besides its KV"
ENCODER = "decode reads what its encoder made"
SPARSE = "its sparse attention (DSA) has one workspace for both streams"
OWN_STREAM = "its experts run on a stream of their own, which has all SMs"
OWN_SUM = "with several GPUs it sums over one communicator for both streams"
SPLIT_MARLIN = "PDMUXD_SPLIT_MARLIN"
"""`1` gives prefill locks of its own for Marlin's linear layers, so that they can be split."""
MARLIN = (
    "prefill and decode would share Marlin's locks, and locks of prefill's own gained nothing on a GPU "
    f"({SPLIT_MARLIN}=1 makes them)"
)
MARLIN_EXPERTS = "prefill has no Marlin locks of its own for experts of few bits"

ENCODERS = frozenset(
    {"WhisperForConditionalGeneration", "MllamaForConditionalGeneration", "MossVLForConditionalGeneration"}
)
"""SGLang's `is_encoder_decoder_model`."""
OWN_STREAMS = frozenset({"Llama4ForConditionalGeneration", "Llama4ForCausalLM"})
OWN_SUMS = frozenset({"MiniMaxM2ForCausalLM", "KimiK3ForConditionalGeneration"})
STATE_TYPES = frozenset(
    {
        *("bailing_hybrid", "falcon_h1", "falcon_mamba", "glm5_next", "glm5_next_text", "inkling_mm_model"),
        *("inkling_model", "intern_s2_preview", "jet_nemotron", "jet_vlm", "kimi_linear", "lfm2", "lfm2_moe"),
        *("lfm2-vl", "lfm2_vl", "mamba", "mamba2", "nemotron_h", "NemotronH_Nano_VL_V2", "qwen3_5"),
        *("qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_next", "zaya"),
    }
)
"""Configurations that SGLang's `configs/hybrid_arch.py` gives slots of states."""
NOT_GENERATING = frozenset(
    {
        *("LlamaEmbeddingModel", "MistralModel", "Qwen3Model", "CLIPModel", "BertModel", "Contriever"),
        *("LlamaForSequenceClassification", "LlamaForSequenceClassificationWithNormal_Weights"),
        *("InternLM2ForRewardModel", "Qwen2ForRewardModel", "Qwen3ForRewardModel", "XLMRobertaModel"),
        *("Qwen2ForSequenceClassification", "Qwen3ForSequenceClassification"),
        *("BertForSequenceClassification", "XLMRobertaForSequenceClassification"),
        *("Gemma2ForSequenceClassification", "EmbeddingGemma2Model", "Lfm2BidirectionalModel"),
    }
)
"""Classes that are none of SGLang's `is_generation_model`."""
_STATE_FIELDS = (
    *("full_attention_interval", "hybrid_override_pattern", "linear_attn_config"),
    *("mamba_d_state", "ssm_state_size", "state_size"),
)
_STATE_LAYERS = frozenset(
    {"linear_attention", "mamba", "conv", "lightning", "lightning_attn", "lightning-attn"}
)
_MARLIN = frozenset({"gptq", "gptq_marlin", "awq", "awq_marlin"})
_EXPERTS_FIELDS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
_FLAGS: Mapping[str, tuple[frozenset[str], str]] = {
    "--moe-a2a-backend": (frozenset({"none"}), "the exchange of tokens between experts has one buffer"),
    "--expert-distribution-recorder-mode": (frozenset(), "the recorder follows one forward at a time"),
    "--cpu-offload-gb": (frozenset({"0"}), "layers are brought for one forward at a time"),
    "--enable-torch-compile": (frozenset(), "a compiled layer cannot pause"),
    "--enable-flashinfer-allreduce-fusion": (frozenset(), "fused sums have one workspace"),
    "--lora-paths": (frozenset(), "which adapters a batch needs is kept once for both streams"),
}
"""Values with which a flag is harmless, and why it is not with others; as in `internals/shared_state.py`."""
_EXPERTS_FLAG = "--moe-runner-backend"
_ATTENTION_FLAGS = ("--attention-backend", "--prefill-attention-backend", "--decode-attention-backend")
_ONE_WORKSPACE = frozenset({"flashinfer_mla", "trtllm_mla", "trtllm_mha"})


def mode_of(model: str, extra: Sequence[str], *, tp_size: int) -> str | None:
    """`split: ...` or `fused steps: ...` with the reason; None for a model without a folder here."""
    config = read_config(Path(model).expanduser())
    if config is None:
        return None
    why = why_fused(config, extra, tp_size=tp_size, marlin=splits_marlin(os.environ))
    return f"fused steps: {why}" if why else SPLIT


def marlin_waiting(model: str, extra: Sequence[str], *, tp_size: int, sms: int) -> int:
    """Blocks of Marlin's that may wait for each other in a model that is expected to be split with locks of
    prefill's own, by its configuration; 0 for any other."""
    config = read_config(Path(model).expanduser())
    if config is None or not splits_marlin(os.environ) or not _takes_marlin(config, extra):
        return 0
    if why_fused(config, extra, tp_size=tp_size, marlin=True):
        return 0
    return most_waiting_in(shape_of_config(config, model), tp_size=tp_size, sms=sms)


def splits_marlin(environ: Mapping[str, str]) -> bool:
    """Whether Marlin's linear layers may be split."""
    return environ.get(SPLIT_MARLIN) == "1"


def why_fused(
    config: Mapping[str, Any], extra: Sequence[str] = (), *, tp_size: int = 1, marlin: bool = False
) -> str:
    """Why a model of this configuration is not split; empty if it is expected to be. `marlin`: prefill is to
    have locks of its own for Marlin."""
    inner = text_config(config)
    names = class_names(config)
    if _keeps_state(config, inner):
        return STATE
    if names & ENCODERS:
        return ENCODER
    if inner.get("index_topk"):
        return SPARSE
    if names & OWN_STREAMS:
        return OWN_STREAM
    if tp_size > 1 and names & OWN_SUMS:
        return OWN_SUM
    if _takes_marlin(config, extra):
        if not marlin:
            return MARLIN
        if any(inner.get(field) for field in _EXPERTS_FIELDS):
            return MARLIN_EXPERTS
    return _of_flags(extra)


def names_a_class(model: str) -> bool:
    """Whether the folder's configuration names any class; True for a model without a folder here."""
    config = read_config(Path(model).expanduser())
    return config is None or bool(class_names(config))


def _keeps_state(config: Mapping[str, Any], inner: Mapping[str, Any]) -> bool:
    types = (config.get("model_type"), inner.get("model_type"))
    if any(isinstance(one, str) and one in STATE_TYPES for one in types):
        return True
    kinds = inner.get("layer_types") or inner.get("mixer_types")
    if isinstance(kinds, list):
        # Granite's hybrids without such layers name the sizes of a state, too.
        return any(isinstance(kind, str) and kind in _STATE_LAYERS for kind in kinds)
    return any(inner.get(field) for field in _STATE_FIELDS)


def class_names(config: Mapping[str, Any]) -> set[str]:
    """The classes that a configuration names."""
    names = config.get("architectures")
    return {name for name in names if isinstance(name, str)} if isinstance(names, list) else set()


def _takes_marlin(config: Mapping[str, Any], extra: Sequence[str]) -> bool:
    quantized = config.get("quantization_config") or text_config(config).get("quantization_config")
    given = quantized if isinstance(quantized, Mapping) else {}
    method = str(given.get("quant_method") or value_of("--quantization", extra) or "").lower()
    if method in _MARLIN:
        return True
    groups = given.get("config_groups")
    if method != "compressed-tensors" or not isinstance(groups, Mapping):
        return False
    # Weights alone are of few bits: SGLang's CompressedTensorsWNA16.
    return any(isinstance(group, Mapping) and not group.get("input_activations") for group in groups.values())


def _of_flags(extra: Sequence[str]) -> str:
    for flag, (harmless, why) in _FLAGS.items():
        value = value_of(flag, extra)
        if value is not None and value not in harmless:
            return f"{flag}: {why}"
    if value_of(_EXPERTS_FLAG, extra) == "cutlass":
        return f"{_EXPERTS_FLAG} cutlass: both streams would write the sizes of a layer's experts"
    for flag in _ATTENTION_FLAGS:
        if (value := value_of(flag, extra)) in _ONE_WORKSPACE:
            return f"{flag} {value}: it has one workspace for both streams"
    return ""
