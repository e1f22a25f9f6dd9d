"""What SGLang cannot run: chunks beside decode, prompts that memory does not hold, images in a chunk."""

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


def test_images_are_prefilled_whole_by_themselves_when_a_step_was_to_be_fused():
    rig = Rig()
    rig.decoding("z", outputs=100)
    rig.arrive("a", tokens=20)
    for name in ("b", "c"):
        rig.arrive(name, tokens=100, is_whole=True)
    rig.arrive("d", tokens=20)
    everybody = fused(64, admit=("a", "b", "c", "d"), decode_steps=1)
    rig.turn(everybody)
    assert rig.launches("fused") == [(64, "a", "z")]
    rig.turn(replace(everybody, admit=("b", "c", "d")))
    assert rig.launches("fused")[1:] == [(200, "b", "c")], "decode waits, and so does who has no image"
    assert rig.port.turns[-1].decision.reason is Reason.IMAGES_WHOLE
    rig.turn(replace(everybody, admit=("d",)))
    assert set(rig.launches("fused")[2]) == {64, "a", "b", "c", "d", "z"}


def test_images_wait_for_a_prompt_in_chunks_unless_that_sits_the_step_out():
    rig = Rig()
    rig.decoding("z", outputs=100)
    rig.arrive("a", tokens=100)
    rig.turn(fused(32, admit=("a",), decode_steps=1))
    rig.arrive("b", tokens=50, is_whole=True)
    rig.turn(fused(32, admit=("b",), decode_steps=1, chunk_last=True))
    assert rig.launches("fused") == [(32, "a", "z")] * 2
    rig.turn(fused(32, admit=("b",), decode_steps=1, preempt=True))
    assert rig.launches("fused")[2][1:] == ("b",)
    rig.turn(fused(200, decode_steps=1))
    assert set(rig.launches("fused")[3]) == {200, "a", "b", "z"}


def test_images_are_in_batches_of_their_own_by_layers():
    rig = Rig()
    rig.arrive("a", is_whole=True)
    rig.arrive("b", is_whole=True)
    rig.arrive("c")
    rig.turn(split(partition_id=0, admit=("a", "b", "c"), prefill_layers=4))
    assert rig.launches("layers") == [(4, "a", "b")]
    rig.device.finish_prefill()
    seen = rig.turn(IDLE)
    assert [request.request_id for request in seen.waiting] == ["c"]


def test_images_are_not_cut_for_the_sake_of_memory():
    rig = Rig(engine_info=holding_a_thousand())
    rig.decoding("z", outputs=100)
    rig.arrive("a", tokens=1100, is_whole=True)
    rig.turn(split(partition_id=2, admit=("a",), decode_steps=1, prefill_layers=2))
    assert rig.launches("layers") == [(2, "a")], "one that was retracted: others are refused as they come"


@pytest.mark.parametrize(
    "policy", ["auto", "auto:nosplit", "chunked:64", "prefill-first:64", "muxwise", "duet"]
)
def test_images_are_neither_cut_nor_beside_others_under_a_policy(policy):
    made = make_table(RULES, PluginEnvironment(policy=policy, link=None, partitions=None))
    rig = Rig(policy, engine_info=make_engine_info(table=made))
    for number, name in enumerate("abcdefgh"):
        rig.arrive(name, tokens=40 + 60 * number, outputs=12, is_whole=number % 3 > 0)
        rig.turn()
    for _ in range(400):
        rig.device.finish_prefill()
        rig.turn()
    images = set("bcefh")
    begun = [set(names) for _, *names in rig.launches("fused")] + [set(n) for _, *n in rig.launches("layers")]
    for name in images:
        first = next(names for names in begun if name in names)
        assert first <= images
    assert {record.request_id: record.outcome for record in rig.records} == dict.fromkeys(
        "abcdefgh", "finished"
    )


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
