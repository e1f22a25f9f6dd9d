"""Golden decisions for the situations that MuxWise figures 9, 10 and 12 draw, worked out by hand.

With LinearLatency a decode step takes bs ms on all 132 SMs and bs * 132 / n ms on n; the guard is 1.25.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from observations import linear_context, observe, running_prefill, took, waiting

from pdmuxd.engine.core.policies.registry import build_policy
from pdmuxd.engine.core.types import Decision, DecodeShape, Mode, Observation, Reason


def decide(obs: Observation, spec: str = "muxwise") -> Decision:
    policy = build_policy(spec, linear_context())
    return policy.decide(obs, policy.initial_state())[0]


@pytest.mark.parametrize(
    ("decode_bs", "partition_id", "decode_sms"),
    # worst case on 20 SMs: 8.25 ms per request; on 36: 4.58; on 52: 3.17; the target is 50 ms.
    [(6, 1, 20), (7, 2, 36), (10, 2, 36), (11, 3, 52), (15, 3, 52)],
)
def test_the_fewest_decode_sms_are_taken_when_they_meet_the_target(
    decode_bs: int, partition_id: int, decode_sms: int
) -> None:
    decision = decide(observe(decode_bs=decode_bs, queue=(waiting(1, 4000),)))
    assert (decision.partition_id, decision.reason) == (partition_id, Reason.BEST_FIT)
    assert decision.numbers.predicted_decode_s == pytest.approx(decode_bs * 0.132 / decode_sms)
    assert decision.numbers.guard_ratio == 1.25
    assert decision.numbers.tbt_slack_s == pytest.approx(0.05 - 1.25 * decode_bs * 0.132 / decode_sms)
    assert len(decision.rejected) == partition_id - 1


def test_a_wider_decode_partition_is_taken_when_tokens_are_late_to_their_clients() -> None:
    # On 20 SMs the worst case is 49.5 ms of 50: 2 ms more than what is left when delivery takes 2.
    obs = observe(decode_bs=6, queue=(waiting(1, 4000),))
    policy = build_policy("muxwise", replace(linear_context(), delivery_s=0.002))
    decision = policy.decide(obs, policy.initial_state())[0]
    assert (decision.partition_id, decision.reason) == (2, Reason.BEST_FIT)
    assert decision.numbers.tbt_target_s == 0.05


@pytest.mark.parametrize(("target_s", "planned_s"), [(0.05, 0.048), (0.01, 0.009), (None, float("inf"))])
def test_a_tenth_of_the_target_is_kept_for_delivery_at_most(target_s: float | None, planned_s: float) -> None:
    context = replace(linear_context(), delivery_s=0.002)
    assert context.planned_tbt_s(target_s) == pytest.approx(planned_s)


def test_the_widest_decode_partition_is_taken_when_no_split_meets_the_target() -> None:
    decision = decide(observe(decode_bs=60, queue=(waiting(1, 4000),)))
    assert (decision.partition_id, decision.reason) == (6, Reason.TBT_INFEASIBLE)
    assert decision.numbers.tbt_slack_s is not None
    assert decision.numbers.tbt_slack_s < 0.0


def test_layers_cover_the_decode_step_when_both_run() -> None:
    # T_d = 1.25 * 6 * 132 / 20 = 49.5 ms; T_p = 4000 * 132 / 112 = 4714.3 ms; ceil(49.5 * 32 / 4714.3) = 1
    assert decide(observe(decode_bs=6, queue=(waiting(1, 4000),))).prefill_layers == 1
    # T_p = 117.9 ms: ceil(49.5 * 32 / 117.9) = 14
    assert decide(observe(decode_bs=6, queue=(waiting(1, 100),))).prefill_layers == 14


def test_layers_in_flight_are_counted_when_the_prefill_stream_is_still_busy() -> None:
    prefill = running_prefill(100, launched=14, done=9)
    decision = decide(observe(decode_bs=6, partition_id=1, prefill=prefill))
    assert decision.prefill_layers == 14 - 5


def test_the_switch_waits_when_layers_are_in_flight() -> None:
    prefill = running_prefill(100, launched=14, done=9)
    decision = decide(observe(decode_bs=11, partition_id=1, prefill=prefill))
    assert decision.reason is Reason.SWITCH_WHEN_DRAINED
    assert (decision.partition_id, decision.prefill_layers, decision.decode_steps) == (1, 0, 1)
    drained = decide(
        observe(decode_bs=11, partition_id=1, prefill=running_prefill(100, launched=14, done=14))
    )
    assert drained.partition_id == 3


def test_decode_keeps_its_sms_when_the_smaller_group_only_just_meets_the_target() -> None:
    # bs 6 on 20 SMs is 49.5 ms: enough to stay in group 1, not enough to shrink into it.
    obs = observe(decode_bs=6, partition_id=2, prefill=running_prefill(100, launched=4, done=4))
    assert decide(obs).partition_id == 2
    assert (
        decide(
            observe(decode_bs=5, partition_id=2, prefill=running_prefill(100, launched=4, done=4))
        ).partition_id
        == 1
    )


def test_a_bound_is_raised_when_a_step_was_slower_than_it() -> None:
    policy = build_policy("muxwise", linear_context())
    obs = observe(decode_bs=6, queue=(waiting(1, 4000),))
    decode = DecodeShape(bs=6, reused_tokens=0)
    feedback = took(
        Mode.SPLIT, partition_id=1, new_tokens=4000, decode=decode, predicted_s=0.040, measured_s=0.060
    )
    state = policy.learn(feedback, policy.initial_state())
    decision, _ = policy.decide(obs, state)
    assert policy.decide(obs, policy.initial_state())[0].partition_id == 1
    assert decision.partition_id == 2
    assert decision.rejected[0].predicted_s == pytest.approx(1.5 * 6 * 0.132 / 20)


class TestPreemption:
    """A short request behind a long one (MuxWise figure 9, upper right; figure 12, P2 over P1)."""

    def test_the_short_overtakes_when_both_meet_their_targets(self) -> None:
        long = running_prefill(10_000, launched=8, done=8, deadline_s=20.0)
        decision = decide(observe(partition_id=0, prefill=long, queue=(waiting(1, 100),)), "muxwise:preempt")
        assert (decision.preempt, decision.admit) == (True, ("r1",))
        assert decision.reason is Reason.PREEMPTED_FOR_SHORTER

    def test_shorts_overtake_together_when_they_take_less_than_what_is_left(self) -> None:
        # 7.5 s are left; the first is longer than that, and the last would make it 7.6 s.
        long = running_prefill(10_000, launched=8, done=8, deadline_s=40.0)
        queue = (waiting(1, 8000), waiting(2, 100), waiting(3, 7000), waiting(4, 500))
        decision = decide(observe(partition_id=0, prefill=long, queue=queue), "muxwise:preempt")
        assert decision.admit == ("r2", "r3")

    def test_the_prefill_stream_is_drained_first_when_layers_are_in_flight(self) -> None:
        long = running_prefill(10_000, launched=9, done=8, deadline_s=20.0)
        decision = decide(observe(partition_id=0, prefill=long, queue=(waiting(1, 100),)), "muxwise:preempt")
        assert (decision.preempt, decision.prefill_layers) == (False, 0)
        assert decision.reason is Reason.PREEMPT_WHEN_DRAINED

    def test_the_long_goes_on_when_it_would_miss_its_own_target(self) -> None:
        # 24 of 32 layers of 10 s are left: 7.5 s, and 0.1 s for the short one.
        tight = running_prefill(10_000, launched=8, done=8, deadline_s=7.55)
        decision = decide(observe(partition_id=0, prefill=tight, queue=(waiting(1, 100),)), "muxwise:preempt")
        assert not decision.preempt

    def test_nothing_is_preempted_twice_when_the_first_is_still_aside(self) -> None:
        short = running_prefill(1000, launched=8, done=8)
        aside = running_prefill(10_000, launched=8, done=8, was_preempted=True)
        obs = observe(partition_id=0, prefill=short, preempted=aside, queue=(waiting(1, 10),))
        assert not decide(obs, "muxwise:preempt").preempt
        again = running_prefill(10_000, launched=8, done=8, was_preempted=True)
        assert not decide(observe(prefill=again, queue=(waiting(1, 10),)), "muxwise:preempt").preempt

    def test_the_one_set_aside_goes_on_when_the_short_is_done(self) -> None:
        aside = running_prefill(10_000, launched=8, done=8, was_preempted=True)
        decision = decide(observe(preempted=aside, queue=(waiting(1, 10),)), "muxwise:preempt")
        assert (decision.resume, decision.admit, decision.reason) == (True, (), Reason.RESUMED)

    def test_arrival_order_is_kept_when_preemption_is_off(self) -> None:
        long = running_prefill(10_000, launched=8, done=8)
        assert not decide(observe(prefill=long, queue=(waiting(1, 100),))).preempt
