"""Configurations of SGLang classes of many kinds, at shapes so tiny that a CPU runs one in a second."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

LAYERS = 6
SIX = ["sliding_attention", "full_attention"] * 3
BASE = {
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 512,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "torch_dtype": "float32",
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
}
EXPERTS = {
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}
YARN = {
    "rope_type": "yarn",
    "type": "yarn",
    "factor": 2.0,
    "beta_fast": 32,
    "beta_slow": 1,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "original_max_position_embeddings": 1024,
}
LATENT = {
    "q_lora_rank": 64,
    "kv_lora_rank": 64,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "v_head_dim": 32,
    "num_key_value_heads": 4,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "n_group": 2,
    "topk_group": 1,
    "routed_scaling_factor": 1.0,
    "rope_scaling": YARN,
}
IMAGES = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "depth": 2,
    "num_attention_heads": 2,
    "num_heads": 2,
    "head_dim": 32,
    "patch_size": 14,
    "image_size": 56,
    "in_channels": 3,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "window_size": 112,
    "fullatt_block_indexes": [1],
    "out_hidden_size": 128,
    "num_position_embeddings": 64,
    "hidden_act": "silu",
}
"""Of an encoder; each class takes what it knows."""
PLACES = {
    "image_token_id": 509,
    "video_token_id": 508,
    "vision_start_token_id": 507,
    "vision_end_token_id": 506,
    "image_token_index": 509,
}
THREE_AXES = {"type": "mrope", "rope_type": "default", "mrope_section": [4, 6, 6]}
GEMMA = {
    "model_type": "gemma3_text",
    "query_pre_attn_scalar": 32,
    "sliding_window": 64,
    "hidden_activation": "gelu_pytorch_tanh",
    "rope_local_base_freq": 10000.0,
    "tie_word_embeddings": True,
    "layer_types": SIX,
}
MODELS: dict[str, dict[str, Any]] = {
    "LlamaForCausalLM": {"model_type": "llama"},
    "Qwen3ForCausalLM": {"model_type": "qwen3"},
    "Qwen3MoeForCausalLM": {"model_type": "qwen3_moe"} | EXPERTS,
    "MixtralForCausalLM": {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2},
    "OlmoeForCausalLM": {"model_type": "olmoe", "num_key_value_heads": 4} | EXPERTS,
    "Olmo2ForCausalLM": {"model_type": "olmo2"},
    "Gemma3ForCausalLM": GEMMA,
    "GptOssForCausalLM": {
        "model_type": "gpt_oss",
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        "experts_per_token": 2,
        "sliding_window": 128,
        "layer_types": SIX,
        "attention_bias": True,
        "swiglu_limit": 7.0,
        "rope_scaling": None,
    },
    "DeepseekV2ForCausalLM": {
        "model_type": "deepseek_v2",
        "topk_method": "group_limited_greedy",
        "scoring_func": "softmax",
        "norm_topk_prob": False,
    }
    | LATENT,
    "DeepseekV3ForCausalLM": {
        "model_type": "deepseek_v3",
        "topk_method": "noaux_tc",
        "scoring_func": "sigmoid",
        "norm_topk_prob": True,
    }
    | LATENT,
    "Glm4MoeForCausalLM": {
        "model_type": "glm4_moe",
        "n_routed_experts": 8,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 64,
        "first_k_dense_replace": 1,
        "n_group": 1,
        "topk_group": 1,
        "routed_scaling_factor": 1.0,
        "norm_topk_prob": True,
        "use_qk_norm": False,
        "partial_rotary_factor": 0.5,
    },
    "CohereForCausalLM": {
        "model_type": "cohere",
        "logit_scale": 0.0625,
        "use_qk_norm": False,
        "tie_word_embeddings": True,
        "layer_norm_eps": 1e-5,
    },
    "GraniteForCausalLM": {
        "model_type": "granite",
        "embedding_multiplier": 12.0,
        "logits_scaling": 6.0,
        "residual_multiplier": 0.22,
        "attention_multiplier": 0.17,
    },
    "Starcoder2ForCausalLM": {
        "model_type": "starcoder2",
        "use_bias": True,
        "norm_epsilon": 1e-5,
        "hidden_act": "gelu_pytorch_tanh",
        "sliding_window": None,
    },
    "Glm4ForCausalLM": {"model_type": "glm4", "partial_rotary_factor": 0.5, "attention_bias": True},
    "NanbeigeForCausalLM": {"model_type": "nanbeige", "num_loops": 2},
    "Qwen2ForCausalLM": {"model_type": "qwen2"},
    "MistralForCausalLM": {"model_type": "mistral", "sliding_window": None},
    "Phi3ForCausalLM": {"model_type": "phi3", "pad_token_id": 0, "original_max_position_embeddings": 2048},
    "Qwen2_5_VLForConditionalGeneration": {
        "model_type": "qwen2_5_vl",
        "rope_scaling": THREE_AXES,
        "vision_config": IMAGES,
    }
    | PLACES,
    "Qwen3VLForConditionalGeneration": {
        "model_type": "qwen3_vl",
        "text_config": BASE
        | {"model_type": "qwen3_vl_text", "rope_scaling": THREE_AXES | {"mrope_interleaved": True}},
        "vision_config": IMAGES | {"model_type": "qwen3_vl", "deepstack_visual_indexes": [0, 1]},
    }
    | PLACES,
    "Gemma3ForConditionalGeneration": {
        "model_type": "gemma3",
        "text_config": BASE | GEMMA,
        "vision_config": IMAGES | {"model_type": "siglip_vision_model"},
        "mm_tokens_per_image": 4,
    }
    | PLACES,
    "Mistral3ForConditionalGeneration": {
        "model_type": "mistral3",
        "text_config": BASE | {"model_type": "mistral", "sliding_window": None},
        "vision_config": IMAGES | {"model_type": "pixtral"},
        "spatial_merge_size": 2,
        "vision_feature_layer": -1,
    }
    | PLACES,
}


def write_folder(name: str, folder: Path) -> Path:
    """A folder with the configuration of a class; returns it."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(BASE | {"architectures": [name]} | MODELS[name]))
    return folder
