"""Chunks beside decode, which SGLang cannot run: whole prompts by layers, or the chunk in a fused step."""

from dataclasses import replace

import pytest
from engine_rig import IDLE, RULES, Rig, fused, make_facts, split

from pdmuxd.engine.core.slo import DEFAULT_SLO
from pdmuxd.engine.core.types import Mode
from pdmuxd.engine.sglang.environment import PluginEnvironment
from pdmuxd.engine.sglang.tables import make_table
from pdmuxd.engine.sglang.tracked import Target


def test_a_chunk_beside_decode_becomes_the_layers_of_the_whole_batch():
    rig = Rig()
    rig.decoding("z", outputs=100)
    rig.arrive("a", tokens=4000, outputs=1)
    rig.turn(split(group=2, admit=("a",), decode_steps=2, token_budget=512))
    assert rig.launches("decode") == [("z",)]
    assert rig.launches("layers") == [(2, "a")], "half of four layers beside each of the two steps"
    rig.turn(split(group=2, decode_steps=1, prefill_layers=2))
    rig.device.finish_prefill()
    rig.turn(split(group=2, decode_steps=1))
    assert rig.launches("finish") == [("a",)]


def test_the_next_chunk_is_fused_when_chunks_of_the_prompt_have_begun():
    rig = Rig()
    rig.decoding("z", outputs=100)
    rig.arrive("a", tokens=40)
    rig.turn(fused(17, admit=("a",), decode_steps=1))
    rig.turn(split(group=2, decode_steps=2, token_budget=16))
    assert rig.launches("fused") == [(17, "a", "z"), (17, "a", "z")]
    assert rig.loop.steering.group == 0
    rig.turn(IDLE)


@pytest.mark.parametrize("decision", [IDLE, fused(64), split(group=1, decode_steps=2, prefill_layers=3)])
def test_other_decisions_are_carried_out_as_they_are(decision):
    rig = Rig()
    rig.arrive("a")
    rig.turn(decision)
    assert rig.port.turns[-1].decision is decision


def test_duet_goes_on_with_a_prefill_by_layers_when_its_chunk_became_one():
    made = make_table(RULES, PluginEnvironment(policy="duet", link=None, partitions=None))
    rig = Rig("duet:4096", facts=make_facts(table=made))
    rig.arrive("z", tokens=50, outputs=200)
    while not rig.port.running:
        rig.turn()
    rig.loop.ledger.retarget({"acme": Target(slo=replace(DEFAULT_SLO, tbt_s=0.001), version=1)})
    rig.arrive("a", tokens=4000, outputs=1)
    rig.turn()
    decision = rig.port.turns[-1].decision
    assert decision.mode is Mode.SPLIT, "the target is met fused: nothing is tested"
    for _ in range(20):
        rig.device.finish_prefill()
        rig.turn()
    assert sum(layers for layers, _ in rig.launches("layers")) == rig.port.layers
    assert rig.launches("finish") == [("a",)]
