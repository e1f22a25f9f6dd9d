"""Invariants 3 and 4 for a stack of prefills by layers (LinearLatency: 1 ms per token on all SMs, 1.15 of it
beside decode).

Whoever goes ahead would miss its deadline else and makes it now; no prefill under way that is in time becomes
late; and one that is lost already is set aside once.
"""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st
from observations import linear_context, observe, running_prefill, waiting

from pdmuxd.engine.core.policies.overtaking import WAIT_RATIO
from pdmuxd.engine.core.policies.registry import build_policy
from pdmuxd.engine.core.types import EngineLimits, Observation, PrefillView, WaitingRequest

LAYERS = 32
PER_TOKEN_S = 0.001 * 1.15


def left_s(unit: PrefillView) -> float:
    return unit.shape.new_tokens * PER_TOKEN_S * (LAYERS - unit.layers_done) / LAYERS


def units(most: int) -> st.SearchStrategy[list[PrefillView]]:
    """Of any length and deadline, mostly near what is left of it."""
    unit = st.builds(
        lambda tokens, done, spare_s, again: running_prefill(
            tokens,
            launched=done,
            done=done,
            deadline_s=tokens * PER_TOKEN_S * (LAYERS - done) / LAYERS + spare_s,
            was_preempted=again,
        ),
        st.integers(1, 60_000),
        st.integers(0, LAYERS - 1),
        st.floats(-5.0, 60.0),
        st.booleans(),
    )
    return st.lists(unit, min_size=1, max_size=most)


def due(number: int, tokens: int, spare_s: float) -> WaitingRequest:
    return waiting(number, tokens, deadline_s=tokens * PER_TOKEN_S + spare_s)


queues = st.lists(st.tuples(st.integers(1, 8000), st.floats(-1.0, 10.0)), min_size=1, max_size=8)


@pytest.mark.parametrize("runs", [True, False])
@given(stack=units(5), queue=queues, most_tokens=st.one_of(st.none(), st.integers(1, 40_000)))
def test_going_ahead_saves_a_deadline_and_costs_none(
    runs: bool, stack: list[PrefillView], queue: list[tuple[int, float]], most_tokens: int | None
) -> None:
    policy = build_policy("auto", linear_context())
    limits = EngineLimits(max_whole_tokens=most_tokens, max_set_aside=4)
    obs: Observation = observe(
        prefill=stack[0] if runs else None,
        set_aside=tuple(stack[1:] if runs else stack),
        queue=tuple(due(number, *each) for number, each in enumerate(queue, 1)),
        limits=limits,
    )
    decision, _ = policy.decide(obs, policy.initial_state())
    if not decision.admit:
        assert decision.resume is not runs, "the stack makes progress"
        return
    chosen = [request for request in obs.waiting if request.request_id in decision.admit]
    taken_s = sum(request.new_tokens for request in chosen) * PER_TOKEN_S
    ends_s = list(accumulate(left_s(unit) for unit in stack))
    assert decision.preempt is runs
    assert len(obs.set_aside) + runs <= 4 + (not runs)
    for request in chosen:
        assert taken_s <= request.deadline_s + 1e-9, "it is in time now"
        behind_s = WAIT_RATIO * left_s(stack[0]) + request.new_tokens * PER_TOKEN_S
        assert behind_s > request.deadline_s - 1e-9, "and might not be behind the first"
    assert taken_s < left_s(stack[0]) + 1e-9, "who is overtaken is the longer one"
    for unit, end_s in zip(stack, ends_s, strict=True):
        if end_s <= unit.earliest_deadline_s - 1e-9:
            assert end_s + taken_s <= unit.earliest_deadline_s + 1e-9, "who was in time stays so"
    if stack[0].was_preempted:
        assert ends_s[0] <= stack[0].earliest_deadline_s + 1e-9, "one that is lost goes on"
    if most_tokens is not None:
        kept = 0.25 * sum(unit.shape.new_tokens for unit in stack)
        assert sum(request.new_tokens for request in chosen) + kept <= most_tokens
