"""Predictions on SM counts that were not measured, by hand and on campaigns of GPUs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdmuxd.engine.core.latency import DecodeCoefficients, PrefillCoefficients, SoloRunModel
from pdmuxd.engine.core.sm_counts import between_counts, predict_s
from pdmuxd.engine.core.types import DecodeShape, PrefillShape
from pdmuxd.engine.link.predictors import latency_model
from pdmuxd.engine.profiling.document import MeasuredProfile, read_file
from pdmuxd.engine.profiling.measurement import settled

MEASURED = Path(__file__).parents[3] / "docs/measurements"


def never(sms: int) -> float:
    raise AssertionError(f"asked about {sms} SMs")


@given(st.floats(0.0, 1.0), st.floats(0.1, 100.0), st.integers(8, 132))
def test_what_has_a_part_that_sms_share_and_one_that_they_do_not_is_met_exactly(
    fixed_s: float, shared_s: float, sms: int
) -> None:
    def of(n: int) -> float:
        return fixed_s + shared_s / n

    assert predict_s(sms, (8, 32, 132), of, never) == pytest.approx(of(sms))


def test_only_the_nearest_counts_on_either_side_are_asked() -> None:
    seconds = {8: 99.0, 20: 4.0, 30: 2.0, 60: 77.0}
    assert between_counts(24, seconds, seconds.__getitem__) == pytest.approx(3.0)  # 1/24: halfway
    assert between_counts(30, seconds, seconds.__getitem__) == 2.0


@pytest.mark.parametrize("measured", [(), (16,), (8, 64)])
def test_the_roofline_predicts_when_hardly_any_count_was_measured(measured: tuple[int, ...]) -> None:
    assert predict_s(32, measured, never, lambda sms: 100.0 / sms) == 100.0 / 32


@pytest.mark.parametrize(("sms", "seconds"), [(4, 50.0), (40, 0.25)])
def test_beyond_all_counts_the_roofline_is_as_far_off_as_at_the_end(sms: int, seconds: float) -> None:
    """On 8 SMs it says half of what was measured, on 20 ten times as much."""
    measured = {8: 25.0, 10: 7.0, 20: 0.5}
    assert predict_s(sms, measured, measured.__getitem__, lambda n: 100.0 / n) == pytest.approx(seconds)


def test_no_ratio_is_taken_to_a_roofline_of_no_time() -> None:
    assert predict_s(4, (8, 16, 32), lambda _: 1.0, lambda _: 0.0) == 0.0


def test_a_count_is_as_good_as_its_position() -> None:
    """28 SMs that decode as 24 would."""
    seconds = {16: 3.0, 24: 2.0, 32: 1.0}
    assert between_counts(28, seconds, seconds.__getitem__, lambda n: 24.0 if n == 28 else n) == 2.0


def model(profile: MeasuredProfile, without: int = 0) -> SoloRunModel:
    """Predictors of a profile as if an SM count had not been measured."""
    predictors = profile.predictors(0)
    whole = latency_model(predictors, profile.roofline)
    return replace(
        whole,
        prefill={sms: fit for sms, fit in whole.prefill.items() if sms != without},
        decode={sms: fit for sms, fit in whole.decode.items() if sms != without},
    )


Predict = Callable[[SoloRunModel, DecodeShape, int], float]


def decode_errors(profile: MeasuredProfile, predict: Predict) -> tuple[float, float]:
    """p50 and p90 over the decode samples of each count in turn, predicted without it."""
    samples = [one for one in settled(profile.samples) if one.point.mode == "decode"]
    counts = sorted({one.sms for one in samples})[1:-1]
    errors = []
    for sms in counts:
        others = model(profile, without=sms)
        errors += [
            abs(predict(others, one.point.decode_shape, sms) / one.seconds - 1.0)
            for one in samples
            if one.sms == sms
        ]
    p50, p90 = np.percentile(errors, (50.0, 90.0))
    return float(p50), float(p90)


def by_fits(model: SoloRunModel, shape: DecodeShape, sms: int) -> float:
    return model.decode_s(shape, sms)


def by_roofline(model: SoloRunModel, shape: DecodeShape, sms: int) -> float:
    """What a count without samples was predicted by, before; here the roofline has even seen its samples."""
    return replace(model, decode={}).decode_s(shape, sms)


def as_whole_groups(model: SoloRunModel, shape: DecodeShape, sms: int) -> float:
    return replace(model, device=None).decode_s(shape, sms)


@pytest.mark.parametrize(
    "name",
    ["h200/llama-8b-at-work", "h200/llama-8b.partition-kernels", "h100/llama-8b-at-work", "h100/llama-8b"],
)
def test_decode_on_a_count_that_was_left_out_is_nearer_than_the_roofline_is(name: str) -> None:
    """Whole groups, whose fits lie between 8 and 132 SMs."""
    profile = read_file(MEASURED / f"{name}.profile.json.gz")
    ours, roofline = decode_errors(profile, by_fits), decode_errors(profile, by_roofline)
    assert ours[0] < roofline[0]
    assert ours[1] < roofline[1]
    assert ours == decode_errors(profile, as_whole_groups)


@pytest.mark.parametrize("name", ["codellama-34b", "llama-8b-tp2", "llama-8b", "qwen3-14b", "qwen3-8b"])
def test_what_a_split_leaves_decodes_as_fewer_sms_do(name: str) -> None:
    """Counts of 20 to 100, each what a split leaves, and 132. How many SMs count was read from Llama-8B."""
    profile = read_file(MEASURED / f"h200/{name}.profile.json.gz")
    ours, roofline = decode_errors(profile, by_fits), decode_errors(profile, by_roofline)
    as_whole = decode_errors(profile, as_whole_groups)
    assert ours[0] < roofline[0]
    assert ours[1] < roofline[1]
    assert ours[0] <= 1.02 * as_whole[0]
    assert ours[1] < as_whole[1]


def test_what_was_measured_is_predicted_by_its_own_fit() -> None:
    profile = read_file(MEASURED / "h200/llama-8b-at-work.profile.json.gz")
    ours = model(profile)
    decode, prefill = DecodeShape(bs=100, reused_tokens=30_000), PrefillShape.of([(900, 2000)])
    for run in profile.solo_run:
        if run.decode is not None:
            padded = profile.captured_decode_bs
            assert ours.decode_s(decode, run.sms) == run.decode.predict_s(decode, padded)
        if run.prefill is not None:
            assert ours.prefill_s(prefill, run.sms) == run.prefill.predict_s(prefill)
            assert ours.colocated_ratio(run.sms) == (
                run.prefill.colocated_ratio or profile.roofline.colocated_ratio(run.sms)
            )


def test_prefill_and_its_slowdown_are_between_those_of_the_counts_around() -> None:
    profile = read_file(MEASURED / "h200/llama-8b-at-work.profile.json.gz")
    ours, shape = model(profile), PrefillShape.of([(2048, 4096)])
    assert ours.prefill_s(shape, 100) > ours.prefill_s(shape, 104) > ours.prefill_s(shape, 108)
    assert ours.request_s(2048, 4096, 104) == ours.prefill_s(shape, 104)
    assert ours.colocated_ratio(100) > ours.colocated_ratio(104) > ours.colocated_ratio(108)


def test_the_fallback_predicts_a_count_whose_fit_it_replaces() -> None:
    profile = read_file(MEASURED / "h200/llama-8b-at-work.profile.json.gz")
    ours = model(profile)
    replaced = replace(ours, decode={**ours.decode, 24: None}, prefill={**ours.prefill, 108: None})
    decode, prefill = DecodeShape(bs=176, reused_tokens=50_000), PrefillShape.of([(2048, 0)])
    assert replaced.decode_s(decode, 24) == ours.fallback.decode_s(decode, 24) != ours.decode_s(decode, 24)
    assert replaced.prefill_s(prefill, 108) == ours.fallback.prefill_s(prefill, 108)
    assert replaced.request_s(2048, 0, 108) == ours.fallback.request_s(2048, 0, 108)
    assert replaced.colocated_ratio(108) == ours.fallback.colocated_ratio(108)
    assert replaced.decode_s(decode, 28) != ours.decode_s(decode, 28), "it is a count around 28 all the same"


def test_a_count_without_samples_is_predicted_alike_by_coefficients_of_one_line() -> None:
    """20 ms of two that all SMs share, on 10, 20 and 40 of them."""
    decode = {
        n: DecodeCoefficients(per_reused_s=0.0, per_request_s=0.8 / n, fixed_s=0.002) for n in (10, 20, 40)
    }
    prefill = {
        n: PrefillCoefficients(
            per_new_squared_s=0.0, per_new_times_reused_s=0.0, per_new_s=0.4 / n, fixed_s=0.001
        )
        for n in (10, 20, 40)
    }
    profile = read_file(MEASURED / "h200/llama-8b-at-work.profile.json.gz")
    ours = SoloRunModel(prefill=prefill, decode=decode, fallback=profile.roofline)
    assert ours.decode_s(DecodeShape(bs=3, reused_tokens=9), 25) == pytest.approx(0.002 + 2.4 / 25)
    assert ours.prefill_s(PrefillShape.of([(5, 0)]), 16) == pytest.approx(0.001 + 2.0 / 16)
