"""What holds for every policy, whatever it observes.

Invariant 1: the group is one of its table. Invariant 2: no group change while prefill layers are in flight.
Invariants 3 and 4: preemption. Invariant 6: same observation, same decision.
"""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from observations import linear_context, observe, running_prefill, waiting

from pdmuxd.engine.core.crossover import FLOOR_TOKENS
from pdmuxd.engine.core.policies.base import AnyPolicy
from pdmuxd.engine.core.policies.registry import build_policy, known_policies
from pdmuxd.engine.core.types import Decision, EngineLimits, Mode, Observation, PrefillMode, Reason

LAYERWISE = (
    "static:96,36",
    "upstream",
    "muxwise",
    "muxwise:preempt",
    "drift",
    "auto",
    "pla/muxwise",
    "pla/drift",
    "pla/auto",
    "pla+nodeadline/static:96,36",
    "slack/muxwise",
)
CHUNKED = (
    "chunked:512",
    "prefill-first",
    "duet",
    "auto",
    "pla/chunked:512",
    "pla/duet",
    "pla/auto",
    "edf/chunked:512",
)
REORDERING = ("auto", "slack/muxwise", "edf/chunked:512")
"""Do not serve in order of arrival."""
REPEATING = ("auto", "pla/auto")
"""May set a prefill aside again while it stays in time."""
NESTING = ("auto", "pla/auto")
"""May set aside what has overtaken another."""
MAX_SET_ASIDE = 3
PREEMPTING = ("muxwise:preempt", "drift", "auto", "pla/drift", "pla/auto")
ALL = tuple(dict.fromkeys((*LAYERWISE, *CHUNKED)))


def test_every_known_policy_is_tested_here() -> None:
    tested = {re.split("[:/+]", spec)[0] for spec in ALL}
    assert {info.name for info in known_policies()} == tested, "LAYERWISE or CHUNKED lacks the new one"


lengths = st.one_of(st.integers(1, 300), st.integers(1, 40_000))


@st.composite
def observations(draw: st.DrawFn, policy: AnyPolicy) -> Observation:
    modes = [PrefillMode.LAYERWISE] * (policy.name in LAYERWISE) + [PrefillMode.CHUNKED] * (
        policy.name in CHUNKED
    )
    mode = draw(st.sampled_from(modes))
    decode_bs = draw(st.integers(0, 64))
    prefill, set_aside = None, []
    group = draw(st.integers(0, policy.table.decode_only))
    if draw(st.booleans()):
        launched = draw(st.integers(0, 32)) if mode is PrefillMode.LAYERWISE else 0
        prefill = running_prefill(
            draw(st.integers(1, 60_000)),
            launched=launched,
            done=draw(st.integers(0, launched)),
            deadline_s=draw(st.floats(0.0, 100.0)),
            was_preempted=draw(st.booleans()),
            mode=mode,
        )
        if prefill.layers_in_flight and decode_bs and policy.table.split_indices:
            group = draw(st.sampled_from(policy.table.split_indices))
    if policy.name in PREEMPTING and mode is PrefillMode.LAYERWISE:
        most = MAX_SET_ASIDE if policy.name in NESTING else 1
        for tokens in draw(st.lists(st.integers(1, 60_000), max_size=most)):
            due_s = draw(st.floats(0.0, 300.0))
            unit = running_prefill(tokens, launched=4, done=4, deadline_s=due_s, was_preempted=True)
            set_aside.append(unit)
    queue = tuple(waiting(i + 1, n) for i, n in enumerate(draw(st.lists(lengths, max_size=6))))
    return observe(
        partition_id=group,
        decode_bs=decode_bs,
        decode_reused_tokens=decode_bs * draw(st.integers(1, 20_000)),
        tbt_target_s=draw(st.floats(0.001, 1.0)) if decode_bs else None,
        prefill=prefill,
        set_aside=tuple(set_aside),
        queue=queue,
        kv_free_tokens=draw(st.integers(0, 200_000)),
        limits=EngineLimits(max_decode_bs=128, max_set_aside=MAX_SET_ASIDE),
        now_s=draw(st.floats(0.0, 50.0)),
    )


def decide(policy: AnyPolicy, obs: Observation) -> Decision:
    return policy.decide(obs, policy.initial_state())[0]


@pytest.mark.parametrize("spec", ALL)
@settings(max_examples=40)
@given(data=st.data())
def test_the_invariants_hold_when_any_policy_decides(spec: str, data: st.DataObject) -> None:
    policy = build_policy(spec, linear_context())
    obs = data.draw(observations(policy))
    decision = decide(policy, obs)
    group = policy.table.groups[decision.partition_id]

    assert decide(build_policy(spec, linear_context()), obs) == decision  # invariant 6
    if obs.prefill is not None and obs.prefill.layers_in_flight:  # invariant 2
        assert decision.partition_id == obs.partition_id
        assert decision.mode is not Mode.FUSED
    if decision.mode is Mode.SPLIT and decision.decode_steps:
        assert group.decode_sms > 0
    if decision.mode.is_one_batch:
        assert group.decode_sms == policy.table.rules.total_sms, "on whose stream it runs"
        assert (decision.mode is Mode.DECODE) == (decision.reason is Reason.DECODE_ALONE)
    if decision.mode is Mode.FUSED and policy.name != "prefill-first":
        least = 0 if policy.name.endswith(("chunked:512", "duet")) else 1
        assert decision.token_budget - obs.decode.bs >= least, "a chunk makes progress"
    if decision.prefill_layers:
        assert group.prefill_sms > 0
        launched = obs.prefill.layers_launched if obs.prefill and not decision.preempt else 0
        assert launched + decision.prefill_layers <= 32
    if decision.preempt:  # invariants 3 and 4
        assert len(obs.set_aside) < (MAX_SET_ASIDE if policy.name in NESTING else 1)
        assert obs.prefill is not None
        if obs.prefill.was_preempted:
            assert policy.name in REPEATING
            assert obs.now_s < obs.prefill.earliest_deadline_s, "a lost one is overtaken once"
        assert not obs.prefill.layers_in_flight
        assert decision.admit
    waiting_ids = [r.request_id for r in obs.waiting]
    assert len(set(decision.admit)) == len(decision.admit)
    assert set(decision.admit) <= set(waiting_ids)
    if policy.name.startswith("pla"):
        admitted = [r.new_tokens for r in obs.waiting if r.request_id in decision.admit]
        assert max(admitted, default=0) <= FLOOR_TOKENS or len(admitted) == 1, "never short and long together"
        assert decision.prefill_graph is None or decision.prefill_layers in (0, 32)
    elif decision.preempt and policy.name not in REORDERING:
        overtaking = [r for r in obs.waiting if r.request_id in decision.admit]
        passed_over = obs.waiting[: obs.waiting.index(overtaking[0])]
        assert all(r.new_tokens > overtaking[0].new_tokens for r in passed_over), (
            "the first of the batch is the first that is short enough"
        )
        assert list(decision.admit) == [r.request_id for r in overtaking], "in order of arrival"
    elif policy.name not in REORDERING:
        assert list(decision.admit) == waiting_ids[: len(decision.admit)]
    if obs.decode.bs and policy.name != "prefill-first":
        assert decision.decode_steps >= 1, "decode never starves"
    has_work = bool(obs.decode.bs or obs.under_way or obs.waiting)
    if decision.reason is Reason.HOLD_FOR_BATCH:
        assert policy.name.startswith("pla")
        assert decision.wake_at_s is not None
        assert decision.wake_at_s > obs.now_s
        assert not obs.under_way
        assert not obs.decode.bs, "the device does not idle for company"
    else:
        assert (decision.mode is Mode.IDLE) == (not has_work)


@pytest.mark.parametrize("spec", ALL)
def test_nothing_is_decided_when_nothing_is_there(spec: str) -> None:
    policy = build_policy(spec, linear_context())
    decision = decide(policy, observe(partition_id=1))
    assert decision.mode is Mode.IDLE
    assert decision.partition_id == 1


@pytest.mark.parametrize("spec", [*LAYERWISE, "duet"])
def test_each_phase_gets_all_sms_when_it_is_alone(spec: str) -> None:
    policy = build_policy(spec, linear_context())
    assert decide(policy, observe(decode_bs=4, partition_id=1)).partition_id == policy.table.decode_only
    prefill_only = decide(policy, observe(queue=(waiting(1, 1000),), partition_id=1))
    fused = prefill_only.mode is Mode.FUSED
    assert prefill_only.partition_id == (policy.table.decode_only if fused else policy.table.PREFILL_ONLY)
    assert prefill_only.admit == ("r1",)
    assert prefill_only.prefill_layers > 0 or prefill_only.token_budget > 0
