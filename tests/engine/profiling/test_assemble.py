"""A profile from samples of a device whose law is known: what is fitted, what is left out and said so."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from profiling import decode_samples, measured_pairs, prefill_samples, target_of

from pdmuxd.daemon.profiling.check import unseen_bounds
from pdmuxd.engine.core.errors import ProfileError
from pdmuxd.engine.core.guard import UNMEASURED_RATIO
from pdmuxd.engine.core.roofline import RooflineModel
from pdmuxd.engine.core.types import DecodeShape, PrefillShape
from pdmuxd.engine.emulator.measuring import Noise
from pdmuxd.engine.emulator.profile import load_profile
from pdmuxd.engine.profiling import assemble as assembling
from pdmuxd.engine.profiling.assemble import assemble
from pdmuxd.engine.profiling.document import MeasuredProfile, from_json, to_json
from pdmuxd.engine.profiling.gate import trusted
from pdmuxd.engine.profiling.launching import LaunchCost
from pdmuxd.engine.profiling.measurement import Sample, Target
from pdmuxd.engine.profiling.serving_design import fused_design
from pdmuxd.engine.profiling.solo_predictors import fit_solo_runs

HIDDEN = load_profile("h200-llama-8b")
ROOFLINE = RooflineModel(model=HIDDEN.model, device=HIDDEN.device, overheads=HIDDEN.overheads)
# Without sizes of graphs: their tables take seconds to fit, and the campaign's tests fit them.
TARGET = target_of(HIDDEN)
TARGET = type(TARGET).of(msgspec.structs.replace(TARGET.hello, captured_decode_bs=()))
SMS = 64


def prefills(sms: int = SMS) -> list[Sample]:
    return prefill_samples(lambda shape: ROOFLINE.prefill_s(shape, sms), noise=0.005, sms=sms)[::2]


def decodes(sms: int = SMS) -> list[Sample]:
    return decode_samples(lambda shape: ROOFLINE.decode_s(shape, sms), noise=0.005, sms=sms)[::2]


def made_of(samples: list[Sample]) -> MeasuredProfile:
    return assemble(
        "mine", TARGET, samples, measured_at="2026-01-31T12:00:00Z", took_s=12.0, interrupted=True
    )


@pytest.fixture(scope="module")
def profile() -> MeasuredProfile:
    return made_of([*prefills(), *decodes(), *prefills(16)[:3]])


def test_predictors_say_what_the_device_does_on_shapes_between(profile: MeasuredProfile) -> None:
    (fit,) = profile.solo_run
    assert fit.sms == SMS
    assert fit.prefill is not None
    assert fit.decode is not None
    shape, batch = PrefillShape.of([(1800, 700)]), DecodeShape(bs=24, reused_tokens=24 * 2500)
    assert fit.prefill.predict_s(shape) == pytest.approx(ROOFLINE.prefill_s(shape, SMS), rel=0.06)
    assert fit.decode.predict_s(batch, ()) == pytest.approx(ROOFLINE.decode_s(batch, SMS), rel=0.06)


def test_how_good_each_fit_is_stands_beside_it(profile: MeasuredProfile) -> None:
    assert [(one.predictor, one.sms) for one in profile.fits] == [
        ("prefill", SMS),
        ("decode", SMS),
        ("roofline", 0),
    ]
    assert profile.worst_p90 < 0.05


def test_what_had_too_few_samples_is_left_out_and_named(profile: MeasuredProfile) -> None:
    assert profile.guard is None
    assert (profile.guard_default_ratio, profile.guard_cells) == (UNMEASURED_RATIO, ())
    said = " ".join(profile.left_out)
    assert "prefill on 16 SMs" in said
    assert "the guard: 0 pairs" in said


def test_a_profile_says_where_it_is_from_and_can_be_stored(profile: MeasuredProfile) -> None:
    told = profile.provenance
    assert (profile.name, told.took_s, told.interrupted) == ("mine", 12.0, True)
    assert told.samples == len(profile.samples)
    assert (told.model_hash, profile.total_sms) == (TARGET.hello.model_hash, TARGET.hello.total_sms)
    assert from_json(to_json(profile), "it") == profile


def test_no_profile_comes_of_samples_that_do_not_even_allow_a_roofline() -> None:
    with pytest.raises(ProfileError, match="the device: 3 solo samples"):
        made_of(prefills()[:3])


@pytest.mark.parametrize(("graph_tokens", "is_bound"), [(0, True), (2048, False)])
def test_launching_is_the_least_of_a_fused_batch_when_no_batch_is_one_launch(
    graph_tokens: int, is_bound: bool
) -> None:
    hello = target_of(load_profile("h200-llama-8b")).hello
    assert hello.overheads is not None
    overheads = replace(hello.overheads, fused_graph_tokens=graph_tokens)
    target = Target.of(msgspec.structs.replace(hello, overheads=overheads))
    points = [point for point in fused_design(target) if point.kv_tokens < target.kv_tokens][:60]
    samples = [
        Sample(
            point=one,
            decode_s=0.004 + 2e-5 * (one.prefill_shape.new_tokens + len(one.decode)),
            launch_s=(0.02,),
        )
        for one in points
    ]
    cost = LaunchCost(per_layer_s=0.02 / target.model.layers, per_request_s=0.0, high_ratio=1.0, launches=60)
    (run,), _ = fit_solo_runs(samples, target, cost, [])
    assert run.fused is not None
    took_s = run.fused.predict_s(PrefillShape.of([(64, 0)]), DecodeShape.of((100,)))
    assert took_s == pytest.approx(0.02 if is_bound else 0.0053, rel=0.08)


def test_the_guard_bounds_pairs_beside_what_serves_when_a_fit_is_doubtful(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A fit that predicts three times too much leaves nothing of a slowdown; the roofline serves for it."""

    def doubtful(*given: object) -> object:
        runs, fits = fit_solo_runs(*given)  # type: ignore[arg-type]
        slow = tuple(
            msgspec.structs.replace(run, decode=run.decode and run.decode.scaled(3.0)) for run in runs
        )
        bad = [
            msgspec.structs.replace(fit, errors=replace(fit.errors, p90=2.0))
            if fit.predictor == "decode"
            else fit
            for fit in fits
        ]
        return slow, bad

    monkeypatch.setattr(assembling, "fit_solo_runs", doubtful)
    pairs = measured_pairs(TARGET, HIDDEN, noise=Noise(ratio=0.005, seed=3), each=12)
    decoding = [one for sms in TARGET.decode_sizes for one in decodes(sms)]
    profile = made_of([*prefills(), *decoding, *pairs])
    assert all(run.decode is None for run in trusted(profile).solo_run)
    bounds = unseen_bounds(trusted(profile), pairs)
    assert sum(one < 1.0 for one in bounds) <= 0.05 * len(bounds)
    assert sum(bounds) / len(bounds) < 1.3
