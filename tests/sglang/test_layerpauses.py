"""Classes of all kinds, whole and by layers: SGLang's own code at tiny shapes on the CPU, the same logits."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import tiny_classes
from sglang_processes import environment

PAGE = Path(__file__).parents[2] / "docs" / "sglang.md"
PROGRAM = Path(tiny_classes.__file__).with_name("paused_classes.py")
LAB = Path(__file__).parents[1] / "lab"
LOOPS = {"NanbeigeForCausalLM": 2}
"""How often a model goes through its layers, if not once."""
FUSED = "chunked:64"
"""Where some of a batch have images and others none, and some are longer."""
ALL_S = 1200
"""For all classes together: 8 minutes on two cores that others use, too."""
pytestmark = pytest.mark.timeout(ALL_S)


@pytest.fixture(scope="module")
def said(python, tmp_path_factory):
    """What the program says of each class: of its logits and of its tokens."""
    paths = os.pathsep.join(map(str, (PROGRAM.parent, LAB)))
    own = environment(TORCHDYNAMO_DISABLE="1", TRITON_INTERPRET="1", PYTHONPATH=paths)
    command = [os.fspath(python), "-P", os.fspath(PROGRAM), os.fspath(tmp_path_factory.mktemp("classes"))]
    done = subprocess.run(command, env=own, capture_output=True, text=True, timeout=ALL_S)
    found = re.findall(r"^(LOGITS|TOKENS) (.*)$", done.stdout, re.MULTILINE)
    assert found, done.stderr[-3000:]
    told = [(what, json.loads(line)) for what, line in found]
    return {what: {one["name"]: one for kind, one in told if kind == what} for what in ("LOGITS", "TOKENS")}


@pytest.fixture(scope="module")
def compared(said):
    return said["LOGITS"]


@pytest.mark.parametrize("name", tiny_classes.MODELS)
def test_tokens_are_those_of_the_stock_loop_when_prefills_are_aborted_and_set_aside(said, name):
    served = said["TOKENS"][name]
    assert "failed" not in served, served
    assert served["distinct"] > 8, "a comparison of constants"
    for policy, ran in served["policies"].items():
        assert (ran["wrong"], ran["in_force"]) == ([], policy)
        if policy != FUSED:
            assert ran["launches"] > 2 * tiny_classes.LAYERS, "prefills by layers, in slices of two"
    assert served["asked"] == 0, "settings of context parallelism, by layers and in fused steps"
    masks_images = name == "Gemma3ForConditionalGeneration"
    assert (len(served["policies"]), FUSED in served["policies"]) == (2 + masks_images, masks_images)
    if served["images"]:
        assert not served["alike"], "the same text with another image"
    assert sum(ran["cut_short"] for ran in served["policies"].values()) > 0
    assert served["policies"]["auto:nofuse"]["set_aside"] > 0


@pytest.mark.parametrize("name", tiny_classes.MODELS)
def test_logits_are_those_of_the_whole_when_a_class_is_prefilled_by_layers(compared, name):
    said = compared[name]
    assert "failed" not in said, said
    assert said["again"] == 0.0, "whole is not always the same"
    assert said["by_layers"] == 0.0
    assert said["set_aside"] == 0.0, "two prefills set aside in each other, decode steps in between"
    assert said["calls"] == tiny_classes.LAYERS * LOOPS.get(name, 1)


CUT = ("LlamaForCausalLM", "Gemma3ForCausalLM")
"""Two of those whose layers can be called for some tokens after the others: SGLang keeps the residual
of the first one beside the batch."""


def test_logits_are_nearly_those_of_the_whole_when_layers_are_cut_by_tokens(compared):
    cut = {name: said["slices"] for name, said in compared.items() if isinstance(said["slices"], float)}
    assert set(CUT) <= set(cut)
    assert max(cut[name] for name in CUT) < 1e-4, "sums have other parts"


@pytest.mark.parametrize("name", tiny_classes.MODELS)
def test_later_prefills_are_as_ever_when_one_is_dropped_and_a_layer_of_another_fails(compared, name):
    assert (compared[name]["error"], compared[name]["after"]) == ("a layer's own error", 0.0)


def test_the_comparison_sees_it_when_a_split_loses_the_residual(compared):
    assert compared["Gemma3ForCausalLM"]["own"] > 1.0, "SGLang's own split, in deviations of the logits"
    assert compared["LlamaForCausalLM"]["own"] == 0.0


def test_the_page_marks_the_classes_whose_logits_by_layers_are_those_of_the_whole(compared):
    marked = set(re.findall(r"`(\w+)`\\\*", PAGE.read_text()))
    assert marked == {name for name, said in compared.items() if said["by_layers"] == 0.0}
