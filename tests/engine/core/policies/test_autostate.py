"""What `auto` learns of the device from one kind of work, for the other."""

from __future__ import annotations

from dataclasses import replace

import pytest
from observations import linear_context, observe, took

from pdmuxd.engine.core.policies.registry import build_policy
from pdmuxd.engine.core.types import DecodeShape, DecodingRequest, Mode, PrefillFeedback, PrefillShape

SLOWER = 1.08


def after_fused_steps(ratio: float, steps: int = 300):
    policy = build_policy("auto", linear_context())
    state = policy.initial_state()
    for _ in range(steps):
        state = policy.learn(took(Mode.FUSED, predicted_s=0.1, measured_s=0.1 * ratio), state)
    return policy, state


def test_prefills_by_layers_are_not_believed_faster_when_the_device_has_proved_slower() -> None:
    """Else splits are preferred where none was run, and a queue of short prompts keeps them."""
    _, state = after_fused_steps(SLOWER)
    assert state.prefill_correction == pytest.approx(SLOWER, rel=0.01)


def test_what_prefills_by_layers_took_counts_for_more_than_fused_steps_when_many_were_seen() -> None:
    policy, state = after_fused_steps(1.0)
    prefill = PrefillFeedback(sms=132, was_alone=True, predicted_s=1.0, measured_s=0.9)
    for _ in range(100):
        state = policy.learn_prefill(prefill, state)
    for _ in range(300):
        state = policy.learn(took(Mode.FUSED, predicted_s=0.1, measured_s=0.12), state)
    assert state.prefill_correction == pytest.approx(0.9, abs=0.02)


def test_the_first_prefills_by_layers_count_for_more_than_what_was_assumed() -> None:
    policy, state = after_fused_steps(SLOWER)
    prefill = PrefillFeedback(sms=132, was_alone=True, predicted_s=1.0, measured_s=1.0)
    for _ in range(4):
        state = policy.learn_prefill(prefill, state)
    assert state.prefill_correction == pytest.approx(1.0 + (SLOWER - 1.0) / 5, abs=0.002)


def test_more_of_the_relaxed_sit_a_step_out_when_the_device_has_proved_slower() -> None:
    """Steps of decode alone are predicted by the profile, and nothing is learned of them directly."""
    policy, slower = after_fused_steps(1.2)
    asked = tuple(DecodingRequest(f"r{i}", 0.2 if i else 0.02, 100, 10.0) for i in range(40))
    obs = replace(observe(decode_bs=40, tbt_target_s=0.02, now_s=10.0), decoding=asked)
    fast, slow = (len(policy.decide(obs, state)[0].sits_out) for state in (policy.initial_state(), slower))
    assert slow > fast


def test_decode_beside_layers_is_planned_slower_when_the_device_has_proved_slower() -> None:
    """And what is seen of a pair is compared with that, so that its cell is not raised for it again."""
    policy, state = after_fused_steps(1.2)
    decode, prefill = DecodeShape(bs=10, reused_tokens=0), PrefillShape.of([(100, 0)])
    before = policy.context.guard.ratio(16, prefill, decode)
    assert state.guard.ratio(16, prefill, decode) == pytest.approx(1.2 * before, rel=0.02)
    within = took(Mode.SPLIT, partition_id=1, predicted_s=0.01, measured_s=0.01 * 1.19 * before)
    assert policy.learn(within, state).guard is state.guard


def test_the_guard_stays_as_profiled_when_the_device_has_proved_faster() -> None:
    policy, state = after_fused_steps(0.9)
    assert state.guard is policy.context.guard


def test_a_fused_step_behind_a_split_says_nothing_of_fused_steps() -> None:
    """It waits for layers in flight: on an H100 they took 1.13 of their prediction (p50), others 1.00."""
    policy = build_policy("auto", linear_context())
    state = policy.initial_state()
    for _ in range(100):
        seen = replace(took(Mode.FUSED, predicted_s=0.1, measured_s=0.13), follows_split=True)
        state = policy.learn(seen, state)
    assert state.fused_correction == state.prefill_correction == 1.0
    assert state.size_correction.ratios == policy.initial_state().size_correction.ratios
    assert state.latency_margin.ratio > policy.initial_state().latency_margin.ratio  # tokens were late
