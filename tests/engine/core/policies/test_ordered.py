"""An order in front of any policy: who is shown first, who is behind; the rest is the inner policy's."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from observations import linear_context, observe, running_prefill, sampled, waiting

from pdmuxd.engine.core.policies.registry import build_policy
from pdmuxd.engine.core.queueing import AGED_SHARE
from pdmuxd.engine.core.types import Decision, Observation, PrefillMode, PrefillSample, QueueOrder

URGENT, EASY, LATE = (
    waiting(1, 1000, deadline_s=40.0),
    waiting(2, 1000, deadline_s=90.0),
    waiting(3, 1000, deadline_s=9.0),
)


def decide(spec: str, obs: Observation) -> Decision:
    policy = build_policy(spec, linear_context())
    decision, _ = policy.decide(obs, policy.initial_state())
    return decision


def test_least_slack_goes_first_and_who_is_too_late_last() -> None:
    decision = decide("slack/chunked:8192", observe(queue=(EASY, LATE, URGENT), now_s=10.0))
    assert decision.admit == ("r1", "r2", "r3")
    assert decision.deprioritize == ("r3",)
    assert decision.order is QueueOrder.FAIR_SHARE, "one that is too late: there is more work than time"
    assert decide("slack/muxwise", observe(queue=(EASY, URGENT), now_s=10.0)).order is QueueOrder.SLACK


def test_the_earliest_deadline_goes_first_and_nobody_is_given_up() -> None:
    decision = decide("edf/chunked:8192", observe(queue=(EASY, LATE, URGENT), now_s=10.0))
    assert decision.admit == ("r3", "r1", "r2")
    assert (decision.deprioritize, decision.refuse) == ((), ())
    assert decision.order is QueueOrder.DEADLINE


def test_who_wants_no_late_answer_is_refused_and_not_shown_to_the_inner_policy() -> None:
    late = replace(LATE, refuses_late=True)
    decision = decide("slack/chunked:8192", observe(queue=(late, EASY), now_s=10.0))
    assert (decision.admit, decision.refuse) == (("r2",), ("r3",))


@pytest.mark.parametrize(
    "spec", ["chunked:512", "muxwise", "drift", "duet", "upstream", "pla/muxwise", "static:96,36"]
)
@given(lengths=st.lists(st.integers(1, 30_000), min_size=1, max_size=4), decode_bs=st.integers(0, 60))
def test_all_but_the_order_is_the_inner_policy_s(spec: str, lengths: list[int], decode_bs: int) -> None:
    queue = tuple(waiting(i, n, deadline_s=1e6 + i) for i, n in enumerate(lengths))
    obs = observe(decode_bs=decode_bs, tbt_target_s=0.05 if decode_bs else None, queue=queue)
    assert replace(decide(f"edf/{spec}", obs), order=QueueOrder.ARRIVAL) == decide(spec, obs)


def test_what_a_step_leaves_out_is_not_counted_as_begun() -> None:
    policy = build_policy("slack/chunked:1000", linear_context())
    queue = tuple(waiting(i, 1000, deadline_s=1e6 + i) for i in range(3))
    _, state = policy.decide(observe(queue=queue), policy.initial_state())
    assert state.queue.aged_credit_tokens == pytest.approx(1000 * AGED_SHARE)
    chunk = running_prefill(4000, mode=PrefillMode.CHUNKED)
    _, again = policy.decide(observe(prefill=chunk, queue=queue), policy.initial_state())
    assert again.queue.aged_credit_tokens == 0.0, "the prompt in chunks takes the whole step"


def test_the_inner_policy_learns_from_prefills_and_what_is_owed_stays() -> None:
    policy = build_policy("slack/pla/muxwise", linear_context())
    obs = observe(queue=(EASY, LATE, URGENT), now_s=10.0)
    _, state = policy.decide(obs, policy.initial_state())
    inner = build_policy("pla/muxwise", linear_context())
    sample = PrefillSample(new_tokens=256, reused_tokens=0, compute_s=0.02, memory_s=0.001)
    after = policy.learn_prefill(sampled(sample), state)
    assert after.queue == state.queue != policy.initial_state().queue
    assert after.inner == inner.learn_prefill(sampled(sample), state.inner) != state.inner
