"""What is said of a TBT target in advance is what the best-fit rule then does."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdmuxd.engine.core.forecast import Forecast, Load, forecast
from pdmuxd.engine.core.fusing import FUSED_MARGIN
from pdmuxd.engine.core.policies.registry import build_policy
from pdmuxd.engine.core.types import (
    DecodeShape,
    EngineLimits,
    Observation,
    PrefillShape,
    Reason,
    WaitingRequest,
)
from pdmuxd.engine.emulator.profile import load_profile

PROFILE = load_profile("h200-llama-8b")
CONTEXT = PROFILE.policy_context
MUXWISE = build_policy("muxwise", CONTEXT)

targets = st.floats(0.004, 0.2)
loads = st.builds(
    lambda new, reused, bs, context: Load(
        prefill=PrefillShape.of([(new, reused)]), decode=DecodeShape(bs=bs, reused_tokens=bs * context)
    ),
    new=st.integers(1, 16384),
    reused=st.integers(0, 32768),
    bs=st.integers(1, 128),
    context=st.integers(1, 8192),
)


def ask(target_s: float, load: Load) -> Forecast:
    return forecast(target_s, load, MUXWISE.table.groups, CONTEXT.latency, CONTEXT.guard.ratio)


def observe(target_s: float, load: Load) -> Observation:
    """The same load as an engine would show it, in the group that switches for free."""
    waiting = WaitingRequest(
        request_id="r",
        tenant="chat",
        arrival_s=0.0,
        deadline_s=1e6,
        new_tokens=load.prefill.new_tokens,
        reused_tokens=load.prefill.reused_tokens,
        tbt_target_s=target_s,
    )
    return Observation(
        now_s=1.0,
        partition_id=MUXWISE.table.decode_only,
        decode=load.decode,
        tbt_target_s=target_s,
        last_token_s=1.0,
        prefill=None,
        preempted=None,
        waiting=(waiting,),
        waiting_count=1,
        kv_free_tokens=10**9,
        limits=EngineLimits(),
        settings_version=1,
    )


@settings(deadline=None)
@given(target_s=targets, load=loads)
def test_the_split_is_the_one_that_the_policy_takes_when_asked_for_the_same_load(
    target_s: float, load: Load
) -> None:
    decision, _ = MUXWISE.decide(observe(target_s, load), MUXWISE.initial_state())
    said = ask(target_s, load)
    assert said.chosen is not None
    assert (said.chosen.partition_id, said.reason) == (decision.partition_id, decision.reason)
    assert decision.numbers.tbt_slack_s == pytest.approx(target_s - said.chosen.worst_s)


@settings(deadline=None)
@given(target_s=targets, load=loads, factor=st.floats(1.0, 5.0))
def test_decode_gets_no_more_sms_when_the_target_is_looser(
    target_s: float, load: Load, factor: float
) -> None:
    strict, loose = ask(target_s, load).chosen, ask(target_s * factor, load).chosen
    assert strict is not None
    assert loose is not None
    assert loose.partition.decode_sms <= strict.partition.decode_sms


@settings(deadline=None)
@given(target_s=targets, load=loads)
def test_a_fused_batch_is_within_its_share_of_the_target_when_there_is_one(
    target_s: float, load: Load
) -> None:
    fused = ask(target_s, load).fused
    assert (fused.step_s is None) == (fused.token_budget == 0)
    assert fused.token_budget <= load.prefill.new_tokens
    if fused.step_s is not None:
        assert fused.step_s <= target_s * FUSED_MARGIN


def test_the_most_decode_sms_are_named_when_no_split_meets_the_target() -> None:
    said = ask(
        0.001, Load(prefill=PrefillShape.of([(2048, 0)]), decode=DecodeShape(bs=64, reused_tokens=10**6))
    )
    assert said.reason is Reason.TBT_INFEASIBLE
    assert said.chosen is said.groups[-1]
    assert said.fused.step_s is None


def test_there_is_no_answer_when_the_device_has_no_split() -> None:
    load = Load(prefill=PrefillShape.of([(1, 0)]), decode=DecodeShape(bs=1, reused_tokens=1))
    said = forecast(1.0, load, (), CONTEXT.latency, CONTEXT.guard.ratio)
    assert (said.chosen, said.groups, said.reason) == (None, (), Reason.TBT_INFEASIBLE)
