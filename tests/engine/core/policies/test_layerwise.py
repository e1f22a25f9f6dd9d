"""Splits: what is carried out of a plan, and how many layers cover a decode step."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from observations import linear_context, observe, running_prefill, took, waiting

from pdmuxd.engine.core.policies.layerwise import (
    SHRINK_MARGIN,
    SLICE_S,
    SplitPlans,
    drain_to_preempt,
    layers_for,
    new_work,
    next_work,
    slices_of,
    split_decision,
    without_prefill,
)
from pdmuxd.engine.core.types import EngineLimits, Mode, PrefillShape, Reason, slice_bounds
from pdmuxd.engine.emulator.profile import load_profile

PROFILE = load_profile("h200-llama-8b-measured")

CONTEXT = linear_context()
SPLITS = SplitPlans(context=CONTEXT, table=CONTEXT.table())
GUARD = CONTEXT.guard


@given(duration_s=st.floats(0.0, 10.0), prefill_s=st.floats(0.001, 10.0), layers=st.integers(1, 80))
def test_layers_cover_a_step_and_no_layer_more_than_that(
    duration_s: float, prefill_s: float, layers: int
) -> None:
    count = layers_for(duration_s, prefill_s, layers)
    each_s = prefill_s / layers
    assert count * each_s >= duration_s * (1 - 1e-9)
    assert count == 1 or (count - 1) * each_s < duration_s * (1 + 1e-9)


def test_all_layers_go_when_a_prefill_takes_no_time() -> None:
    assert layers_for(0.1, 0.0, 32) == 32


@given(
    group=st.integers(0, 7),
    launched=st.integers(0, 32),
    in_flight=st.integers(0, 32),
    decode_bs=st.integers(0, 200),
    tbt_s=st.floats(0.005, 1.0),
)
def test_what_is_carried_out_keeps_to_the_group_and_the_layers_there_are(
    group: int, launched: int, in_flight: int, decode_bs: int, tbt_s: float
) -> None:
    prefill = running_prefill(8000, launched=launched, done=max(0, launched - in_flight))
    obs = observe(
        partition_id=group, decode_bs=decode_bs, tbt_target_s=tbt_s if decode_bs else None, prefill=prefill
    )
    work = next_work(obs, CONTEXT.layers)
    assert work is not None
    plan = SPLITS.best_fit(obs, work, GUARD)
    decision = split_decision(obs, work, plan)
    assert 0 <= decision.prefill_layers <= CONTEXT.layers - launched
    if prefill.layers_in_flight and plan.partition_id != group:  # invariant 2
        assert (decision.reason, decision.partition_id) == (Reason.SWITCH_WHEN_DRAINED, group)
        assert (decision.prefill_layers, decision.decode_steps) == (0, min(1, decode_bs))
    else:
        assert decision.partition_id == plan.partition_id
        assert decision.numbers == plan.numbers


def test_decode_gives_sms_back_only_when_the_smaller_group_has_a_margin() -> None:
    """16 decode SMs take 66 ms for 8 requests, 82.5 at worst: within 85 by less than a twentieth."""
    obs = observe(partition_id=1, decode_bs=8, tbt_target_s=0.085, queue=(waiting(1, 4000),))
    work = new_work(obs.waiting, CONTEXT.layers)
    worst_s = SPLITS.best_fit(obs, work, GUARD).worst_gap_s
    assert worst_s is not None
    near = replace(obs, tbt_target_s=worst_s * 1.02)
    assert SPLITS.best_fit(near, work, GUARD).partition_id == 1
    assert SPLITS.best_fit(replace(near, partition_id=2), work, GUARD).partition_id == 2
    far = replace(obs, tbt_target_s=worst_s / SHRINK_MARGIN * 1.01)
    assert SPLITS.best_fit(replace(far, partition_id=2), work, GUARD).partition_id == 1


def test_steps_are_launched_ahead_as_long_as_the_prefill_lasts() -> None:
    ahead = replace(SPLITS, max_steps=4)
    obs = observe(partition_id=1, decode_bs=5, tbt_target_s=1.0, queue=(waiting(1, 60),))
    for tokens, steps in ((10, 1), (60, 1), (100, 2), (10_000, 4)):
        work = new_work((waiting(1, tokens),), CONTEXT.layers)
        plan = ahead.best_fit(obs, work, GUARD)
        assert plan.decode_steps == steps, tokens
        assert SPLITS.best_fit(obs, work, GUARD).decode_steps == 1


def test_only_a_step_beside_a_prefill_that_took_longer_raises_the_guard() -> None:
    slow = took(Mode.SPLIT, partition_id=1, predicted_s=0.01, measured_s=0.018)
    assert SPLITS.learned(slow, GUARD).cells
    for other in (
        replace(slow, measured_s=0.012),
        replace(slow, mode=Mode.FUSED),
        replace(slow, predicted_s=0.0),
    ):
        assert SPLITS.learned(other, GUARD) is GUARD
    assert replace(SPLITS, uses_guard=False).learned(slow, GUARD) is GUARD


def test_decode_alone_is_a_split_in_which_it_has_all_sms() -> None:
    decision = without_prefill(observe(decode_bs=3), SPLITS.table)
    assert (decision.mode, decision.partition_id) == (Mode.SPLIT, SPLITS.table.decode_only)
    assert without_prefill(observe(), SPLITS.table).mode is Mode.IDLE


@pytest.mark.parametrize(("decode_bs", "steps"), [(0, 0), (10, 1)])
def test_decode_goes_on_without_new_layers_until_a_prefill_can_be_set_aside(
    decode_bs: int, steps: int
) -> None:
    prefill = running_prefill(1000, launched=4, done=2)
    decision = drain_to_preempt(observe(partition_id=3, decode_bs=decode_bs, prefill=prefill))
    assert (decision.mode, decision.partition_id) == (Mode.SPLIT, 3)
    assert (decision.decode_steps, decision.prefill_layers) == (steps, 0)
    assert decision.reason is Reason.PREEMPT_WHEN_DRAINED


def test_layers_of_a_long_prompt_are_cut_until_the_last_slice_is_short() -> None:
    context, sms = PROFILE.context(), 100
    limits = EngineLimits()

    def cut(new_tokens: int, reused_tokens: int = 0, limits: EngineLimits = limits) -> int:
        prompt = replace(waiting(1, new_tokens), reused_tokens=reused_tokens)
        return slices_of(prompt, limits, context, sms)

    assert cut(4_000) == 1
    assert cut(100_000) > cut(50_000) > cut(8_000) == 1
    assert cut(50_000, reused_tokens=50_000) > cut(50_000), "what it reads counts"
    for tokens in (20_000, 50_000, 100_000):
        own = -(-tokens // cut(tokens))
        last = PrefillShape.of([(own, tokens - own)])
        layer_s = context.latency.prefill_s(last, sms) * context.latency.colocated_ratio(sms) / context.layers
        assert layer_s <= SLICE_S
    assert cut(100_000, limits=EngineLimits(least_slice_tokens=None)) == 1
    assert cut(100_000, limits=EngineLimits(least_slice_tokens=40_000)) == 2, "no smaller than that"


def test_slices_of_a_prompt_are_all_of_its_tokens() -> None:
    bounds = [slice_bounds(100_001, 8, number) for number in range(8)]
    assert bounds[0][0] == 0
    assert bounds[-1][1] == 100_001
    assert all(before[1] == after[0] for before, after in itertools.pairwise(bounds))
