"""One fit of prefill for all SM counts: what it finds of a known law, and where it stays out."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from profiling import prefill_samples

from pdmuxd.engine.core.types import PrefillShape
from pdmuxd.engine.emulator.profile import load_profile
from pdmuxd.engine.profiling.assemble import assemble
from pdmuxd.engine.profiling.joint import JointFit, fit_joint, is_better
from pdmuxd.engine.profiling.measurement import Sample

SIZES = (52, 68, 84, 100, 116, 132)
FLOOR_S = 0.016
LEVELS = dict(zip(SIZES, (1.05, 1.0, 0.96, 1.0, 1.03, 1.0), strict=True))
UNSEEN = ([(350, 0)], [(1900, 3000)], [(5200, 0)], [(800, 20000)], [(600, 0), (600, 0)])


def law(sms: int) -> Callable[[PrefillShape], float]:
    """A device with a part that SMs make faster, one that they do not, and a floor of launching."""

    def seconds(shape: PrefillShape) -> float:
        computing = 4e-3 * shape.new_tokens + 2e-7 * shape.sum_new_squared + 4e-7 * shape.sum_new_times_reused
        return max(FLOOR_S, (computing / sms + 1e-7 * shape.reused_tokens + 2e-3) * LEVELS[sms])

    return seconds


def groups(share: float = 0.3, sizes: Sequence[int] = SIZES) -> dict[int, list[Sample]]:
    chance = random.Random(3)
    return {
        sms: [one for one in prefill_samples(law(sms), noise=0.02, sms=sms) if chance.random() < share]
        for sms in sizes
    }


@pytest.fixture(scope="module")
def joint() -> JointFit:
    found = fit_joint(groups())
    assert found is not None
    return found


@pytest.mark.parametrize("sms", SIZES)
def test_unseen_shapes_are_predicted_when_each_sm_count_has_few_samples(joint: JointFit, sms: int) -> None:
    for lengths in UNSEEN:
        shape = PrefillShape.of(lengths)
        assert joint.coefficients[sms].predict_s(shape) == pytest.approx(law(sms)(shape), rel=0.05)
    assert joint.floor_s == pytest.approx(FLOOR_S, rel=0.03)


def test_every_sample_is_judged_by_a_fit_that_did_not_see_it(joint: JointFit) -> None:
    errors = np.concatenate(list(joint.held_out.values()))
    assert len(errors) == sum(map(len, groups().values()))
    assert 0.005 < np.percentile(np.abs(errors), 90.0) < 0.06
    assert set(joint.outliers.values()) == {0}


def test_nothing_is_fitted_when_sm_counts_or_samples_are_too_few() -> None:
    assert fit_joint(groups(sizes=SIZES[:2])) is None
    assert fit_joint(groups(share=0.04)) is None


def test_the_smaller_error_at_p90_decides_over_all_sm_counts(joint: JointFit) -> None:
    def errors(ratio: float) -> dict[int, np.ndarray]:
        return {sms: np.append(ratio * each, np.nan) for sms, each in joint.held_out.items()}

    assert is_better(joint, errors(1.1))
    assert not is_better(joint, errors(0.9))
    assert not is_better(joint, {})


def test_a_profile_has_the_joint_fit_when_it_is_better_and_says_how_good_it_is() -> None:
    emulated = load_profile("h200-llama-8b")
    from profiling import target_of

    samples = [sample for group in groups(share=0.22).values() for sample in group]
    profile = assemble(
        "mine", target_of(emulated), samples, measured_at="2026-01-31", took_s=1.0, interrupted=False
    )
    fits = [one for one in profile.fits if one.predictor == "prefill"]
    assert [one.sms for one in fits] == list(SIZES)
    joint = fit_joint({sms: [one for one in samples if one.sms == sms] for sms in SIZES})
    assert joint is not None
    for one, run in zip(fits, profile.solo_run, strict=True):
        assert one.errors.p90 < 0.08
        assert run.prefill == joint.coefficients[run.sms]
