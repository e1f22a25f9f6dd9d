"""What a policy keeps of what it has learned when its predictors change, and what it forgets."""

from __future__ import annotations

from dataclasses import replace

import pytest
from observations import linear_context, observe, sampled, took, waiting

from pdmuxd.engine.core.guard import ContentionGuard
from pdmuxd.engine.core.policies.autostate import AutoState
from pdmuxd.engine.core.policies.base import PolicyContext
from pdmuxd.engine.core.policies.registry import build_policy, known_policies
from pdmuxd.engine.core.queueing import QueueState
from pdmuxd.engine.core.types import Mode, PrefillSample

BEFORE = linear_context()
SLOW_SPLIT = took(Mode.SPLIT, partition_id=1, predicted_s=0.01, measured_s=0.018)
SAMPLE = PrefillSample(new_tokens=1000, reused_tokens=10, compute_s=0.1, memory_s=0.01)


def with_guard(default_ratio: float) -> PolicyContext:
    return replace(BEFORE, guard=ContentionGuard(default_ratio=default_ratio))


def learned_by_auto() -> AutoState:
    """The guard raised, predictions found wrong, margins widened, credit earned."""
    policy = build_policy("auto", BEFORE)
    state = policy.learn(SLOW_SPLIT, policy.initial_state())
    for _ in range(20):
        state = policy.learn(took(Mode.FUSED, predicted_s=0.04, measured_s=0.1), state)
    assert isinstance(state, AutoState)
    return replace(state, queue=QueueState(aged_credit_tokens=80.0))


def test_all_that_was_learned_stays_when_the_profile_is_refined() -> None:
    state = learned_by_auto()
    adopted = build_policy("auto", with_guard(1.3)).adopt(state, BEFORE, is_refined=True)
    assert adopted == replace(state, estimates=replace(state.estimates, guard=adopted.estimates.guard))
    assert adopted.estimates.guard.default_ratio == 1.3
    assert adopted.estimates.guard.assumed == state.estimates.guard.assumed
    (seen,) = adopted.estimates.guard.assumed.values()
    assert seen.mean == pytest.approx(1.8), "seen here, and not stored yet"


def test_what_is_of_predictions_is_forgotten_when_another_profile_comes() -> None:
    state = learned_by_auto()
    policy = build_policy("auto", with_guard(1.4))
    adopted = policy.adopt(state, BEFORE, is_refined=False)
    assert state.estimates.breaker.is_open
    assert adopted == replace(policy.initial_state(), queue=QueueState(aged_credit_tokens=80.0))


@pytest.mark.parametrize("inner", ["muxwise", "auto", "chunked:512"])
@pytest.mark.parametrize("is_refined", [False, True])
def test_what_was_measured_of_prefills_stays_whatever_is_predicted(inner: str, is_refined: bool) -> None:
    policy = build_policy(f"pla/{inner}", BEFORE)
    state = policy.learn_prefill(sampled(SAMPLE), policy.learn(SLOW_SPLIT, policy.initial_state()))
    adopted = build_policy(f"pla/{inner}", with_guard(1.4)).adopt(state, BEFORE, is_refined=is_refined)
    assert adopted.samples == state.samples
    assert adopted.samples.count == 1
    inside = build_policy(inner, with_guard(1.4)).adopt(state.inner, BEFORE, is_refined=is_refined)
    assert adopted.inner == inside


@pytest.mark.parametrize("spec", [info.example for info in known_policies()])
@pytest.mark.parametrize("is_refined", [False, True])
def test_any_policy_decides_as_a_new_one_does_when_nothing_was_learned(spec: str, is_refined: bool) -> None:
    policy = build_policy(spec, with_guard(1.4))
    adopted = policy.adopt(build_policy(spec, BEFORE).initial_state(), BEFORE, is_refined=is_refined)
    assert adopted == policy.initial_state()
    obs = observe(decode_bs=10, partition_id=1, queue=(waiting(1, 5000),))
    assert policy.decide(obs, adopted) == policy.decide(obs, policy.initial_state())
