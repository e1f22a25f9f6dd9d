"""One law of the device's time for all SM counts: what it finds of known devices, and where it stays out."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import cache

import numpy as np
import pytest

from pdmuxd.engine.core.types import DecodeShape, PrefillShape
from pdmuxd.engine.profiling.device_law import LawFit, fit_device_law
from pdmuxd.engine.profiling.measurement import Point, Sample

TOTAL_SMS = 132
SIZES = (52, 76, 100, 132)
NEW = (16, 32, 64, 128, 200, 300, 450, 700, 1024, 1600, 2500, 4096, 8192)
WEIGHTS_S, TOKEN_SM_S = 0.005, 0.0027


def device_s(prefill: PrefillShape, decode: DecodeShape, sms: int) -> float:
    """The longer of the weights and of compute, so that the corner lies at 98 tokens on 52 SMs and at 245 on
    132."""
    computing = max(WEIGHTS_S, TOKEN_SM_S * (prefill.new_tokens + decode.bs) / sms)
    reading = 6e-8 * prefill.reused_tokens + 3e-8 * decode.reused_tokens + 2e-6 * decode.bs
    return (
        computing + 4e-8 * prefill.sum_new_squared / sms + 8e-8 * prefill.sum_new_times_reused / sms + reading
    )


def prefills(*, noise: float = 0.01, stride: int = 1) -> Mapping[int, list[Sample]]:
    chance = random.Random(3)
    groups: dict[int, list[Sample]] = {}
    for sms in SIZES:
        for new, reused in [*((new, 0) for new in NEW), (128, 8192), (512, 2048), (2048, 8192)][::stride]:
            point = Point(mode="prefill", prefill_sms=sms, decode_sms=0, prefill=((new, reused),))
            seconds = device_s(point.prefill_shape, DecodeShape(bs=0, reused_tokens=0), sms)
            sample = Sample(
                point=point, prefill_s=seconds * chance.lognormvariate(0.0, noise), launch_s=(0.02,)
            )
            groups.setdefault(sms, []).append(sample)
    return groups


@cache
def usual_fit() -> LawFit | None:
    """The law of one device's prefills, which all points of it are asked of."""
    return fit_device_law(prefills(), TOTAL_SMS)


@pytest.mark.parametrize("sms", SIZES)
@pytest.mark.parametrize("lengths", [[(48, 0)], [(110, 0)], [(180, 0)], [(3000, 0)], [(900, 3000)]])
def test_the_corner_is_found_where_it_lies_on_each_sm_count(sms: int, lengths: list[tuple[int, int]]) -> None:
    found = usual_fit()
    assert found is not None
    shape = PrefillShape.of(lengths)
    truth_s = device_s(shape, DecodeShape(bs=0, reused_tokens=0), sms)
    assert found.law.prefill(sms).device_s(shape) == pytest.approx(truth_s, rel=0.05)


def test_every_sample_is_judged_by_a_law_that_did_not_see_it() -> None:
    groups = prefills(noise=0.02)
    found = fit_device_law(groups, TOTAL_SMS)
    assert found is not None
    assert {sms: len(errors) for sms, errors in found.held_out.items()} == {
        s: len(g) for s, g in groups.items()
    }
    errors = np.abs(np.concatenate(list(found.held_out.values())))
    assert 0.008 < np.percentile(errors, 50.0) < 0.03, "neither better nor much worse than the scatter"
    assert set(found.outliers.values()) == {0}


def test_a_kernel_that_suits_one_sm_count_is_its_level() -> None:
    groups = {
        sms: [
            Sample(point=one.point, prefill_s=one.seconds * (1.08 if sms == 76 else 1.0), launch_s=(0.02,))
            for one in group
        ]
        for sms, group in prefills(noise=0.0).items()
    }
    found = fit_device_law(groups, TOTAL_SMS)
    assert found is not None
    shape = PrefillShape.of([(1500, 0)])
    ratios = {sms: found.law.prefill(sms).device_s(shape) for sms in SIZES}
    plain = {sms: device_s(shape, DecodeShape(bs=0, reused_tokens=0), sms) for sms in SIZES}
    assert ratios[76] / plain[76] > 1.03
    assert abs(ratios[100] / plain[100] - 1.0) < 0.03


def test_one_stalled_sample_does_not_move_the_law() -> None:
    groups = {sms: list(group) for sms, group in prefills(noise=0.0).items()}
    spoiled = groups[100][6]
    groups[100][6] = Sample(point=spoiled.point, prefill_s=2.0 * spoiled.seconds, launch_s=(0.02,))
    found = fit_device_law(groups, TOTAL_SMS)
    assert found is not None
    assert found.outliers[100] == 1
    shape = spoiled.point.prefill_shape
    assert found.law.prefill(132).device_s(shape) == pytest.approx(
        device_s(shape, DecodeShape(bs=0, reused_tokens=0), 132), rel=0.04
    )


def test_fused_batches_have_costs_of_decode_on_one_sm_count() -> None:
    samples = []
    for number, new in enumerate(NEW[:-2] * 4):
        bs, context = (1, 24, 100, 180)[number % 4], (200, 1500, 4000)[number % 3]
        point = Point(
            mode="fused",
            prefill_sms=TOTAL_SMS,
            decode_sms=TOTAL_SMS,
            prefill=((new, (0, 4096)[number % 2]),),
            decode=(context,) * bs,
        )
        seconds = device_s(point.prefill_shape, point.decode_shape, TOTAL_SMS)
        samples.append(Sample(point=point, decode_s=seconds, launch_s=(0.02,)))
    found = fit_device_law({TOTAL_SMS: samples}, TOTAL_SMS)
    assert found is not None
    prefill, decode = PrefillShape.of([(600, 0)]), DecodeShape.of((2000,) * 64)
    truth_s = device_s(prefill, decode, TOTAL_SMS)
    assert found.law.fused(TOTAL_SMS).predict_s(prefill, decode) == pytest.approx(truth_s, rel=0.04)


def test_nothing_is_fitted_when_samples_are_too_few() -> None:
    assert fit_device_law(prefills(stride=4), TOTAL_SMS) is None
    assert fit_device_law({}, TOTAL_SMS) is None
