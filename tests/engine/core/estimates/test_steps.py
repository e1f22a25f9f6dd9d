"""What is learned of one kind of work, and what of it holds for another."""

from __future__ import annotations

from dataclasses import replace

import pytest
from observations import linear_context, observe, took

from pdmuxd.engine.core.estimates.latency_margin import LatencyMargin
from pdmuxd.engine.core.estimates.steps import ASSUMED_RISE, GUARD_RISE, StepEstimates
from pdmuxd.engine.core.guard import ContentionGuard, guard_cell
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
    assert state.estimates.prefill_ratio == pytest.approx(SLOWER, rel=0.01)


def test_what_prefills_by_layers_took_counts_for_more_than_fused_steps_when_many_were_seen() -> None:
    policy, state = after_fused_steps(1.0)
    prefill = PrefillFeedback(sms=132, was_alone=True, predicted_s=1.0, measured_s=0.9)
    for _ in range(100):
        state = policy.learn_prefill(prefill, state)
    for _ in range(300):
        state = policy.learn(took(Mode.FUSED, predicted_s=0.1, measured_s=0.12), state)
    assert state.estimates.prefill_ratio == pytest.approx(0.9, abs=0.02)


def test_the_first_prefills_by_layers_count_for_more_than_what_was_assumed() -> None:
    policy, state = after_fused_steps(SLOWER)
    prefill = PrefillFeedback(sms=132, was_alone=True, predicted_s=1.0, measured_s=1.0)
    for _ in range(4):
        state = policy.learn_prefill(prefill, state)
    assert state.estimates.prefill_ratio == pytest.approx(1.0 + (SLOWER - 1.0) / 5, abs=0.002)


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
    assert state.estimates.guard.ratio(16, prefill, decode) == pytest.approx(1.2 * before, rel=0.02)
    within = took(Mode.SPLIT, partition_id=1, predicted_s=0.01, measured_s=0.01 * 1.19 * before)
    assert policy.learn(within, state).estimates.guard is state.estimates.guard


def test_the_guard_stays_as_profiled_when_the_device_has_proved_faster() -> None:
    policy, state = after_fused_steps(0.9)
    assert state.estimates.guard is policy.context.guard


def test_a_fused_step_behind_a_split_says_nothing_of_fused_steps() -> None:
    """It waits for layers in flight: on an H100 they took 1.13 of their prediction (p50), others 1.00."""
    policy = build_policy("auto", linear_context())
    state = policy.initial_state()
    before = state.estimates.fused
    for _ in range(100):
        seen = replace(took(Mode.FUSED, predicted_s=0.1, measured_s=0.13), follows_split=True)
        state = policy.learn(seen, state)
    after = state.estimates.fused
    assert after.ratio == state.estimates.prefill_ratio == 1.0
    assert after.sizes.ratios == before.sizes.ratios
    assert after.margin.ratio > before.margin.ratio  # tokens were late


def after_one(guard: ContentionGuard, *, measured_s: float) -> StepEstimates:
    """What a decode step on 16 SMs beside a prefill teaches, which alone takes 10 ms."""
    step = took(Mode.SPLIT, partition_id=1, predicted_s=0.01, measured_s=measured_s)
    return StepEstimates(guard=guard).after(step, 16, uses_guard=True)


def test_one_stall_raises_a_known_cell_by_a_tenth_at_most_and_is_remembered() -> None:
    step = took(Mode.SPLIT, partition_id=1, predicted_s=0.01, measured_s=0.0)
    cell = guard_cell(16, step.prefill, step.decode)
    guard = ContentionGuard(default_ratio=1.1, cells={cell: 1.2})
    after = after_one(guard, measured_s=0.032)
    assert after.guard.cells[cell] == pytest.approx(1.2 * (1.0 + GUARD_RISE))
    assert after.fused.margin.expected_stall_s == pytest.approx(0.02)
    within = after_one(guard, measured_s=0.0125)
    assert within.guard.cells[cell] == pytest.approx(1.25)
    assert within.fused.margin == LatencyMargin()


def test_a_step_beyond_what_was_only_assumed_is_no_stall() -> None:
    after = after_one(ContentionGuard(default_ratio=1.2), measured_s=0.032)
    assert after.guard.assumed[16].mean == pytest.approx(1.2 * (1.0 + ASSUMED_RISE))
    assert after.fused.margin == LatencyMargin()


def test_no_guard_is_raised_and_no_stall_remembered_where_no_guard_is_used() -> None:
    step = took(Mode.SPLIT, partition_id=1, predicted_s=0.01, measured_s=0.032)
    before = StepEstimates(guard=ContentionGuard(default_ratio=1.2))
    after = before.after(step, 16, uses_guard=False)
    assert after.guard is before.guard
    assert after.fused.margin == LatencyMargin()
    assert after.breaker.wrong_share > 0.0
