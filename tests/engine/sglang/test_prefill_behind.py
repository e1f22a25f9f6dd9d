"""The next split prefill is launched behind the one whose layers all are on the device: see `Planner`."""

import pytest
from engine_rig import Rig, fused, split

from pdmuxd.engine.core.errors import EngineInvariantError

COLOCATED = {"decode_steps": 1}


def ending(rig, *waiting):
    """All layers of a's prefill were launched beside the step in flight, others wait, z decodes."""
    rig.decoding("z", outputs=100)
    first = rig.arrive("a", tokens=30)
    rig.turn(split(admit=("a",), prefill_layers=4, **COLOCATED))
    for name in waiting:
        rig.arrive(name)
    rig.port.log.clear()
    rig.script.seen.clear()
    return first


def both(rig, colocated_step, behind):
    """A turn in which the policy is asked twice."""
    rig.script.answers.extend((colocated_step, behind))
    rig.turn()


def test_layers_of_the_next_prefill_follow_those_of_the_one_that_ends():
    rig = Rig()
    ending(rig, "b")
    both(rig, split(**COLOCATED), split(admit=("b",), prefill_layers=2, **COLOCATED))
    assert rig.port.log == [("decode", "z"), ("layers", 2, "b"), ("read", "z")]
    rig.device.finish_prefill(marks=4)
    rig.port.log.clear()
    rig.turn(split(prefill_layers=2, **COLOCATED))
    assert rig.port.log[:3] == [("finish", "a"), ("decode", "z", "a"), ("layers", 2, "b")]
    rig.device.finish_prefill()
    rig.turn(split(**COLOCATED))
    assert ("finish", "b") in rig.port.log
    assert not rig.loop.prefill.members()


def test_the_policy_sees_the_engine_as_it_will_be_when_the_prefill_has_ended():
    rig = Rig()
    ending(rig, "b")
    both(rig, split(**COLOCATED), split(admit=("b",), prefill_layers=2, **COLOCATED))
    colocated_step, behind = rig.script.seen
    assert colocated_step.prefill is not None
    assert colocated_step.decode.bs == 1
    assert behind.prefill is None
    assert behind.preempted is None
    assert [request.request_id for request in behind.waiting] == ["b"]
    assert behind.decode.bs == 2
    assert behind.decode.reused_tokens == colocated_step.decode.reused_tokens + 30
    assert behind.decode.max_context_tokens == 30


def test_first_tokens_of_the_one_that_ends_wait_for_no_prefill():
    rig = Rig()
    ending(rig, "b")
    both(rig, split(**COLOCATED), split(admit=("b",), prefill_layers=4, **COLOCATED))
    rig.device.finish_prefill(marks=4)
    rig.port.log.clear()
    rig.turn(split(**COLOCATED))
    assert [entry for entry in rig.port.log if entry[0] == "first"] == [("first", "a")]
    assert len(rig.loop.prefill.members()) == 1


@pytest.mark.parametrize(
    "answer",
    [fused(512, decode_steps=1, admit=("b",)), split(**COLOCATED), split(admit=("b",), prefill_layers=4)],
)
def test_anything_but_a_split_beside_decode_waits_for_the_end(answer):
    rig = Rig()
    ending(rig, "b")
    rig.loop.state.policy_state = "at first"
    decide = rig.script.decide
    rig.script.decide = lambda obs, state: (decide(obs, state)[0], f"{state}, asked")
    rig.script.answers.extend((split(**COLOCATED), answer))
    rig.turn()
    assert rig.port.log == [("decode", "z"), ("read", "z")]
    assert [request.rid for request in rig.port.waiting] == ["b"]
    assert rig.loop.state.policy_state == "at first, asked", "as the first answer left it"


def test_a_prefill_that_the_device_must_be_idle_for_waits_for_the_end():
    behind = split(admit=("b",), prefill_layers=2, **COLOCATED)
    for memory_tokens in (10, 9):
        rig = Rig()
        ending(rig, "b")  # of 10 tokens
        rig.port.memory_tokens = memory_tokens
        both(rig, split(**COLOCATED), behind)
        assert (("layers", 2, "b") in rig.port.log) is (memory_tokens == 10)
    assert rig.port.log == [("decode", "z"), ("read", "z")], "decode would wait for layers of a"
    rig.device.finish_prefill(marks=4)
    rig.port.log.clear()
    rig.turn(behind)
    assert rig.port.log[:3] == [("finish", "a"), ("decode", "z", "a"), ("layers", 2, "b")]


def test_nobody_is_asked_when_nobody_waits():
    rig = Rig()
    ending(rig)
    rig.turn(split(**COLOCATED))
    assert len(rig.script.seen) == 1


def test_nobody_is_asked_while_layers_are_left_or_older_ones_are_on_the_device():
    rig = Rig()
    rig.decoding("z", outputs=100)
    rig.arrive("a")
    rig.turn(split(admit=("a",), prefill_layers=2, **COLOCATED))
    rig.arrive("b")
    rig.script.seen.clear()
    rig.turn(split(prefill_layers=2, **COLOCATED))
    assert len(rig.script.seen) == 1, "two layers are left"
    rig.turn(split(**COLOCATED))
    assert len(rig.script.seen) == 2, "the first two should be done by now, and are not"
    rig.turn(split(**COLOCATED))
    assert len(rig.script.seen) == 4, "the last two, too"


def test_a_third_prefill_waits_for_the_first():
    rig = Rig()
    ending(rig, "b", "c")
    both(rig, split(**COLOCATED), split(admit=("b",), prefill_layers=4, **COLOCATED))
    rig.script.seen.clear()
    rig.turn(split(**COLOCATED))
    assert len(rig.script.seen) == 1
    with pytest.raises(EngineInvariantError, match="behind"):
        rig.loop.prefill.let_end()


def test_pausing_finishes_both_in_their_order():
    rig = Rig()
    ending(rig, "b")
    both(rig, split(**COLOCATED), split(admit=("b",), prefill_layers=2, **COLOCATED))
    rig.port.log.clear()
    rig.loop.drain()
    assert [entry for entry in rig.port.log if entry[0] in {"finish", "layers"}] == [
        ("finish", "a"),
        ("layers", 2, "b"),
        ("finish", "b"),
    ]
    assert not rig.loop.is_busy


def test_the_one_behind_is_dropped_while_the_other_ends():
    rig = Rig()
    ending(rig, "b")
    both(rig, split(**COLOCATED), split(admit=("b",), prefill_layers=2, **COLOCATED))
    behind = rig.loop.prefill.running
    rig.abort(behind.batch.reqs[0])
    rig.device.finish_prefill()
    rig.device.blocked.clear()
    rig.turn(split(**COLOCATED))
    assert ("finish", "a") in rig.port.log
    assert not rig.loop.prefill.members()
    assert not rig.device.blocked


def test_what_does_not_fit_after_all_leaves_the_first_to_end():
    rig = Rig()
    ending(rig, "b")
    rig.port.does_not_fit.add("b")
    both(rig, split(**COLOCATED), split(admit=("b",), prefill_layers=2, **COLOCATED))
    assert rig.port.log == [("decode", "z"), ("read", "z")]
    seen = rig.turn(split(**COLOCATED))
    assert seen is not None
    assert seen.prefill is not None, "the one that ends is still a prefill under way"
    rig.device.finish_prefill()
    rig.turn(split(**COLOCATED))
    assert ("finish", "a") in rig.port.log
