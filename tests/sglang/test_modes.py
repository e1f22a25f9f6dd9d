"""The guide's table of families, and what is expected of a configuration, against SGLang's classes."""

import json
import re
from pathlib import Path

import pytest
from sglang_programs import said_by
from tiny_classes import MODELS

from pdmuxd.engine.sglang.launch import mode

PAGE = Path(__file__).parents[2] / "docs" / "sglang.md"
PROGRAM = """
import inspect, json, logging, sys
from types import SimpleNamespace
logging.disable(logging.CRITICAL)
from sglang.srt.configs.model_config import is_deepseek_dsa, is_encoder_decoder_model
from sglang.srt.models.registry import ModelRegistry
from pdmuxd.engine.sglang.internals.shared_state import _ONE_COMMUNICATOR, _SIDE_STREAMS
STATES = ("RadixLinearAttention", "MambaMixer")
told = {}
for name in json.loads(sys.argv[1]):
    found = ModelRegistry.models.get(name)
    if found is None:
        told[name] = None
        continue
    parts = [part for part in found.__mro__ if part.__module__.startswith("sglang.")]
    modules = {inspect.getmodule(part) for part in parts}
    source = "".join(map(inspect.getsource, modules))
    names = {key for module in modules for key in vars(module)}
    told[name] = {
        "state": any(word in source for word in STATES),
        "encoder": is_encoder_decoder_model([name]),
        "DSA": is_deepseek_dsa(SimpleNamespace(architectures=[name], index_topk=1)),
        "stream": "Llama4ForCausalLM" in source or bool(names & set(_SIDE_STREAMS)),
        "sum": bool(names & set(_ONE_COMMUNICATOR)),
    }
print(json.dumps(told))
"""

CONFIGURATIONS = """
import json, logging
from types import SimpleNamespace
logging.disable(logging.CRITICAL)
from sglang.srt.configs import hybrid_arch
from sglang.srt.configs.linear_attn_model_registry import get_linear_attn_config
from sglang.srt.configs.model_config import is_generation_model
from sglang.srt.models.registry import ModelRegistry
told = {}
for name, found in vars(hybrid_arch).items():
    if isinstance(found, type) and name.endswith("Config"):
        config = found()
        model = SimpleNamespace(
            hf_config=config, is_draft_model=False, linear_attn_registry_result=get_linear_attn_config(config)
        )
        try:
            state = hybrid_arch.mambaish_config(model) is not None
        except ValueError:  # Inkling's asks a server's arguments for the sizes of its state
            state = True
        told[name] = [json.loads(config.to_json_string(use_diff=False)), state]
names = [name for name in ModelRegistry.models if not is_generation_model([name])]
print(json.dumps({"configurations": told, "not_generating": names}))
"""


def families():
    """Class, whether its star stands, how it is served: of each row of the table."""
    text = PAGE.read_text()
    table = text[text.index("| served | classes |") :].partition("\n\n")[0]
    for row in table.splitlines()[2:]:
        _, served, classes, _ = row.split("|")
        for name, star in re.findall(r"`(\w+)`(\\\*)?", classes):
            yield name, bool(star), served.strip()


TABLE = {name: (star, served) for name, star, served in families()}
EXPECTED = {
    "fused steps: state": mode.STATE,
    "fused steps: decode reads an encoder's result": mode.ENCODER,
    "fused steps: attention": mode.SPARSE,
    "fused steps: experts run on a stream of all SMs": mode.OWN_STREAM,
    "split": "",
    "split on one GPU: several sum over one communicator": "",
}


@pytest.fixture(scope="module")
def told(python):
    return said_by(python, PROGRAM, json.dumps(list(TABLE)))


def test_a_state_is_expected_of_the_configurations_that_sglang_gives_one(python):
    told = said_by(python, CONFIGURATIONS)
    expected = {
        name: mode.why_fused(config) == mode.STATE for name, (config, _) in told["configurations"].items()
    }
    assert expected == {name: state for name, (_, state) in told["configurations"].items()}
    assert sum(expected.values()) > 15
    assert set(told["not_generating"]) <= mode.NOT_GENERATING


def test_stars_are_the_classes_whose_logits_are_compared():
    assert {name for name, (star, _) in TABLE.items() if star} == set(MODELS)


@pytest.mark.parametrize("name", TABLE)
def test_the_table_says_what_sglangs_class_is(told, name):
    facts, (_, served) = told[name], TABLE[name]
    assert facts is not None, "SGLang has no such class"
    assert (served == "fused steps: state") is facts["state"]
    assert (served == "fused steps: decode reads an encoder's result") is facts["encoder"]
    assert (served == "fused steps: experts run on a stream of all SMs") is facts["stream"]
    assert (served == "split on one GPU: several sum over one communicator") is facts["sum"]
    if served == "fused steps: attention":
        assert facts["DSA"]


@pytest.mark.parametrize("name", TABLE)
def test_a_configuration_is_expected_to_be_served_as_the_table_says(name):
    _, served = TABLE[name]
    config = {"architectures": [name]}
    if served == "fused steps: state":
        config["layer_types"] = ["linear_attention"]
    if served == "fused steps: attention":
        config["index_topk"] = 2048
    assert mode.why_fused(config) == EXPECTED[served]
    assert (mode.why_fused(config, tp_size=2) == mode.OWN_SUM) is (
        served == "split on one GPU: several sum over one communicator"
    )
