"""A prompt in chunks that sits steps out or has what others leave, on a fake scheduler: its end, and who is
not taken ahead of it."""

import pytest
from engine_rig import IDLE, Rig, fused

from pdmuxd.engine.link.messages import IterationRecord


def sitting_out(rig, *names):
    """A prompt in chunks, and those that overtake it one step after the other; each decodes on."""
    long = rig.arrive("long", tokens=100)
    rig.turn(fused(16, admit=("long",)))
    for name in names:
        rig.arrive(name, outputs=100)
    for name in names:
        rig.turn(fused(16, admit=(name,), preempt=True, decode_steps=1))
    return long


def test_a_prompt_in_chunks_goes_on_where_it_was_when_others_overtook_it():
    rig = Rig()
    sitting_out(rig, "a", "b")
    seen = rig.turn(fused(34, decode_steps=1))
    assert (seen.prefill.requests[0].request_id, seen.prefill.done_tokens) == ("long", 16)
    assert rig.launches("fused")[-1] == (34, "long", "a", "b")


def test_a_prompt_in_chunks_has_what_others_leave_when_they_go_first():
    """Of 32 tokens the others have 20; the record and the next look say what the step held."""
    rig = Rig()
    rig.arrive("long", tokens=100)
    rig.turn(fused(16, admit=("long",)))
    for name in ("a", "b"):
        rig.arrive(name, tokens=10, outputs=100)
    rig.turn(fused(32, admit=("a", "b"), chunk_last=True))
    assert rig.launches("fused")[-1] == (32, "a", "b", "long")
    seen = rig.turn(fused(34, decode_steps=1))
    assert (seen.prefill.requests[0].request_id, seen.prefill.done_tokens) == ("long", 28)
    assert seen.decode.bs == 2
    rig.turn(IDLE)
    step = rig.link.of(IterationRecord)[1]
    assert (step.prefill_new_tokens, step.prefill_bs) == (32, 3)
    assert (step.prefill_sum_new_squared, step.prefill_sum_new_times_reused) == (344, 12 * 16)


def test_a_prompt_in_chunks_ends_once_when_it_is_aborted_while_it_sits_out():
    rig = Rig()
    long = sitting_out(rig, "a", "b", "c")
    rig.abort(long)
    rig.turn(fused(64, admit=(), decode_steps=1))
    rig.turns([fused(0, decode_steps=1), IDLE])
    assert [(record.request_id, record.outcome) for record in rig.records] == [("long", "aborted")]
    assert len(rig.ledger) == 3


def test_a_prompt_in_chunks_ends_once_when_it_is_aborted_with_a_chunk_in_flight():
    rig = Rig()
    long = rig.arrive("long", tokens=100)
    rig.turn(fused(16, admit=("long",)))
    rig.abort(long)
    rig.turn(fused(16))
    rig.turns([IDLE, IDLE])
    assert [(record.request_id, record.outcome) for record in rig.records] == [("long", "aborted")]
    assert len(rig.ledger) == 0


def test_a_step_is_not_said_to_hold_a_chunk_that_was_aborted_while_it_was_formed():
    rig = Rig()
    rig.decoding("z", outputs=100)
    long = rig.arrive("long", tokens=100)
    rig.turn(fused(16, admit=("long",), decode_steps=1))
    rig.abort(long)
    rig.turns([fused(16, decode_steps=1), IDLE])
    steps = rig.link.of(IterationRecord)[-2:]
    assert [(step.decode_bs, step.prefill_new_tokens) for step in steps] == [(1, 15), (1, 0)]


@pytest.mark.parametrize("ahead", ["preempt", "chunk_last"])
def test_who_was_not_taken_ahead_of_a_chunk_is_not_seen_until_kv_was_given_back(ahead):
    rig = Rig()
    decoding = rig.decoding("z", "y", outputs=100)
    rig.arrive("long", tokens=500)
    rig.turn(fused(18, admit=("long",), decode_steps=1))
    rig.port.does_not_fit.add("a")
    rig.arrive("a")
    seen = rig.turn(fused(18, admit=("a",), decode_steps=1, **{ahead: True}))
    assert [entry.request_id for entry in seen.waiting] == ["a"]
    for _ in range(3):
        seen = rig.turn(fused(18, decode_steps=1))
        assert (seen.waiting, seen.waiting_count) == ((), 1)
    rig.port.does_not_fit.clear()
    rig.abort(decoding[0])
    rig.turn(fused(18, decode_steps=1))
    rig.turn(fused(18, decode_steps=1))
    seen = rig.turn(fused(18, admit=("a",), decode_steps=1, **{ahead: True}))
    assert [entry.request_id for entry in seen.waiting] == ["a"]
    taken = {"preempt": (1 << 30, "a", "y"), "chunk_last": (18, "a", "long", "y")}
    assert rig.launches("fused")[-1] == taken[ahead]
