"""When answers under load agree with those of an idle engine."""

import json
from pathlib import Path

import numpy as np
import pytest

from gpu_plans import agreement
from gpu_plans.agreement import TIE, Agreement, Answer
from gpu_servers.model_folder import _tensors, write_model_folder, write_weights

ALONE = Answer(tokens=(5, 6, 7), margins=(1.0, TIE / 2, 2.0))


def compared(*answers):
    found = Agreement()
    for tokens in answers:
        found.add(ALONE, tokens)
    return found


def test_an_answer_is_the_same_when_every_token_is():
    assert compared((5, 6, 7)) == Agreement(same=1)


def test_a_first_difference_is_a_tie_when_both_tokens_were_nearly_as_likely():
    assert compared((5, 9, 1)) == Agreement(ties=1, widest=TIE / 2)


@pytest.mark.parametrize("tokens", [(9, 6, 7), (5, 6, 9)])
def test_a_first_difference_is_wrong_when_the_token_was_clearly_ahead(tokens):
    assert compared(tokens).wrong == 1


@pytest.mark.parametrize("tokens", [(), (5, 6), (5, 6, 7, 8)])
def test_an_answer_of_another_length_is_wrong(tokens):
    assert compared(tokens).wrong == 1


def found(*, distinct=90, **policies):
    return {"policies": policies, "prompts": 96, "distinct": distinct}


GOOD = {"same": 60, "ties": 30, "wrong": 0, "widest": 0.1, "misshapen": 0, "steps": {"split": 9}}


def test_it_passes_when_most_are_the_same_and_none_is_wrong():
    assert agreement.is_met(found(auto=GOOD))


@pytest.mark.parametrize("changes", [{"wrong": 1}, {"misshapen": 1}, {"same": 10, "ties": 80}])
def test_it_fails_when_one_is_wrong_or_most_differ(changes):
    assert not agreement.is_met(found(auto=GOOD, muxwise=GOOD | changes))


def test_it_fails_when_nothing_was_compared():
    assert not agreement.is_met(found())


def test_it_fails_when_a_wrong_answer_would_be_the_right_one_of_most_prompts():
    assert agreement.is_met(found(distinct=48, auto=GOOD))
    assert not agreement.is_met(found(distinct=47, auto=GOOD))


def test_prompts_are_of_all_lengths_and_some_begin_alike():
    prompts = agreement.prompts_of(96, longest=6000, vocab=512)
    sizes = sorted(map(len, prompts))
    assert (sizes[0] < 10, sizes[-1] > 3000) == (True, True)
    assert prompts == agreement.prompts_of(96, longest=6000, vocab=512)
    begin = min(len(prompts[0]), len(prompts[1]) // 2)
    assert prompts[1][:begin] == prompts[0][:begin]
    assert all(3 <= token < 512 for prompt in prompts for token in prompt)


@pytest.mark.parametrize("shape", agreement._CONFIGS)
def test_small_models_of_every_family_have_weights_that_their_config_asks_for(shape, tmp_path):
    config = agreement._CONFIGS[shape] | {
        "num_hidden_layers": 2,
        "hidden_size": 512,
        "intermediate_size": 1024,
    }
    folder = write_weights(write_model_folder(shape, tmp_path, **config))
    data = (folder / "model.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    assert max(one["data_offsets"][1] for one in header.values()) == len(data) - 8 - size
    assert {name.split(".")[2] for name in header if name.startswith("model.layers.")} == {"0", "1"}
    eight = {"F32", "F8_E4M3"}
    types = {"llama-8b-gptq": {"F32", "F16", "I32"}, "qwen3-8b-fp8": eight, "qwen3-30b-a3b-fp8": eight}
    assert {one["dtype"] for one in header.values()} == types.get(shape, {"F32"})


@pytest.mark.parametrize(
    "shape", ["MixtralForCausalLM", "DeepseekV2ForCausalLM", "Gemma3ForConditionalGeneration"]
)
def test_a_class_gets_the_sizes_that_kernels_want_and_its_weights_from_a_plugin(shape, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    for _ in range(2):
        folder, environment = agreement.made_model(shape, tmp_path, {"torch_dtype": "bfloat16"})
    config = json.loads((folder / "config.json").read_text())
    inner = config.get("text_config", config)
    assert (config["architectures"], config["torch_dtype"]) == ([shape], "bfloat16")
    assert (inner["hidden_size"], inner["head_dim"]) == (512, 64 if shape.startswith("Deepseek") else 128)
    assert inner.get("rope_scaling", {}).get("original_max_position_embeddings", 16_384) == 16_384
    assert config.get("vision_config", {}).get("hidden_size", 64) == 64
    assert environment["SGLANG_PLUGINS"] == "pdmuxd_made_up_weights"
    plugin, elsewhere = environment["PYTHONPATH"].split(":")
    assert (Path(plugin) / "made_up_weights.py").is_file()
    assert elsewhere == "/elsewhere"
    assert not (folder / "model.safetensors").exists()


def test_four_bits_stand_for_weights_as_large_as_those_of_32(tmp_path):
    config = {"hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 1, "vocab_size": 64}
    found = {}
    for shape in ("tiny", "llama-8b-gptq"):
        folder = write_model_folder(shape, tmp_path / shape, **config)
        tensors = dict(_tensors(json.loads((folder / "config.json").read_text()), np.random.default_rng(1)))
        name = "model.layers.0.mlp.down_proj"
        if shape == "tiny":
            found[shape] = tensors[f"{name}.weight"].std()
            continue
        words = tensors[f"{name}.qweight"].view("<u4")
        bits = np.stack([words >> (4 * place) & 15 for place in range(8)]).astype(float) - 8.0
        assert abs(bits.mean()) < 0.02, "else every layer adds the same to every token"
        found[shape] = (bits * tensors[f"{name}.scales"][0, 0].astype(float)).std()
    assert found["llama-8b-gptq"] == pytest.approx(found["tiny"], rel=0.02)


def test_eight_bits_stand_for_weights_as_large_as_those_of_32(tmp_path):
    config = agreement._CONFIGS["qwen3-30b-a3b-fp8"] | {"num_hidden_layers": 1}
    found = {}
    for shape in ("qwen3-30b-a3b", "qwen3-30b-a3b-fp8"):
        folder = write_model_folder(shape, tmp_path / shape, **config)
        made = json.loads((folder / "config.json").read_text())
        tensors = dict(_tensors(made, np.random.default_rng(1)))
        name = "model.layers.0.mlp.experts.0.down_proj"
        weights = tensors[f"{name}.weight"]
        if weights.dtype == np.uint8:
            exponent, mantissa = weights >> 3 & 15, weights & 7
            size = 2.0 ** (exponent - 7.0) * (1 + mantissa / 8) * tensors[f"{name}.weight_scale_inv"][0, 0]
            assert tensors[f"{name}.weight_scale_inv"].shape == (512 // 128, 256 // 128)
            weights = np.where(weights >> 7, -size, size)
        assert abs(weights.mean()) < weights.std() / 100
        found[shape] = weights.std()
    assert found["qwen3-30b-a3b-fp8"] == pytest.approx(found["qwen3-30b-a3b"], rel=0.02)


def test_stock_sglang_stands_alone_since_it_is_another_server(capsys):
    assert agreement.options_of(["--policies", "stock"]).policies == ["stock"]
    with pytest.raises(SystemExit) as refused:
        agreement.options_of(["--policies", "auto,stock"])
    assert refused.value.code == 2
    assert "--policies: stock stands alone" in capsys.readouterr().err


def test_each_round_is_told_since_a_run_may_be_cut_short():
    found = {"auto": compared((5, 6, 7), (9, 6, 7)), "muxwise": compared((5, 9, 1))}
    told = agreement.said_of(2, 61.4, found)
    assert told.strip() == "2 rounds, 61 s: 1 the same, 1 ties, 1 WRONG, 0 MISSHAPEN"
