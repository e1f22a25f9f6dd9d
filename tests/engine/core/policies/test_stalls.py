"""Room for stalls, while the queue has time for it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from observations import linear_context, observe, took, waiting, with_margin

from pdmuxd.engine.core.estimates.latency_margin import STALL_STEPS, LatencyMargin
from pdmuxd.engine.core.estimates.misprediction_breaker import MispredictionBreaker
from pdmuxd.engine.core.policies.registry import build_policy
from pdmuxd.engine.core.policies.stalls import stall_room_s
from pdmuxd.engine.core.types import Mode, Reason

LATENCY, SMS = linear_context().latency, linear_context().rules.total_sms
STALL_S = 0.02
STALLS = LatencyMargin(deviation=0.0, stall_s=STALL_S, expected_stalls=STALL_STEPS)


@pytest.mark.parametrize(("deadline_s", "room_s"), [(60.0, 0.02), (0.7, 0.0), (-1.0, 0.0)])
def test_steps_leave_room_while_the_next_in_line_has_time(deadline_s: float, room_s: float) -> None:
    queue = (waiting(1, 10, deadline_s=deadline_s), waiting(2, 10, deadline_s=0.1))
    obs = observe(decode_bs=5, tbt_target_s=0.05, queue=queue)
    assert stall_room_s(obs, queue, STALL_S, LATENCY, SMS) == room_s


def test_no_room_is_left_where_none_helps() -> None:
    queue = (waiting(1, 10, deadline_s=60.0),)
    obs = observe(decode_bs=5, tbt_target_s=0.05, queue=queue)
    assert not stall_room_s(obs, queue, 0.0, LATENCY, SMS), "none was seen of late"
    assert not stall_room_s(obs, queue, 0.03, LATENCY, SMS), "over half of it"
    assert not stall_room_s(observe(queue=queue), queue, STALL_S, LATENCY, SMS), "nothing decodes"


def test_a_fused_step_is_smaller_while_there_is_room() -> None:
    policy = build_policy("auto:nosplit", linear_context())
    state = with_margin(policy.initial_state(), STALLS)
    relaxed, late = (
        observe(decode_bs=5, tbt_target_s=0.14, queue=(waiting(1, 4000, deadline_s=deadline_s),))
        for deadline_s in (100.0, 0.1)
    )
    assert policy.decide(relaxed, state)[0].token_budget < policy.decide(late, state)[0].token_budget


def test_splits_that_take_three_times_their_prediction_are_foreseen_after_a_few() -> None:
    """The guard plans with what they take, so that the breaker stays closed."""
    policy = build_policy("auto", linear_context())
    state = policy.initial_state()
    slow = took(Mode.SPLIT, partition_id=1, predicted_s=0.01, measured_s=0.03)
    for _ in range(40):
        state = policy.learn(slow, state)
    decode_sms = policy.context.table().groups[1].decode_sms
    assert 3.0 <= state.estimates.guard.ratio(decode_sms, slow.prefill, slow.decode) <= 3.3
    assert not state.estimates.breaker.is_open


def test_fused_steps_that_take_three_times_their_prediction_open_the_breaker() -> None:
    policy = build_policy("auto", linear_context())
    state = policy.initial_state()
    for _ in range(40):
        state = policy.learn(took(Mode.FUSED, predicted_s=0.04, measured_s=0.12), state)
    assert state.estimates.breaker.is_open


@pytest.mark.parametrize("decode_bs", [0, 5])
def test_who_is_late_even_by_wrong_predictions_is_refused(decode_bs: int) -> None:
    """Steps take longer than predicted, so a first token that is predicted too late comes later still."""
    policy = build_policy("auto", linear_context())
    state = policy.initial_state()
    breaker = MispredictionBreaker(wrong_share=0.9, is_open=True)
    state = replace(state, estimates=replace(state.estimates, breaker=breaker))
    late, in_time, served = (
        waiting(1, 400, deadline_s=0.001),
        waiting(2, 400, deadline_s=60.0),
        waiting(3, 400, deadline_s=0.001),
    )
    strict = replace(late, refuses_late=True)
    obs = observe(decode_bs=decode_bs, queue=(strict, replace(in_time, refuses_late=True), served))
    decision, _ = policy.decide(obs, state)
    assert decision.reason is Reason.PREDICTIONS_WRONG
    assert decision.refuse == (strict.request_id,)
    assert decision.admit == (in_time.request_id, served.request_id), "in order of arrival"
    alone, _ = policy.decide(observe(decode_bs=decode_bs, queue=(strict,)), state)
    assert (alone.refuse, alone.admit) == ((strict.request_id,), ())
