"""A policy's state moves on once for each plan that is carried out, however often it is asked for one."""

import pytest
from engine_rig import IDLE, Rig, split


@pytest.fixture
def rig():
    """A policy whose state is how many of its answers were carried out."""
    rig = Rig()
    decide = rig.script.decide
    rig.script.decide = lambda obs, state: (decide(obs, state)[0], state + 1)
    rig.script.learn = rig.script.learn_prefill = lambda measured, state: state
    rig.loop.state.policy_state = 0
    return rig


def test_the_state_moves_on_once_when_a_decision_is_taken_again(rig):
    rig.arrive("a", tokens=40)
    rig.turn(IDLE)
    assert rig.loop.state.policy_state == 1
    rig.port.cache["a"] = 16
    rig.script.answers.extend([split(admit=("a",), prefill_layers=1)] * 2)
    rig.turn()
    assert len(rig.script.seen) == 3, "its prefix came into the cache while it waited: asked again"
    assert rig.loop.state.policy_state == 2


def test_the_state_moves_on_once_when_the_prefill_behind_is_chosen(rig):
    rig.decoding("z", outputs=100)
    rig.arrive("a", tokens=30)
    rig.turn(split(admit=("a",), prefill_layers=4, decode_steps=1))
    rig.arrive("b")
    before = rig.loop.state.policy_state
    colocated_step, behind = split(decode_steps=1), split(admit=("b",), prefill_layers=2, decode_steps=1)
    rig.script.answers.extend((colocated_step, behind))
    rig.turn()
    assert rig.launches("layers")[-1] == (2, "b")
    assert rig.loop.state.policy_state == before + 1


def test_an_admission_is_charged_once_when_it_is_decided_about_twice():
    """`auto` earns credit for unreachable deadlines: a tenth of the tokens that it admits."""

    def admitting(*, cached_later):
        rig = Rig("auto")
        rig.arrive("first", tokens=4000, outputs=1)
        rig.turn()
        rig.port.cache["a"] = 0 if cached_later else 400
        rig.arrive("a", tokens=800, outputs=1)
        rig.turn()
        rig.port.cache["a"] = 400
        while rig.port.waiting:
            rig.device.finish_prefill()
            rig.turn()
        return rig.loop.state.policy_state.queue.aged_credit_tokens

    assert admitting(cached_later=True) == admitting(cached_later=False) > 0.0
