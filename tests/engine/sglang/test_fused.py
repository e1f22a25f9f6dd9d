"""Fused steps: who is admitted, which prompt tokens a step really holds, and the way to and from a split."""

import pytest
from engine_rig import IDLE, Rig, fused, split

from pdmuxd.engine.core.errors import EngineInvariantError
from pdmuxd.engine.core.types import PrefillMode
from pdmuxd.engine.link.messages import IterationRecord


def held(rig):
    """(prompt tokens, reused tokens, requests, decoding) of each fused step that was read."""
    return [
        (step.prefill_new_tokens, step.prefill_reused_tokens, step.prefill_bs, step.decode_bs)
        for step in rig.link.of(IterationRecord)
        if step.mode == "fused"
    ]


def test_a_step_holds_what_the_budget_leaves_when_prompts_are_longer():
    rig = Rig()
    rig.arrive("a", tokens=10, outputs=1)
    rig.arrive("b", tokens=30, outputs=1)
    rig.turn(fused(16, admit=("a", "b")))
    assert rig.port.chunked_request.rid == "b"
    seen = rig.turn(fused(16, decode_steps=1))
    assert (seen.prefill.mode, seen.prefill.done_tokens) == (PrefillMode.CHUNKED, 6)
    assert seen.prefill.shape.new_tokens == 30
    seen = rig.turn(fused(16))
    assert seen.prefill.done_tokens == 21
    rig.turn(IDLE)
    # The second step was launched before the first, with a's only token, was read: a has a row in it.
    assert held(rig) == [(16, 0, 2, 0), (15, 6, 1, 1), (9, 21, 1, 0)]


def test_decode_stalls_when_a_step_is_of_prompts_alone():
    """`prefill-first` says so: SGLang mixed the decoding requests in, and the emulated engine did not."""
    rig = Rig()
    rig.decoding("z", outputs=100)
    rig.arrive("a", tokens=30, outputs=100)
    rig.turns([fused(16, admit=("a",)), fused(16), fused(0, decode_steps=1), IDLE])
    assert held(rig) == [(16, 0, 1, 0), (14, 16, 1, 0), (0, 0, 0, 2)]


def test_decoding_requests_count_against_the_budget():
    rig = Rig()
    rig.decoding("z", outputs=100)
    rig.arrive("a", tokens=30, outputs=100)
    rig.turn(fused(16, admit=("a",), decode_steps=1))
    rig.turn(fused(16, decode_steps=1))
    rig.turn(fused(0, decode_steps=1))
    rig.turn(IDLE)
    # The second chunk has 15 of the 15 tokens that are left; after it both decode.
    assert held(rig) == [(15, 0, 1, 1), (15, 15, 1, 1), (0, 0, 0, 2)]
    assert rig.launches("decode") == [("z", "a")]


def test_a_step_holds_the_rest_of_one_prompt_and_the_start_of_the_next():
    rig = Rig()
    rig.arrive("a", tokens=20)
    rig.turn(fused(16, admit=("a",)))
    rig.arrive("b", tokens=40)
    rig.turn(fused(16, admit=("b",)))
    rig.turn(IDLE)
    assert held(rig) == [(16, 0, 1, 0), (16, 16, 2, 0)]
    second = rig.link.of(IterationRecord)[-1]
    assert second.prefill_sum_new_squared == 4 * 4 + 12 * 12


def test_reused_tokens_are_no_part_of_a_chunk():
    rig = Rig()
    rig.port.cache["a"] = 20
    rig.arrive("a", tokens=30)
    rig.turn(fused(8, admit=("a",)))
    seen = rig.turn(fused(8))
    assert (seen.prefill.shape.new_tokens, seen.prefill.done_tokens) == (10, 8)
    rig.turn(IDLE)
    assert held(rig) == [(8, 20, 1, 0), (2, 28, 1, 0)]


def test_a_request_is_not_admitted_when_it_does_not_fit():
    rig = Rig()
    rig.arrive("a", tokens=10)
    rig.arrive("b", tokens=10)
    rig.port.does_not_fit.add("a")
    rig.turn(fused(64, admit=("a", "b")))
    seen = rig.turn(IDLE)
    assert [entry.request_id for entry in seen.waiting] == ["a"]
    assert held(rig) == [(10, 0, 1, 0)]
    assert rig.ledger.get("a").prefill_start_s is None


def test_the_first_token_comes_with_the_step_that_completes_the_prompt():
    rig = Rig()
    request = rig.arrive("a", tokens=10, outputs=2)
    rig.turns([fused(8, admit=("a",)), fused(8), IDLE])
    assert request.output_ids == [0]
    rig.turns([fused(0, decode_steps=1), IDLE])
    (record,) = rig.records
    assert (record.outcome, record.output_tokens, record.tbt_gaps) == ("finished", 2, 1)


def test_a_fused_step_is_refused_when_a_layerwise_prefill_is_under_way():
    rig = Rig()
    rig.arrive("a")
    rig.turn(split(partition_id=0, admit=("a",), prefill_layers=1))
    with pytest.raises(EngineInvariantError):
        rig.turn(fused(64))


def test_no_gap_is_running_when_the_first_to_decode_are_still_prefilled():
    rig = Rig()
    rig.clock.now_s += 100.0
    rig.arrive("a", tokens=10, outputs=100)
    rig.turn(fused(64, admit=("a",)))
    rig.arrive("b", outputs=100)
    seen = rig.turn(fused(64, admit=("b",)), after_s=0.01)
    assert seen.decode.bs == 1
    assert seen.now_s - seen.last_token_s == pytest.approx(0.01)


def test_the_engine_goes_from_fused_to_split_and_back_without_waiting():
    rig = Rig()
    rig.arrive("a", tokens=10, outputs=100)
    rig.turn(fused(64, admit=("a",)))
    rig.arrive("b", outputs=100)
    rig.turn(split(admit=("b",), decode_steps=1, prefill_layers=4))
    rig.device.finish_prefill()
    rig.turn(fused(0, decode_steps=1))
    assert [entry[0] for entry in rig.port.log] == [
        *("group", "fused", "group", "decode", "layers", "layers", "read"),
        *("finish", "group", "decode", "read", "first"),
    ]
    assert rig.device.blocked == []
