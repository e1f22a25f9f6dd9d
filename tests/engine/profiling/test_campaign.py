"""Profiling the emulated device, whose truth the campaign does not know and believes wrongly."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from profiling import Measured, SlowHost, assembled, graph_s, measured_pairs, run_campaign

from pdmuxd.daemon.profiling.emulated import emulator_profile
from pdmuxd.engine.core.latency import padded_bs
from pdmuxd.engine.core.types import DecodeShape, PrefillShape
from pdmuxd.engine.emulator.graphs import padded
from pdmuxd.engine.emulator.measuring import Noise
from pdmuxd.engine.emulator.profile import Profile, load_profile
from pdmuxd.engine.link.predictors import contention_guard, latency_model
from pdmuxd.engine.profiling.designs import OWN_SAMPLES
from pdmuxd.engine.profiling.document import MeasuredProfile

BUDGET_S = 300.0
NOISE = 0.02
HIDDEN = load_profile("h200-llama-8b")
LAUNCH_BUDGET_S = 195.0
SLOW_BUDGET_S = 52.0
LAUNCH_BOUND = replace(
    HIDDEN,
    overheads=replace(HIDDEN.overheads, layer_launch_s=0.00053),
    device=replace(HIDDEN.device, compute_curvature=0.8),
    decode_colocated_ratio=0.1,
    decode_colocated_sms_ratio=0.15,
    prefill_colocated_ratio=0.8,
)
"""As SGLang on one H200: launching its layers takes longer than computing up to 700 tokens, an SM computes
less when all do, and decode is slowed beside whatever prefill."""
STALLING = Noise(ratio=0.01, launch_ratio=0.05, seed=0)


pytestmark = pytest.mark.slow
"""Whole campaigns: their parts have fast tests of their own."""


@pytest.fixture(scope="module")
def campaign() -> Measured:
    return run_campaign(budget_s=BUDGET_S, noise=Noise(ratio=NOISE, seed=1), hidden=HIDDEN)


@pytest.fixture(scope="module")
def profile(campaign: Measured) -> MeasuredProfile:
    return assembled(campaign)


def test_the_device_is_done_within_5_minutes_when_an_8b_model_is_profiled(campaign: Measured) -> None:
    assert campaign.device_s <= BUDGET_S
    assert sum(sample.point.mode == "colocated" for sample in campaign.samples) >= 300


def test_all_but_the_splits_is_measured_when_the_model_cannot_be_split() -> None:
    noise = Noise(ratio=NOISE, seed=1)
    measured = run_campaign(budget_s=BUDGET_S, noise=noise, hidden=HIDDEN, unsplit="for a reason")
    profile = assembled(measured)
    assert {sample.point.mode for sample in measured.samples} == {"prefill", "decode", "fused"}
    assert {fit.sms for fit in profile.solo_run} == {HIDDEN.device.total_sms}
    assert (profile.left_out, profile.guard) == ((), None)
    assert profile.worst_p90 < 0.05
    assert measured.device_s < 0.2 * BUDGET_S


def test_captured_batch_sizes_are_measured_often_enough_for_a_time_of_their_own_when_profiled(
    campaign: Measured,
) -> None:
    captured = campaign.target.hello.captured_decode_bs
    for sms in campaign.target.decode_sizes:
        seen = Counter(
            padded_bs(len(sample.point.decode), captured)
            for sample in campaign.samples
            if sample.point.mode == "decode" and sample.sms == sms
        )
        assert set(seen) == set(captured)
        assert sum(seen[bs] >= OWN_SAMPLES for bs in captured) >= 0.9 * len(captured)


def test_the_hidden_hardware_is_recovered_within_the_noise_when_beliefs_are_wrong(
    profile: MeasuredProfile,
) -> None:
    assert profile.device.flops == pytest.approx(HIDDEN.device.flops, rel=NOISE)
    assert profile.device.bytes_per_s == pytest.approx(HIDDEN.device.bytes_per_s, rel=2 * NOISE)
    assert profile.device.bandwidth_curvature == pytest.approx(HIDDEN.device.bandwidth_curvature, rel=0.05)
    assert profile.overheads.layer_launch_s == pytest.approx(HIDDEN.overheads.layer_launch_s, rel=NOISE)
    assert profile.contention_ratio == pytest.approx(HIDDEN.contention_ratio, abs=0.05)


def test_unseen_shapes_are_predicted_within_the_targets_when_profiled(
    campaign: Measured, profile: MeasuredProfile
) -> None:
    for what, errors in unseen_errors(campaign, profile, HIDDEN).items():
        assert within_targets(errors), what


@pytest.mark.parametrize("seed", [1, 4])
def test_predictors_meet_the_target_when_launching_outlasts_computing_and_stalls(seed: int) -> None:
    campaign = run_campaign(budget_s=LAUNCH_BUDGET_S, noise=replace(STALLING, seed=seed), hidden=LAUNCH_BOUND)
    profile = assembled(campaign)
    assert campaign.device_s <= LAUNCH_BUDGET_S + 2.0
    assert profile.worst_p90 <= 0.05
    assert {fit.predictor for fit in profile.fits} == {"prefill", "decode", "fused", "roofline"}
    assert profile.device.compute_curvature == pytest.approx(0.8, abs=0.15)
    assert profile.decode_colocated_ratio == pytest.approx(0.1, abs=0.05)
    assert profile.decode_colocated_sms_ratio == pytest.approx(0.15, abs=0.08)
    assert profile.prefill_colocated_ratio == pytest.approx(0.8, abs=0.1)
    colocated = {fit.sms: fit.prefill.colocated_ratio for fit in profile.solo_run if fit.prefill is not None}
    assert colocated.pop(profile.total_sms) == 0.0, "no split has all SMs"
    assert 1.0 < colocated[112] < colocated[32] < 1.6, "the more SMs decode has, the more it takes"
    errors = [one for some in unseen_errors(campaign, profile, LAUNCH_BOUND).values() for one in some]
    assert float(np.percentile(errors, 90.0)) <= 0.03


def test_every_graph_of_fused_batches_is_measured_and_predicted_when_each_takes_its_own_time() -> None:
    sizes = (*range(32, 321, 32), *range(512, 1025, 128), 1536, 2048)
    graphs = {tokens: (0.0, 0.004, 0.001)[number % 3] for number, tokens in enumerate(sizes)}
    at_once = replace(LAUNCH_BOUND.overheads, fused_graph_tokens=sizes[-1])
    hidden = replace(LAUNCH_BOUND, overheads=at_once)
    noise = Noise(ratio=0.01, seed=2)
    campaign = run_campaign(budget_s=LAUNCH_BUDGET_S, noise=noise, hidden=hidden, graphs=graphs)
    fused = [sample.point for sample in campaign.samples if sample.point.mode == "fused"]
    seen = {padded_bs(point.prefill_shape.new_tokens + len(point.decode), sizes) for point in fused}
    assert seen >= set(sizes)
    profile = assembled(campaign)
    assert campaign.device_s <= LAUNCH_BUDGET_S + 2.0
    assert profile.captured_fused_tokens == sizes
    model = latency_model(profile.predictors(1), profile.roofline)
    for new, bs, context in product((20, 90, 250, 310, 500, 900), (1, 24), (400, 3000)):
        chunk, decode = PrefillShape.of([(new, 0)]), DecodeShape.of((context,) * bs)
        truth_s = graph_s(hidden, graphs, chunk, decode)
        assert model.fused_s(chunk, decode, profile.total_sms) == pytest.approx(truth_s, rel=0.06)


def test_decode_has_samples_in_the_bend_when_a_slow_launch_takes_most_of_a_campaign_of_experts() -> None:
    """Launching takes 96 ms, as on one H200 (2026-11-28), so that the plans take half of the budget."""
    slow = load_profile("h200-qwen3-30b-a3b")
    slow = replace(slow, overheads=replace(slow.overheads, layer_launch_s=0.002))
    campaign = run_campaign(budget_s=SLOW_BUDGET_S, noise=Noise(ratio=NOISE, seed=1), hidden=slow)
    profile = assembled(campaign)
    for sms in campaign.target.decode_sizes:
        steps = [one.point for one in campaign.samples if one.point.mode == "decode" and one.sms == sms]
        assert 15 <= len(steps) <= 40
        assert sum(8 <= len(point.decode) <= 72 for point in steps) >= len(steps) // 3
    assert sum(one.point.mode == "colocated" for one in campaign.samples) >= 60
    errors = unseen_errors(campaign, profile, slow)
    assert all(float(np.percentile(some, 90.0)) < 0.03 for what, some in errors.items() if "decode" in what)
    assert profile.guard is not None
    assert profile.guard.exceeded_ratio <= 0.01


def test_unseen_prefills_are_predicted_when_the_host_is_slow_for_seconds() -> None:
    noise = SlowHost(ratio=0.01, launch_ratio=0.05, seed=0)
    campaign = run_campaign(budget_s=LAUNCH_BUDGET_S, noise=noise, hidden=LAUNCH_BOUND)
    profile = assembled(campaign)
    assert campaign.device_s <= LAUNCH_BUDGET_S + 2.0
    errors = [one for some in unseen_errors(campaign, profile, LAUNCH_BOUND).values() for one in some]
    assert float(np.percentile(errors, 90.0)) <= 0.03
    assert float(np.percentile(errors, 99.0)) <= 0.09


def unseen_errors(campaign: Measured, profile: MeasuredProfile, hidden: Profile) -> dict[str, list[float]]:
    """Relative errors on random shapes, by predictor."""
    model = latency_model(profile.predictors(1), profile.roofline)
    source = random.Random(7)
    found: dict[str, list[float]] = {}
    for sms in campaign.target.prefill_sizes:
        errors = found[f"prefill on {sms} SMs"] = []
        for _ in range(200):
            reused = source.choice([0, int(2 ** source.uniform(5, 15))])
            shape = PrefillShape.of([(int(2 ** source.uniform(4, 14)), reused)])
            errors.append(abs(model.prefill_s(shape, sms) / hidden.truth.prefill_s(shape, sms) - 1.0))
    for sms in campaign.target.decode_sizes:
        errors = found[f"decode on {sms} SMs"] = []
        for _ in range(200):
            bs = int(2 ** source.uniform(0, 8))
            step = DecodeShape(bs=bs, reused_tokens=bs * int(2 ** source.uniform(5, 11)))
            truth_s = hidden.truth.decode_s(padded(step), sms)
            errors.append(abs(model.decode_s(step, sms) / truth_s - 1.0))
    return found


def within_targets(errors: list[float]) -> bool:
    ordered = sorted(errors)
    return ordered[int(0.9 * len(ordered))] <= 0.05 and ordered[-1] <= 0.09


def test_the_reported_errors_are_of_held_out_samples_when_profiled(profile: MeasuredProfile) -> None:
    assert profile.left_out == ()
    assert {fit.predictor for fit in profile.fits} == {"prefill", "decode", "fused", "roofline"}
    assert profile.worst_p90 <= 0.05
    assert all(fit.errors.p50 > NOISE / 10 for fit in profile.fits), "no fit is better than the noise"


def test_the_guard_bounds_unseen_pairs_without_much_excess_when_profiled(profile: MeasuredProfile) -> None:
    assert profile.guard is not None
    assert profile.guard.exceeded_ratio <= 0.01
    assert profile.guard.overestimate_ratio <= 0.15


def test_the_guard_bounds_pairs_that_were_never_measured_when_profiled(
    campaign: Measured, profile: MeasuredProfile
) -> None:
    """Drawn evenly from the grid; a campaign prefers those that take little time."""
    model = latency_model(profile.predictors(1), profile.roofline)
    guard = contention_guard(profile.predictors(1))
    seen = {sample.point for sample in campaign.samples}
    ratios = []
    for sample in measured_pairs(campaign.target, HIDDEN, noise=Noise(ratio=NOISE, seed=2), each=60):
        point = sample.point
        if point not in seen and sample.decode_high_s is not None:
            solo_s = model.decode_s(point.decode_shape, point.decode_sms)
            bound = guard.ratio(point.decode_sms, point.prefill_shape, point.decode_shape)
            ratios.append(bound / max(1.0, sample.decode_high_s / solo_s))
    assert len(ratios) > 200
    assert sum(ratio < 1.0 for ratio in ratios) / len(ratios) <= 0.01
    assert sum(ratios) / len(ratios) <= 1.15


def test_what_was_measured_is_a_profile_when_interrupted_early() -> None:
    campaign = run_campaign(budget_s=BUDGET_S, noise=Noise(), hidden=HIDDEN, stop_after=40)
    profile = assembled(campaign)
    assert profile.guard is None
    assert len(profile.left_out) >= 2
    assert all(run.decode is None for run in profile.solo_run), (
        "plans come first: prefill has one law already"
    )
    assert {fit.predictor for fit in profile.fits} <= {"prefill", "fused", "roofline"}
    assert profile.guard_default_ratio == 1.3


def test_the_emulator_takes_as_long_as_was_measured_when_it_runs_by_the_profile(
    campaign: Measured, profile: MeasuredProfile
) -> None:
    made = emulator_profile(profile)
    ratios = []
    for sample in campaign.samples:
        point = sample.point
        if point.mode == "prefill":
            took_s = made.truth.prefill_cost(point.prefill_shape, point.prefill_sms).seconds
        elif point.mode == "decode":
            took_s = made.truth.decode_s(padded(point.decode_shape), point.decode_sms)
        else:
            continue
        ratios.append(took_s / sample.seconds)
    assert len(ratios) > 200
    assert within_targets([abs(ratio - 1.0) for ratio in ratios])
    assert made.guard_default_ratio == profile.guard_default_ratio
