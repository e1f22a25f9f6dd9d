"""What a model is, read from the configurations of families that do not look like a Llama."""

import pytest
from sglang_programs import said_by

PROGRAM = """
import json, logging
logging.disable(logging.CRITICAL)
from transformers import Gemma3nConfig, Mamba2Config, PretrainedConfig, Qwen2_5OmniConfig, Qwen3OmniMoeConfig
from sglang.srt.configs.deepseekvl2 import DeepseekVL2Config
from sglang.srt.configs.internvl import InternVLChatConfig
from sglang.srt.utils.hf_transformers.common import get_hf_text_config
from pdmuxd.engine.sglang.model_config import model_shape

QWEN2 = dict(architectures=["Qwen2ForCausalLM"], model_type="qwen2", hidden_size=896, num_attention_heads=14,
             num_key_value_heads=2, num_hidden_layers=24, intermediate_size=4864, vocab_size=151674)
NAS = dict(hidden_size=8192, intermediate_size=None, num_key_value_heads=None, num_attention_heads=64,
           num_hidden_layers=80, vocab_size=128256, max_position_embeddings=131072)
CONFIGS = {
    "InternVLChatModel": InternVLChatConfig(llm_config=QWEN2),
    "DeepseekVL2ForCausalLM": DeepseekVL2Config(language_config=dict(hidden_size=1280, num_hidden_layers=12)),
    "Qwen2_5OmniModel": Qwen2_5OmniConfig(),
    "Qwen3OmniMoeForConditionalGeneration": Qwen3OmniMoeConfig(),
    "Gemma3nForConditionalGeneration": Gemma3nConfig(),
    "Mamba2ForCausalLM": Mamba2Config(),
    "DeciLMForCausalLM": PretrainedConfig(**NAS),
    "Empty": PretrainedConfig(),
}
shapes = {}
for name, config in CONFIGS.items():
    config.architectures = [name]
    shape = model_shape(get_hf_text_config(config), name)
    shapes[name] = [shape.layers, shape.hidden, shape.intermediate, shape.heads]
print(json.dumps(shapes))
"""
EXPECTED = {
    "InternVLChatModel": [24, 896, 4864, 14],
    "DeepseekVL2ForCausalLM": [12, 1280],
    "Qwen2_5OmniModel": [28, 3584, 18944, 28],
    "Qwen3OmniMoeForConditionalGeneration": [28, 2048],
    "Gemma3nForConditionalGeneration": [35, 2048, 16384, 8],  # a list by layer
    "Mamba2ForCausalLM": [64, 4096],  # no attention at all
    "DeciLMForCausalLM": [80, 8192, 4 * 8192, 64],  # Nemotron-NAS: each layer has its own
    "Empty": [1, 1, 4, 1],
}


@pytest.fixture(scope="module")
def shapes(python):
    return said_by(python, PROGRAM)


@pytest.mark.parametrize("family", EXPECTED)
def test_a_shape_is_found_when_the_configuration_is_not_a_llamas(shapes, family):
    assert shapes[family][: len(EXPECTED[family])] == EXPECTED[family]
