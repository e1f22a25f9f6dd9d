"""What the daemon learns of the engine's steps is what the engine's policy has learned of them."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from engines import PROFILE, engine, request, run_until_idle
from msgspec import structs
from telemetry_feeds import step

from pdmuxd.controlplane.telemetry.decisions import Decisions
from pdmuxd.controlplane.telemetry.learned_steps import LEARNED_FROM, LearnedSteps
from pdmuxd.engine.core.estimates.steps import StepEstimates
from pdmuxd.engine.core.types import Mode
from pdmuxd.engine.emulator.engine import EmulatedEngine
from pdmuxd.engine.emulator.noise import DeviceNoise
from pdmuxd.engine.link.messages import IterationRecord

NOISE = DeviceNoise(bias_ratio=0.2, scatter_ratio=0.1, stall_ratio=0.003, seed=1)


def served(requests: int) -> tuple[EmulatedEngine, list[IterationRecord]]:
    """An engine on a device that is slower than its profile, and what it told."""
    slow = engine("auto", profile=replace(PROFILE, noise=NOISE), step_records=True)
    for number in range(requests):
        long = number % 5 == 0
        slow.submit(request(f"r{number}", 20_000 if long else 700, 40, arrival_s=number / 12), number / 12)
    run_until_idle(slow)
    return slow, slow.drain_records()


def told(records: list[IterationRecord]) -> Decisions:
    decisions = Decisions()
    for record in records:
        decisions.add(record, record.now_s)
    return decisions


@pytest.mark.parametrize("is_asked_often", [True, False])
def test_it_is_what_the_engine_has_learned(*, is_asked_often: bool) -> None:
    slow, records = served(150)
    policy, own = slow._runtime.policy, slow._runtime.state.policy_state.estimates
    decisions = Decisions()
    learned = LearnedSteps(decisions)
    for record in records:
        decisions.add(record, record.now_s)
        if is_asked_often:
            learned.estimates(policy.context)

    found = learned.estimates(policy.context)

    assert {record.mode for record in records} >= {Mode.FUSED, Mode.SPLIT}
    assert own.fused.ratio > 1.1
    assert found.fused.sizes == own.fused.sizes
    assert found.fused.ratio == own.fused.ratio
    assert found.fused.margin.deviation == own.fused.margin.deviation
    assert found.fused.margin == own.fused.margin
    assert found.breaker == own.breaker
    assert found.split_ratio == own.split_ratio
    assert found.prefill_ratio == pytest.approx(own.prefill_ratio, rel=0.01)
    assert found.guard == policy.context.guard


def test_another_engine_begins_with_nothing_learned() -> None:
    slow, records = served(20)
    context = slow._runtime.policy.context
    decisions = told(records)
    learned = LearnedSteps(decisions)
    assert learned.estimates(context) != StepEstimates(guard=context.guard)

    learned.forget()

    assert learned.estimates(context) == StepEstimates(guard=context.guard)


def test_the_newest_steps_count_when_more_came_than_are_looked_at() -> None:
    context = PROFILE.policy_context
    fused = {"mode": "fused", "prefill_layers": 0, "predicted_fused_s": 0.02, "prefill_new_tokens": 508}
    decisions = told([step(**fused, measured_step_s=0.04, margin_ratio=2.5)] * 50)
    learned = LearnedSteps(decisions)
    assert learned.estimates(context).fused.ratio > 1.3
    for _ in range(LEARNED_FROM):
        decisions.add(step(**fused, measured_step_s=0.02, margin_ratio=1.03), 1.0)

    found = learned.estimates(context)

    assert (found.fused.ratio, found.fused.sizes.ratio(512)) == (1.0, 1.0)
    assert found.fused.margin.ratio == pytest.approx(1.024, rel=1e-4)  # as much as a factor of 8 gives


def test_what_decisions_tell_is_taken_over_when_not_all_steps_were_seen() -> None:
    context = PROFILE.policy_context
    fused = {"mode": "fused", "prefill_layers": 0, "predicted_fused_s": 0.02, "prefill_new_tokens": 508}
    seen = [step(**fused, measured_step_s=measured_s) for measured_s in (0.018, 0.022) * 100]
    telling = [structs.replace(one, margin_ratio=1.5, stall_room_s=0.004) for one in seen]

    untold, found = [LearnedSteps(told(records)).estimates(context).fused for records in (seen, telling)]

    assert found.margin_ratio(512) == pytest.approx(1.5, rel=0.01)
    assert found.margin.expected_stall_s == 0.004
    assert untold.margin_ratio(512) < 1.4
    assert untold.margin.expected_stall_s == 0.0


def test_predictions_are_wrong_as_long_as_decisions_say_so() -> None:
    context = PROFILE.policy_context
    fused = {"mode": "fused", "prefill_layers": 0, "predicted_fused_s": 0.02, "prefill_new_tokens": 508}
    wrong = step(**fused, reason="predictions_wrong", measured_step_s=0.05)
    right = step(**fused, reason="fused_fits", measured_step_s=0.05)
    still, again = [wrong] * 9, [wrong, right, right]
    for records, is_open in (([right], False), ([wrong], True), (still, True), (again, False)):
        assert LearnedSteps(told(records)).estimates(context).breaker.is_open is is_open


def test_a_step_of_another_policy_teaches_without_a_margin() -> None:
    context = PROFILE.policy_context
    untold = step(mode="fused", prefill_layers=0, predicted_fused_s=0.02, measured_step_s=0.03)
    found = LearnedSteps(told([untold] * 30)).estimates(context)
    assert found.fused.ratio > 1.2
    others = {field.name for field in fields(StepEstimates)} - {"fused", "prefill_ratio"}
    assert all(getattr(found, name) == getattr(StepEstimates(guard=context.guard), name) for name in others)
