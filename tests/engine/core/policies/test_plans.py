"""What a policy would do is one of the plans that it names: what people are told is what is decided."""

from __future__ import annotations

import pytest
from engines import PROFILE
from hypothesis import given, settings
from hypothesis import strategies as st
from observations import linear_context, observe, running_prefill, waiting

from pdmuxd.engine.core.policies.base import AnyPolicy, Plan, PlanKind
from pdmuxd.engine.core.policies.registry import build_policy
from pdmuxd.engine.core.types import Decision, Mode, Observation, PrefillMode, Reason

SPECS = (
    "auto",
    "auto:noguard+nolookahead",
    "muxwise",
    "muxwise:whole",
    "drift",
    "duet",
    "chunked:512",
    "prefill-first",
    "upstream",
    "static:96,36",
    "pla/muxwise",
    "pla/auto",
    "auto:nosplit",
    "auto:nofuse",
    "slack/duet",
    "edf/chunked:512",
)
BY_LAYERS = ("auto", "auto:noguard+nolookahead", "muxwise", "drift", "upstream", "static:96,36")


@st.composite
def arrivals(draw: st.DrawFn, policy: AnyPolicy) -> Observation:
    """Prompts that wait, beside a decode batch or alone; or one that is under way by layers."""
    decode_bs = draw(st.integers(0, 100))
    prefill = None
    group = policy.table.decode_only
    if policy.name in BY_LAYERS and draw(st.booleans()):
        launched = draw(st.integers(0, 31))
        prefill = running_prefill(draw(st.integers(1, 60_000)), launched=launched, done=launched)
    lengths = draw(st.lists(st.integers(1, 40_000), max_size=3 if prefill is None else 0))
    return observe(
        partition_id=group,
        decode_bs=decode_bs,
        decode_reused_tokens=decode_bs * draw(st.integers(1, 8000)),
        tbt_target_s=draw(st.floats(0.004, 0.5)) if decode_bs else None,
        prefill=prefill,
        queue=tuple(waiting(i + 1, n, deadline_s=1e6) for i, n in enumerate(lengths)),
        now_s=50.0,
    )


def carried_out(decision: Decision, plans: tuple[Plan, ...]) -> list[Plan]:
    """The plans that the decision may be of."""
    is_split = decision.mode is Mode.SPLIT
    return [
        plan
        for plan in plans
        if (plan.kind is PlanKind.SPLIT) == is_split and plan.partition_id == decision.partition_id
    ]


@pytest.mark.parametrize("spec", SPECS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_decision_is_one_of_the_plans(spec: str, data: st.DataObject) -> None:
    context = data.draw(st.sampled_from([linear_context(), PROFILE.policy_context]))
    policy = build_policy(spec, context)
    obs = data.draw(arrivals(policy))
    decision, _ = policy.decide(obs, policy.initial_state())
    plans = policy.plans(obs, policy.initial_state())
    if not obs.waiting and obs.prefill is None:
        assert plans == ()
        return
    if "auto" in spec and obs.prefill is None and not decision.admit:
        # Whoever waits for a slot in time is told what would be; pla shows its inner policy nobody then.
        assert plans or spec == "pla/auto"
        return
    found = carried_out(decision, plans)
    assert found
    if decision.numbers.predicted_decode_s is not None:
        assert decision.numbers.predicted_decode_s in [p.numbers.predicted_decode_s for p in found]
    if decision.numbers.predicted_fused_s is not None and decision.mode is Mode.FUSED:
        assert decision.numbers.predicted_fused_s == found[0].numbers.predicted_fused_s
    if spec.startswith(("auto", "muxwise", "drift")) and decision.mode is Mode.SPLIT and obs.decode.bs:
        left = 32 - (obs.prefill.layers_launched if obs.prefill is not None else 0)
        assert decision.prefill_layers == min(left, found[0].prefill_layers)
        assert decision.decode_steps == found[0].decode_steps


@settings(deadline=None)
@given(
    decode_bs=st.integers(1, 128),
    context=st.integers(1, 8192),
    new=st.integers(1, 16384),
    tbt=st.floats(0.004, 0.2),
)
def test_the_best_fit_is_the_first_plan_that_meets_the_target(
    decode_bs: int, context: int, new: int, tbt: float
) -> None:
    policy = build_policy("muxwise", PROFILE.policy_context)
    obs = observe(
        partition_id=policy.table.decode_only,
        decode_bs=decode_bs,
        decode_reused_tokens=decode_bs * context,
        tbt_target_s=tbt,
        queue=(waiting(1, new),),
    )
    decision, plans = policy.decide(obs, policy.initial_state())[0], policy.plans(obs, policy.initial_state())
    assert [plan.partition_id for plan in plans] == list(policy.table.split_indices)
    meeting = [plan for plan in plans if plan.meets]
    assert decision.partition_id == (meeting[0] if meeting else plans[-1]).partition_id
    assert decision.reason is (Reason.BEST_FIT if meeting else Reason.TBT_INFEASIBLE)
    assert all(plan.meets == (plan.worst_gap_s <= tbt) for plan in plans if plan.worst_gap_s is not None)


def test_auto_takes_the_plan_that_finishes_the_prompt_sooner() -> None:
    policy = build_policy("auto", PROFILE.policy_context)
    for new_tokens in (50, 200, 600, 1500, 4000, 10_000, 60_000):
        queue = (waiting(1, new_tokens, deadline_s=1e6),)
        obs = observe(
            partition_id=policy.table.decode_only, decode_bs=32, decode_reused_tokens=40_000, queue=queue
        )
        decision = policy.decide(obs, policy.initial_state())[0]
        plans = policy.plans(obs, policy.initial_state())
        (fused,) = (plan for plan in plans if plan.kind is PlanKind.FUSED)
        split = next(plan for plan in plans if plan.kind is PlanKind.SPLIT and plan.meets)
        assert fused.finish_s is not None
        assert split.finish_s is not None
        if decision.mode is Mode.FUSED:
            waited_s = split.numbers.predicted_decode_s or 0.0
            assert fused.finish_s <= split.finish_s + waited_s
        else:
            assert split.finish_s < fused.finish_s or fused.finish_s > 2.0


def test_a_chunk_that_has_begun_has_no_plan_but_to_go_on() -> None:
    policy = build_policy("auto", linear_context())
    obs = observe(decode_bs=10, prefill=running_prefill(9000, mode=PrefillMode.CHUNKED))
    (plan,) = policy.plans(obs, policy.initial_state())
    decision = policy.decide(obs, policy.initial_state())[0]
    assert (plan.kind, plan.prompt_tokens + 10) == (PlanKind.FUSED, decision.token_budget)


def test_waiting_for_company_is_a_plan_too() -> None:
    policy = build_policy("pla+nodeadline/muxwise", linear_context())
    obs = observe(queue=(waiting(1, 100),), now_s=0.01)
    assert [plan.kind for plan in policy.plans(obs, policy.initial_state())] == [PlanKind.WAIT]
    assert policy.decide(obs, policy.initial_state())[0].reason is Reason.HOLD_FOR_BATCH
