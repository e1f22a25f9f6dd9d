"""Fused steps: what is in one, how many prompt tokens the target leaves, the fixed step (LinearLatency)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from observations import linear_context, observe, running_prefill, took, waiting

from pdmuxd.engine.core.estimates.batch_size_correction import BatchSizeCorrection
from pdmuxd.engine.core.estimates.latency_margin import LatencyMargin
from pdmuxd.engine.core.estimates.steps import FusedEstimate
from pdmuxd.engine.core.policies.fusedsteps import (
    FIXED_STEP_TOKENS,
    LEAST_PROMPT_TOKENS,
    STEP_TOKENS,
    FusedSteps,
    StepBounds,
    chunk_lengths,
    decode_alone,
    fixed_prompt_tokens,
)
from pdmuxd.engine.core.policies.registry import build_policy
from pdmuxd.engine.core.types import NO_DECODE, EngineLimits, Mode, PrefillMode, PrefillShape, Reason
from pdmuxd.engine.emulator.profile import load_profile

CONTEXT = linear_context()
FUSED = FusedSteps(context=CONTEXT, table=CONTEXT.table())
AS_FITTED = BatchSizeCorrection()
AS_PREDICTED = StepBounds(FusedEstimate(margin=LatencyMargin(deviation=0.0)))
lengths = st.lists(st.integers(1, 5000), max_size=6)


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        (0, []),
        (1, [(1, 0)]),
        (9, [(9, 0)]),
        (10, [(10, 0)]),
        (11, [(10, 0), (1, 5)]),
        (30, [(10, 0), (20, 5)]),
        (31, [(10, 0), (20, 5), (1, 0)]),
        (1000, [(10, 0), (20, 5), (40, 0)]),
    ],
)
def test_prompts_fill_the_budget_in_their_order(budget: int, expected: list[tuple[int, int]]) -> None:
    batch = (waiting(1, 10), waiting(2, 20, reused_tokens=5), waiting(3, 40))
    assert list(chunk_lengths(None, batch, budget)) == expected


@given(tokens=lengths, budget=st.integers(0, 10_000), done_ratio=st.floats(0.0, 1.0))
def test_a_chunk_takes_the_prompt_under_way_first_and_no_token_twice(
    tokens: list[int], budget: int, done_ratio: float
) -> None:
    batch = [waiting(i + 1, n) for i, n in enumerate(tokens)]
    running = running_prefill(3000, mode=PrefillMode.CHUNKED)
    done = int(3000 * done_ratio)
    found = list(chunk_lengths(replace(running, done_tokens=done), batch, budget))
    wanted = [n for n in [3000 - done, *tokens] if n]
    assert sum(new for new, _ in found) == min(budget, sum(wanted))
    assert [new for new, _ in found[:-1]] == wanted[: max(0, len(found) - 1)]
    if found and done < 3000:
        assert found[0][1] == done


@pytest.mark.parametrize("decode_bs", [1, 480, 511, 512, 600, 4000])
def test_a_fixed_step_leaves_prompt_tokens_beside_any_decode_batch(decode_bs: int) -> None:
    tokens = fixed_prompt_tokens(decode_bs)
    assert tokens >= LEAST_PROMPT_TOKENS
    assert tokens == LEAST_PROMPT_TOKENS or tokens + decode_bs == FIXED_STEP_TOKENS


@pytest.mark.parametrize("decode_bs", [64, 512, 600])
def test_a_prompt_makes_progress_while_predictions_prove_wrong(decode_bs: int) -> None:
    policy = build_policy("auto", CONTEXT)
    state = policy.initial_state()
    for _ in range(20):
        state = policy.learn(took(Mode.FUSED, predicted_s=0.04, measured_s=0.1), state)
    decision = policy.decide(
        observe(decode_bs=decode_bs, queue=(waiting(1, 4000),), limits=EngineLimits(max_decode_bs=1024)),
        state,
    )[0]
    assert decision.reason is Reason.PREDICTIONS_WRONG
    assert decision.token_budget - decode_bs == fixed_prompt_tokens(decode_bs) > 0


@given(
    decode_bs=st.integers(0, 300),
    target_s=st.floats(0.01, 1.0),
    tokens=lengths,
    ratio=st.floats(1.0, 2.0),
)
def test_a_step_within_the_target_is_the_largest_that_is(
    decode_bs: int, target_s: float, tokens: list[int], ratio: float
) -> None:
    """1 ms for each token, prompt or decode; what few steps exceed is `ratio` times that."""
    obs = observe(decode_bs=decode_bs, tbt_target_s=target_s)
    batch = tuple(waiting(i + 1, n) for i, n in enumerate(tokens))
    margin = LatencyMargin(deviation=(ratio - 1.0) / 3.0, factor=3.0)
    found, step_s = FUSED.prompt_tokens(obs, batch, StepBounds(FusedEstimate(margin=margin)), must=False)
    assert found <= sum(tokens)
    limit_s = target_s / ratio + 1e-9
    if found:
        assert step_s == pytest.approx(0.001 * (found + decode_bs))
        assert step_s <= limit_s
    larger = next((s - decode_bs for s in STEP_TOKENS if s - decode_bs > found), None)
    if larger is not None and found < sum(tokens) and decode_bs < STEP_TOKENS[-1]:
        assert 0.001 * (min(larger, sum(tokens)) + decode_bs) > limit_s - 1e-6


def _products_of(name: str) -> tuple[FusedSteps, dict[int, float]]:
    """Fused steps of a profile, and what one without attention takes for a token, by its size."""
    context = load_profile(name).policy_context
    fused = FusedSteps(context=context, table=context.table())
    of_size = {
        size: context.latency.fused_s(
            replace(PrefillShape.of([(size, 0)]), sum_new_squared=0), NO_DECODE, 132
        )
        for size in STEP_TOKENS
    }
    return fused, {size: step_s / size for size, step_s in of_size.items()}


@pytest.mark.parametrize(
    ("profile", "target_s", "best", "largest"),
    [
        ("h200-llama-8b-measured", 0.050, 1152, 1792),
        ("h200-codellama-34b-measured", 0.042, 256, 320),
        ("h200-codellama-34b-measured", 0.180, 1152, 1408),
    ],
)
def test_a_step_has_the_size_that_takes_least_for_a_token_whether_or_not_more_waits(
    profile: str, target_s: float, best: int, largest: int
) -> None:
    fused, _ = _products_of(profile)
    obs = observe(decode_bs=30, decode_reused_tokens=30_000, tbt_target_s=target_s)
    ask = {"bounds": AS_PREDICTED, "must": False}
    many = tuple(waiting(number, 1000) for number in range(8))
    tokens, step_s = fused.prompt_tokens(obs, many, **ask)
    assert tokens + 30 == best
    assert step_s == fused.step_s(obs, tokens, many)
    last = (waiting(1, largest - 30),)
    assert fused.step_s(obs, largest - 30, last) <= target_s
    assert fused.prompt_tokens(obs, last, **ask)[0] + 30 == best, "the rest goes with whoever comes next"
    few = (waiting(1, best - 130),)
    assert fused.prompt_tokens(obs, few, **ask)[0] == best - 130, "a smaller step reads the weights for less"
    slow = AS_FITTED
    for _ in range(40):
        for size in STEP_TOKENS:
            slow = slow.after(size, predicted_s=0.01, measured_s=0.013 if size == best else 0.01)
    ask["bounds"] = StepBounds(replace(AS_PREDICTED.estimate, sizes=slow))
    assert fused.prompt_tokens(obs, many, **ask)[0] + 30 != best


@given(
    decode_bs=st.integers(1, 256),
    target_s=st.floats(0.015, 0.4),
    tokens=st.integers(1, 20_000),
    profile=st.sampled_from(["h200-llama-8b-measured", "h200-codellama-34b-measured"]),
)
def test_no_larger_step_takes_less_for_a_token_when_the_prompt_does_not_fit_into_the_best(
    decode_bs: int, target_s: float, tokens: int, profile: str
) -> None:
    fused, each_s = _products_of(profile)
    obs = observe(decode_bs=decode_bs, decode_reused_tokens=500 * decode_bs, tbt_target_s=target_s)
    batch = (waiting(1, tokens),)
    found, step_s = fused.prompt_tokens(obs, batch, AS_PREDICTED, must=False)
    assert step_s <= target_s
    assert found <= tokens
    if not found or found == tokens:
        return
    size = found + decode_bs
    holds_all = next((s for s in STEP_TOKENS if s >= tokens + decode_bs), STEP_TOKENS[-1])
    for other in STEP_TOKENS:
        if size < other <= holds_all:
            held = min(tokens, other - decode_bs)
            assert fused.step_s(obs, held, batch) > target_s or each_s[other] >= each_s[size] - 1e-12


def test_a_step_that_has_to_be_says_what_it_takes_when_none_is_within_the_target() -> None:
    prefill = replace(running_prefill(3000, mode=PrefillMode.CHUNKED), done_tokens=1000)
    obs = observe(decode_bs=100, tbt_target_s=0.05, prefill=prefill)
    plan = FUSED.next_step(obs, (), AS_PREDICTED)
    assert (plan.prompt_tokens, plan.meets) == (LEAST_PROMPT_TOKENS, False)
    assert plan.numbers.predicted_fused_s == pytest.approx(0.001 * (100 + LEAST_PROMPT_TOKENS))
    assert plan.numbers.tbt_slack_s == pytest.approx(0.05 - 0.001 * (100 + LEAST_PROMPT_TOKENS))


def test_a_step_tells_the_margin_and_the_room_that_bounded_it_whoever_is_in_it() -> None:
    obs = observe(decode_bs=10, tbt_target_s=0.2)
    margin, sizes = LatencyMargin(deviation=0.05, factor=4.0), AS_FITTED
    for _ in range(200):
        sizes = sizes.after(128, predicted_s=0.1, measured_s=0.11)
    bounds = StepBounds(FusedEstimate(margin=margin, sizes=sizes), stall_s=0.02)
    plan = FUSED.next_step(obs, (waiting(1, 9000),), bounds)
    assert plan.numbers.margin_ratio == pytest.approx(1.2 * sizes.ratio(plan.prompt_tokens + 10))
    assert plan.numbers.margin_ratio == pytest.approx(1.2 * 1.1, rel=0.01)
    assert plan.numbers.stall_room_s == 0.02
    held = FUSED.holding(obs, plan, (waiting(2, 20),))
    assert held.numbers == replace(
        plan.numbers, predicted_fused_s=pytest.approx(0.03), tbt_slack_s=pytest.approx(0.17)
    )
    assert FUSED.fixed_step(obs, ()).numbers.margin_ratio is None


def test_no_step_is_within_the_target_when_the_host_alone_takes_longer() -> None:
    obs, batch = observe(decode_bs=10, tbt_target_s=0.05), (waiting(1, 1000),)
    slow = StepBounds(FusedEstimate(margin=LatencyMargin(deviation=0.0, floor_s=0.06)))
    ask = {"bounds": slow}
    assert FUSED.prompt_tokens(obs, batch, **ask, must=False) == (0, 0.0)
    assert FUSED.prompt_tokens(obs, batch, **ask, must=True) == (22, pytest.approx(0.032))


@pytest.mark.parametrize(("decode_bs", "mode"), [(0, Mode.IDLE), (5, Mode.DECODE)])
def test_decode_alone_is_no_fused_step(decode_bs: int, mode: Mode) -> None:
    decision = decode_alone(observe(decode_bs=decode_bs, partition_id=2), FUSED.table)
    assert decision.mode is mode
    assert decision.partition_id == (FUSED.table.decode_only if decode_bs else 2)
    assert decision.token_budget == 0


def test_the_last_step_of_a_batch_counts_by_its_part_while_others_wait() -> None:
    obs = observe(decode_bs=10, queue=(waiting(1, 350), waiting(2, 100)))
    assert FUSED.total_s(obs, AS_FITTED, PrefillShape.of([(350, 0)]), 100) == pytest.approx(3.5 * 0.110)
    both = PrefillShape.of([(350, 0), (100, 0)])
    assert FUSED.total_s(obs, AS_FITTED, both, 100) == pytest.approx(4 * 0.110 + 0.060)


def test_short_prompts_take_what_short_prompts_take_however_many_they_are() -> None:
    """Each token attends to its own prompt alone: 30 prompts of 200 tokens take five times what 6 do, and one
    of 6,000 tokens takes longer, by what its chunks read of it again."""
    context = load_profile("h200-llama-8b-measured").policy_context
    fused = FusedSteps(context=context, table=context.table())
    many = [waiting(number, 200) for number in range(40)]
    obs = observe(decode_bs=10, decode_reused_tokens=10_000, queue=many)

    def total_s(lengths: list[tuple[int, int]]) -> float:
        return fused.total_s(obs, AS_FITTED, PrefillShape.of(lengths), 1200)

    assert total_s([(200, 0)] * 30) == pytest.approx(5 * total_s([(200, 0)] * 6), rel=1e-9)
    assert total_s([(6000, 0)]) > 1.03 * total_s([(200, 0)] * 30)
    step = [(200, 0)] * 6
    assert total_s(step) == pytest.approx(context.latency.fused_s(PrefillShape.of(step), obs.decode, 132))
    reusing = [(200, 5000)] * 6
    assert total_s(reusing) == pytest.approx(
        context.latency.fused_s(PrefillShape.of(reusing), obs.decode, 132)
    )


def test_a_batch_takes_as_many_steps_as_its_budget_needs() -> None:
    """300 tokens by 100 beside 10: three steps of 110 ms, wherever their context comes from; one token more
    takes a short step more."""
    obs = observe(decode_bs=10)
    for reused in (0, 5000):
        shape = PrefillShape.of([(300, reused)])
        assert FUSED.total_s(obs, AS_FITTED, shape, 100) == pytest.approx(3 * 0.110)
    assert FUSED.total_s(obs, AS_FITTED, PrefillShape.of([(301, 0)]), 100) == pytest.approx(3 * 0.110 + 0.011)


@pytest.mark.parametrize(("new_tokens", "lasts"), [(4_000, True), (41_737, False)])
def test_a_prompt_lasts_in_chunks_when_half_a_step_is_within_the_target_at_its_end(
    new_tokens: int, lasts: bool
) -> None:
    context = load_profile("h200-llama-8b-measured").policy_context
    fused = FusedSteps(context=context, table=context.table())
    prompt = (waiting(1, new_tokens),)
    obs = observe(decode_bs=10, decode_reused_tokens=3_000, tbt_target_s=0.02, queue=prompt, now_s=0.0)
    shape = PrefillShape.of([(new_tokens, 0)])
    plan = fused.whole_batch(obs, prompt, shape, StepBounds(FusedEstimate()))
    assert plan is not None
    assert plan.meets is lasts
