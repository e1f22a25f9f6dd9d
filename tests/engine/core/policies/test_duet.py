"""DuetServe algorithm 1, with latencies worked out by hand (LinearLatency: 1 ms per token or request)."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from observations import linear_context, observe, running_prefill, waiting

from pdmuxd.engine.core.policies.registry import build_policy
from pdmuxd.engine.core.types import Decision, Mode, Observation, PrefillMode, Reason


def decide(obs: Observation, spec: str = "duet:1000") -> Decision:
    policy = build_policy(spec, linear_context())
    return policy.decide(obs, policy.initial_state())[0]


def test_all_sms_are_shared_when_the_fused_batch_meets_the_target() -> None:
    # 20 prompt tokens and 10 decoding requests take 30 ms together.
    decision = decide(observe(decode_bs=10, queue=(waiting(1, 20),)))
    assert (decision.mode, decision.reason) == (Mode.FUSED, Reason.FUSED_FITS)
    assert decision.numbers.predicted_fused_s == pytest.approx(0.030)
    assert decision.numbers.tbt_slack_s == pytest.approx(0.020)


def test_the_split_of_highest_throughput_is_taken_when_the_fused_batch_would_miss_the_target() -> None:
    # 100 + 10 ms fused, for a target of 50. T_d = 1320 / S_d ms, T_p = 13200 / S_p ms, k from their ratio.
    decision = decide(observe(decode_bs=10, queue=(waiting(1, 100),)))
    assert (decision.mode, decision.reason) == (Mode.SPLIT, Reason.HIGHEST_THROUGHPUT)
    assert decision.rejected[0].label == "fused"
    best = (0.0, 0, 0)
    for prefill_sms in range(8, 125, 8):
        decode_s, prefill_s = 1.320 / (132 - prefill_sms), 13.200 / prefill_sms
        if decode_s > 0.050:
            continue
        for k in (int(prefill_s / decode_s), int(prefill_s / decode_s) + 1):
            if k >= 1:
                best = max(best, ((10 * k + 100) / max(k * decode_s, prefill_s), prefill_sms, k))
    split = build_policy("duet:1000", linear_context()).table.groups[decision.partition_id]
    assert (split.prefill_sms, decision.decode_steps) == best[1:]
    assert decision.token_budget == 100


def test_one_step_at_a_time_when_look_ahead_is_off() -> None:
    decision = decide(observe(decode_bs=10, queue=(waiting(1, 100),)), "duet:1000+nolookahead")
    assert decision.decode_steps == 1


def test_the_widest_decode_side_is_taken_when_no_split_meets_the_target() -> None:
    decision = decide(observe(decode_bs=100, queue=(waiting(1, 100),)))
    assert decision.reason is Reason.TBT_INFEASIBLE
    assert decision.partition_id == build_policy("duet", linear_context()).table.split_indices[-1]


def test_the_budget_bounds_the_chunk_when_a_prompt_is_long() -> None:
    chunk = replace(running_prefill(5000, mode=PrefillMode.CHUNKED), done_tokens=4500)
    decision = decide(observe(decode_bs=10, prefill=chunk, queue=(waiting(1, 2000),)))
    # 990 tokens: 500 that are left of the first prompt and 490 of the second.
    assert (decision.token_budget, decision.admit) == (990, ("r1",))


def test_decode_goes_on_when_a_prefill_runs_layer_by_layer() -> None:
    policy = build_policy("duet", linear_context())
    split = policy.table.groups[3]
    obs = observe(partition_id=3, decode_bs=10, prefill=running_prefill(500, launched=4, done=3))
    decision = decide(obs)
    assert (decision.mode, decision.partition_id, decision.decode_steps) == (Mode.SPLIT, 3, 1)
    assert (decision.token_budget, decision.reason) == (0, Reason.WAIT_FOR_PREFILL)
    # 10 ms of decode on all SMs, 500 ms of prefill in 32 layers; one layer is in flight.
    covered = (0.010 * 132 / split.decode_sms) / (0.500 * 132 / split.prefill_sms) * 32
    assert decision.prefill_layers == max(1, math.ceil(covered)) - 1
    assert policy.plans(obs, None) == ()


def test_a_fused_batch_that_takes_just_the_target_meets_it() -> None:
    decision = decide(observe(decode_bs=10, tbt_target_s=0.030, queue=(waiting(1, 20),)))
    assert (decision.mode, decision.decode_steps) == (Mode.FUSED, 1)
    assert decision.numbers.tbt_target_s == 0.030
    assert decision.numbers.tbt_slack_s == 0.0


def test_the_numbers_of_a_split_have_what_fusing_would_have_taken() -> None:
    numbers = decide(observe(decode_bs=10, queue=(waiting(1, 100),))).numbers
    assert numbers.predicted_fused_s == pytest.approx(0.110)
    assert numbers.tbt_target_s == 0.05


def test_no_decode_step_is_launched_when_nothing_decodes() -> None:
    fused = decide(observe(queue=(waiting(1, 100),)))
    assert (fused.mode, fused.decode_steps, fused.numbers.tbt_slack_s) == (Mode.FUSED, 0, None)
    layers = decide(observe(partition_id=3, prefill=running_prefill(500, launched=4, done=3)))
    assert (layers.mode, layers.decode_steps, layers.prefill_layers) == (Mode.SPLIT, 0, 28)
