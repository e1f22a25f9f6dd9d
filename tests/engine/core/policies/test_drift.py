"""DRIFT: its groups, its contention-free predictions, its preemption (algorithm 1, figures 7 and 8)."""

from __future__ import annotations

from observations import linear_context, observe, running_prefill, waiting

from pdmuxd.engine.core.partitions import SmRules
from pdmuxd.engine.core.policies.drift import drift_table
from pdmuxd.engine.core.policies.registry import build_policy
from pdmuxd.engine.core.types import Decision, Observation, Reason


def decide(obs: Observation, spec: str = "drift") -> Decision:
    policy = build_policy(spec, linear_context())
    return policy.decide(obs, policy.initial_state())[0]


def test_the_groups_are_the_papers_when_the_device_is_an_a100() -> None:
    table = drift_table(SmRules(total_sms=108, min_sms=4, multiple_sms=2))
    assert [(g.prefill_sms, g.decode_sms) for g in table.groups] == [(108, 0), (84, 24), (72, 36), (0, 108)]


def test_no_guard_widens_the_prediction_when_a_split_is_chosen() -> None:
    # On 28 SMs 10 requests take 47.1 ms: enough without a guard, not with the guard of 1.25.
    decision = decide(observe(decode_bs=10, queue=(waiting(1, 4000),)))
    assert (decision.partition_id, decision.numbers.guard_ratio) == (1, 1.0)


def test_blocks_cover_the_decode_step_when_both_run() -> None:
    # Figure 8. T_d = 10 * 132 / 28 = 47.1 ms, T_p = 400 * 132 / 104 = 507.7 ms: ceil(47.1 * 32 / 507.7) = 3.
    assert decide(observe(decode_bs=10, queue=(waiting(1, 400),))).prefill_layers == 3


def test_a_new_batch_preempts_when_the_running_one_has_headroom() -> None:
    # Algorithm 1, line 15: the sum of both is within the headroom; the new one need not be shorter.
    running = running_prefill(1000, launched=8, done=8, deadline_s=4.0)
    decision = decide(observe(prefill=running, queue=(waiting(1, 2000),)))
    assert (decision.preempt, decision.reason) == (True, Reason.PREEMPTED_FOR_SHORTER)
    tight = running_prefill(1000, launched=8, done=8, deadline_s=2.5)
    assert not decide(observe(prefill=tight, queue=(waiting(1, 2000),))).preempt
    assert not decide(observe(prefill=running, queue=(waiting(1, 2000),)), "drift:nopreempt").preempt


def test_as_many_preempt_together_as_the_running_one_has_headroom_for() -> None:
    """750 ms are left of the running prefill, due in 4 s: 3.25 s are for others, 1 ms a token."""
    running = running_prefill(1000, launched=8, done=8, deadline_s=4.0)
    queue = (waiting(1, 2000), waiting(2, 1000), waiting(3, 500), waiting(4, 10))
    assert decide(observe(prefill=running, queue=queue)).admit == ("r1", "r2")


def test_the_stack_holds_one_when_something_is_preempted_already() -> None:
    running = running_prefill(1000, launched=8, done=8)
    aside = running_prefill(1000, launched=8, done=8, was_preempted=True)
    assert not decide(observe(prefill=running, preempted=aside, queue=(waiting(1, 10),))).preempt
