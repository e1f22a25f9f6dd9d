"""Chunks beside decode, which SGLang cannot run: whole prompts by layers, or the chunk in a fused step."""

from dataclasses import replace

import pytest
from engine_rig import IDLE, RULES, Rig, fused, make_engine_info, split

from pdmuxd.engine.core.slo import DEFAULT_SLO
from pdmuxd.engine.core.types import Mode, Reason
from pdmuxd.engine.loop.requests import Target
from pdmuxd.engine.sglang.engine_info import Activations
from pdmuxd.engine.sglang.environment import PluginEnvironment
from pdmuxd.engine.sglang.partition_tables import make_table


def test_a_chunk_beside_decode_becomes_the_layers_of_the_whole_batch():
    rig = Rig()
    rig.decoding("z", outputs=100)
    rig.arrive("a", tokens=4000, outputs=1)
    rig.turn(split(partition_id=2, admit=("a",), decode_steps=2, token_budget=512))
    assert rig.launches("decode") == [("z",)]
    assert rig.launches("layers") == [(2, "a")], "half of four layers beside each of the two steps"
    rig.turn(split(partition_id=2, decode_steps=1, prefill_layers=2))
    rig.device.finish_prefill()
    rig.turn(split(partition_id=2, decode_steps=1))
    assert rig.launches("finish") == [("a",)]


def test_the_next_chunk_is_fused_when_chunks_of_the_prompt_have_begun():
    rig = Rig()
    rig.decoding("z", outputs=100)
    rig.arrive("a", tokens=40)
    rig.turn(fused(17, admit=("a",), decode_steps=1))
    rig.turn(split(partition_id=2, decode_steps=2, token_budget=16))
    assert rig.launches("fused") == [(17, "a", "z"), (17, "a", "z")]
    assert rig.loop.state.partition_id == rig.policy.table.decode_only
    rig.turn(IDLE)


def holding_a_thousand():
    return make_engine_info().holding(Activations(free_bytes=10_000, bytes_per_token=8.0))


def test_a_prompt_that_memory_does_not_hold_runs_in_chunks_to_its_end():
    rig = Rig(engine_info=holding_a_thousand())
    rig.decoding("z", outputs=100)
    rig.arrive("a", tokens=1100, outputs=1)
    rig.turn(split(partition_id=2, admit=("a",), decode_steps=1, prefill_layers=2))
    assert rig.port.turns[-1].decision.reason is Reason.TOO_LONG_FOR_MEMORY
    for decision in (split(partition_id=2, decode_steps=1, prefill_layers=2), fused(0, decode_steps=1), IDLE):
        rig.turn(decision)
    assert rig.launches("fused") == [(512, "a", "z")] * 3, "whatever else was decided meanwhile"
    assert not rig.launches("layers")


def test_a_chunk_alone_is_as_long_as_memory_holds():
    rig = Rig(engine_info=holding_a_thousand())
    rig.arrive("a", tokens=1900, outputs=1)
    rig.turn(split(partition_id=0, admit=("a",), prefill_layers=4))
    assert rig.launches("fused") == [(1000, "a")]
    rig.turn(fused(4000))
    assert rig.launches("fused") == [(1000, "a"), (1000, "a")]


def test_nobody_is_preempted_for_a_prompt_that_memory_does_not_hold():
    rig = Rig(engine_info=holding_a_thousand())
    rig.decoding("z", outputs=100)
    rig.arrive("a", tokens=900)
    rig.turn(split(partition_id=2, admit=("a",), decode_steps=1, prefill_layers=2))
    rig.arrive("b", tokens=1001)
    rig.arrive("c", tokens=1000)
    seen = rig.turn(split(partition_id=2, decode_steps=1, prefill_layers=2))
    assert [request.request_id for request in seen.waiting] == ["c"]
    rig.device.finish_prefill()
    seen = rig.turn(IDLE)
    assert [request.request_id for request in seen.waiting] == ["b", "c"]


def test_a_batch_is_within_what_memory_holds():
    limits = make_engine_info().holding(Activations(free_bytes=10_000, bytes_per_token=8.0)).limits
    assert (limits.max_whole_tokens, limits.max_prefill_tokens) == (1000, 1000)
    roomy = make_engine_info().holding(Activations(free_bytes=10**9, bytes_per_token=8.0)).limits
    assert (roomy.max_whole_tokens, roomy.max_prefill_tokens) == (10**8, 16384)


@pytest.mark.parametrize(
    "decision", [IDLE, fused(64), split(partition_id=1, decode_steps=2, prefill_layers=3)]
)
def test_other_decisions_are_carried_out_as_they_are(decision):
    rig = Rig()
    rig.arrive("a")
    rig.turn(decision)
    assert rig.port.turns[-1].decision is decision


def test_duet_goes_on_with_a_prefill_by_layers_when_its_chunk_became_one():
    made = make_table(RULES, PluginEnvironment(policy="duet", link=None, partitions=None))
    rig = Rig("duet:4096", engine_info=make_engine_info(table=made))
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
