"""The baselines: what SGLang's own rule, a fixed split and a fixed token budget decide."""

from __future__ import annotations

from dataclasses import replace

import pytest
from observations import TEN, linear_context, observe, running_prefill, waiting

from pdmuxd.engine.core.guard import ContentionGuard, guard_cell
from pdmuxd.engine.core.policies.registry import build_policy
from pdmuxd.engine.core.types import Decision, Mode, Observation, PrefillMode, PrefillShape, Reason


def decide(spec: str, obs: Observation) -> Decision:
    policy = build_policy(spec, linear_context())
    return policy.decide(obs, policy.initial_state())[0]


def test_upstream_makes_its_own_groups_when_the_device_is_an_h200() -> None:
    # Seen in SGLang 0.5.23's log on an H200: six splits at 8-SM steps.
    table = build_policy("upstream", linear_context()).table
    pairs = [(s.prefill_sms, s.decode_sms) for s in table.splits]
    assert pairs == [(112, 20), (104, 28), (96, 36), (88, 44), (80, 52), (72, 60)]


@pytest.mark.parametrize(
    ("decode_bs", "partition_id"), [(1, 1), (11, 1), (12, 2), (24, 4), (36, 6), (200, 6)]
)
def test_upstream_follows_the_decode_batch_when_a_prefill_starts(decode_bs: int, partition_id: int) -> None:
    decision = decide("upstream", observe(decode_bs=decode_bs, queue=(waiting(1, 1000),)))
    assert (decision.partition_id, decision.reason) == (partition_id, Reason.DECODE_BS_RULE)


def test_upstream_keeps_its_group_when_the_prefill_is_under_way() -> None:
    prefill = running_prefill(1000, launched=4, done=4)
    assert decide("upstream", observe(decode_bs=36, partition_id=1, prefill=prefill)).partition_id == 1


@pytest.mark.parametrize(("new_tokens", "layers"), [(60_000, 1), (8192, 8), (100, 32)])
def test_upstream_launches_by_token_layers_even_when_nothing_decodes(new_tokens: int, layers: int) -> None:
    assert decide("upstream", observe(queue=(waiting(1, new_tokens),))).prefill_layers == layers


def test_static_keeps_its_split_when_the_target_is_missed() -> None:
    decision = decide("static:112,20", observe(decode_bs=100, queue=(waiting(1, 1000),)))
    assert (decision.partition_id, decision.reason) == (1, Reason.FIXED_SPLIT)


def test_chunked_fuses_decode_and_prefill_when_both_wait() -> None:
    decision = decide("chunked:512", observe(decode_bs=8, queue=(waiting(1, 100), waiting(2, 5000))))
    assert (decision.mode, decision.token_budget) == (Mode.FUSED, 512)
    assert (decision.admit, decision.decode_steps) == (("r1", "r2"), 1)


def test_chunked_goes_on_with_its_chunk_when_nothing_else_waits() -> None:
    chunk = running_prefill(5000, mode=PrefillMode.CHUNKED)
    decision = decide("chunked:512", observe(decode_bs=8, prefill=chunk))
    assert (decision.mode, decision.admit, decision.reason) == (Mode.FUSED, (), Reason.TOKEN_BUDGET)


@pytest.mark.parametrize("spec", ["upstream", "static:96,36", "chunked:512"])
def test_the_target_stands_beside_the_decision_though_it_follows_no_prediction(spec: str) -> None:
    decision = decide(spec, observe(decode_bs=10, tbt_target_s=0.03, queue=(waiting(1, 1000),)))
    assert decision.numbers.tbt_target_s == 0.03


def test_static_launches_one_step_and_the_layers_that_cover_it_with_their_predictions() -> None:
    # 10 requests on 36 SMs: 36.7 ms, 45.8 ms with the guard. A layer of 1,000 tokens on 96 SMs: 43 ms.
    decision = decide("static:96,36", observe(decode_bs=10, queue=(waiting(1, 1000),)))
    assert (decision.partition_id, decision.decode_steps, decision.prefill_layers) == (1, 1, 2)
    assert decision.numbers.predicted_decode_s == pytest.approx(0.010 * 132 / 36)
    assert decision.numbers.predicted_prefill_s == pytest.approx(1.0 * 132 / 96)


def test_static_launches_no_layer_when_those_in_flight_cover_the_step() -> None:
    prefill = running_prefill(1000, launched=4, done=2)
    assert decide("static:96,36", observe(decode_bs=10, partition_id=1, prefill=prefill)).prefill_layers == 0


def test_static_gives_a_prefill_all_sms_when_nothing_decodes() -> None:
    decision = decide("static:96,36", observe(queue=(waiting(1, 1000),)))
    assert (decision.partition_id, decision.decode_steps, decision.reason) == (0, 0, Reason.PREFILL_ALONE)


@pytest.mark.parametrize(("decode_bs", "steps"), [(0, 0), (10, 1)])
def test_chunked_takes_a_decode_step_along_when_there_is_one(decode_bs: int, steps: int) -> None:
    assert decide("chunked:512", observe(decode_bs=decode_bs, queue=(waiting(1, 100),))).decode_steps == steps


@pytest.mark.parametrize(("target_s", "meets"), [(0.046, True), (0.045, False)])
def test_static_says_whether_its_one_plan_meets_the_target_in_the_worst_case(
    target_s: float, meets: bool
) -> None:
    policy = build_policy("static:96,36", linear_context())
    obs = observe(decode_bs=10, tbt_target_s=target_s, queue=(waiting(1, 1000),))
    (plan,) = policy.plans(obs, policy.initial_state())
    assert plan.meets is meets
    assert plan.worst_gap_s == pytest.approx(1.25 * 0.010 * 132 / 36)


def test_a_target_is_met_by_what_takes_just_as_long() -> None:
    policy = build_policy("static:96,36", linear_context())
    worst_s = 1.25 * (10 * 0.001 * 132 / 36)
    (plan,) = policy.plans(
        observe(decode_bs=10, tbt_target_s=worst_s, queue=(waiting(1, 1000),)), policy.initial_state()
    )
    assert plan.worst_gap_s == worst_s
    assert plan.meets is True


def test_static_asks_the_guard_about_decodes_sms() -> None:
    cell = guard_cell(36, PrefillShape.of([(1000, 0)]), TEN)
    guard = ContentionGuard(default_ratio=1.25, cells={cell: 2.0})
    policy = build_policy("static:96,36", replace(linear_context(), guard=guard))
    (plan,) = policy.plans(observe(decode_bs=10, queue=(waiting(1, 1000),)), policy.initial_state())
    assert plan.worst_gap_s == pytest.approx(2.0 * 0.010 * 132 / 36)


def test_the_one_plan_of_chunked_follows_its_budget() -> None:
    policy = build_policy("chunked:512", linear_context())
    (plan,) = policy.plans(observe(decode_bs=12, queue=(waiting(1, 1000),)), policy.initial_state())
    assert (plan.reason, plan.prompt_tokens) == (Reason.TOKEN_BUDGET, 500)
