"""Predictors as values of the core."""

from __future__ import annotations

import pytest
from msgspec import structs

from pdmuxd.engine.core.latency import DecodeCoefficients, FusedCoefficients, PrefillCoefficients
from pdmuxd.engine.core.types import DecodeShape, PrefillShape
from pdmuxd.engine.emulator.profile import load_profile
from pdmuxd.engine.link.predictors import (
    Correction,
    Predictors,
    SoloRun,
    contention_guard,
    latency_model,
)

PREFILL = PrefillCoefficients(per_new_squared_s=0.0, per_new_times_reused_s=0.0, per_new_s=0.001, fixed_s=0.5)
DECODE = DecodeCoefficients(per_reused_s=0.0, per_request_s=0.01, fixed_s=0.0)
PROFILE = load_profile("h200-llama-8b")


def predictors(*corrections: Correction) -> Predictors:
    return Predictors(
        profile_id=3,
        profile="p",
        provenance="measured: by hand",
        solo_run=(
            SoloRun(
                sms=64,
                prefill=PREFILL,
                decode=DECODE,
                fused=FusedCoefficients(prefill=PREFILL, per_reused_s=0.1),
            ),
        ),
        guard_default_ratio=1.2,
        guard_cells=(((64, 0, 0, 1, 0), 1.5),),
        guard_frozen=True,
        corrections=corrections,
        captured_decode_bs=(1, 2, 4, 8),
    )


def model_of(*corrections: Correction):
    return latency_model(predictors(*corrections), PROFILE.truth)


def test_a_batch_is_padded_to_its_graph_when_decode_is_predicted() -> None:
    assert model_of().decode_s(DecodeShape(bs=5, reused_tokens=0), 64) == 0.08
    assert model_of().decode_s(DecodeShape(bs=9, reused_tokens=0), 64) == 0.09


def test_a_mixed_batch_is_predicted_by_its_fit_when_there_is_one() -> None:
    fused_s = model_of().fused_s(PrefillShape.of([(100, 0)]), DecodeShape(bs=20, reused_tokens=3), 64)
    assert abs(fused_s - (0.5 + 0.120 + 0.3)) < 1e-12


def test_work_is_slower_by_the_correction_when_there_is_one() -> None:
    model = model_of(Correction(sms=64, prefill_ratio=2.0, decode_ratio=1.5))
    assert model.prefill_s(PrefillShape.of([(100, 0)]), 64) == 1.2
    assert model.decode_s(DecodeShape(bs=2, reused_tokens=0), 64) == 0.03


def test_the_roofline_predicts_when_a_size_has_no_fit() -> None:
    shape = PrefillShape.of([(1000, 0)])
    assert model_of().prefill_s(shape, 32) == PROFILE.truth.prefill_s(shape, 32)


def test_the_roofline_predicts_what_it_replaces_and_the_fits_around_what_was_not_measured() -> None:
    given = structs.replace(
        predictors(),
        solo_run=tuple(SoloRun(sms=sms, prefill=PREFILL, decode=DECODE) for sms in (16, 64, 80, 132)),
        by_roofline=(("prefill", 96), ("decode", 32)),
    )
    model = latency_model(given, PROFILE.truth)
    prefill, decode = PrefillShape.of([(100, 0)]), DecodeShape(bs=4, reused_tokens=0)
    assert model.prefill_s(prefill, 96) == PROFILE.truth.prefill_s(prefill, 96)
    assert model.decode_s(decode, 32) == PROFILE.truth.decode_s(decode, 32)
    assert model.prefill_s(prefill, 72) == pytest.approx(0.6)
    assert model.decode_s(decode, 72) == pytest.approx(0.04)


def test_the_guard_stays_as_it_is_when_frozen() -> None:
    guard = contention_guard(predictors())
    prefill, decode = PrefillShape.of([(100, 0)]), DecodeShape(bs=1, reused_tokens=5)
    assert guard.ratio(64, prefill, decode) == 1.5
    assert guard.learned((64, 0, 0, 1, 0), 3.0) is guard
