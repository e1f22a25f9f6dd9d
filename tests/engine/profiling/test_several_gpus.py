"""A model that several GPUs hold together: what is believed of them, and what a profile of them says."""

from __future__ import annotations

import json

import pytest
from profiling import Measured, assembled, greeting_of, measured_profile, run_campaign

from pdmuxd.daemon.profiling.emulated import emulator_profile
from pdmuxd.engine.emulator.measuring import NO_NOISE
from pdmuxd.engine.emulator.profile import load_profile
from pdmuxd.engine.profiling.document import MeasuredProfile, from_json, to_json
from pdmuxd.engine.profiling.measurement import Point, Target

pytestmark = pytest.mark.slow

HIDDEN = load_profile("8xa100-llama-70b")


@pytest.fixture(scope="module")
def campaign() -> Measured:
    return run_campaign(budget_s=300.0, noise=NO_NOISE, hidden=HIDDEN, stop_after=60)


@pytest.fixture(scope="module")
def profile(campaign: Measured) -> MeasuredProfile:
    return assembled(campaign)


def test_an_engine_says_how_many_gpus_hold_its_model() -> None:
    assert greeting_of("8xa100-llama-70b").tensor_parallel == HIDDEN.tensor_parallel
    assert greeting_of().tensor_parallel.gpus == 1


def test_each_gpus_share_of_the_model_is_believed_before_anything_is_measured() -> None:
    target = Target.of(greeting_of("8xa100-llama-70b"))
    point = Point(mode="prefill", prefill_sms=108, decode_sms=0, prefill=((2048, 0),))
    assert target.prior.prefill_s(point.prefill_shape, 108) == HIDDEN.truth.prefill_s(
        point.prefill_shape, 108
    )


def test_the_hidden_hardware_is_recovered_when_gpus_sum_over_each_other(
    profile: MeasuredProfile, campaign: Measured
) -> None:
    assert profile.device.flops == pytest.approx(HIDDEN.device.flops, rel=0.1)
    assert profile.device.bytes_per_s == pytest.approx(HIDDEN.device.bytes_per_s, rel=0.1)
    exported = emulator_profile(profile).truth
    for sample in campaign.samples:
        if sample.point.mode == "prefill":
            assert exported.prefill_cost(sample.point.prefill_shape, sample.sms).seconds == pytest.approx(
                sample.seconds, rel=0.2
            )


def test_a_profile_says_of_how_many_gpus_it_is(profile: MeasuredProfile) -> None:
    assert profile.tensor_parallel == profile.roofline.tensor_parallel == HIDDEN.tensor_parallel
    assert profile.predictors(3).gpus == 8
    assert profile.provenance_line.startswith("measured: m on 8 x NVIDIA A100")
    assert from_json(to_json(profile), "x") == profile


def test_a_profile_is_of_one_gpu_when_it_does_not_say() -> None:
    document = json.loads(to_json(measured_profile()))
    del document["tensor_parallel"]
    found = from_json(json.dumps(document), "x")
    assert found.predictors(3).gpus == 1
    assert found.provenance_line.startswith("measured: m on NVIDIA H200, 3 samples")
