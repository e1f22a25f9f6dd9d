"""What is said of a profile before it comes into force."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from profiling import greeting_of, measured_profile

from pdmuxd.engine.core.latency import DecodeCoefficients
from pdmuxd.engine.profiling.assessment import differences, uncertainties

PROFILE, HELLO = measured_profile(), greeting_of()


def doubled(decode: DecodeCoefficients) -> DecodeCoefficients:
    return replace(decode, per_request_s=2 * decode.per_request_s, fixed_s=2 * decode.fixed_s)


def test_a_profile_does_not_differ_from_itself() -> None:
    assert differences(PROFILE, PROFILE) == ()


def test_what_differs_is_told_with_its_unit_and_what_one_lacks_as_nothing() -> None:
    device = msgspec.structs.replace(PROFILE, guard_default_ratio=1.2, guard_cells=())
    told = {one.quantity: (one.unit, one.before, one.after) for one in differences(PROFILE, device)}
    assert told == {
        "guard where nothing is known": ("ratio", 1.1, 1.2),
        "guard, mean of its cells": ("ratio", 1.2, None),
        "guard, highest cell": ("ratio", 1.2, None),
    }


def test_a_slower_fit_shows_as_milliseconds_of_a_named_batch() -> None:
    first = PROFILE.solo_run[0]
    assert first.decode is not None
    slower = msgspec.structs.replace(first, decode=doubled(first.decode))
    (one,) = differences(PROFILE, msgspec.structs.replace(PROFILE, solo_run=(slower, *PROFILE.solo_run[1:])))
    assert one.quantity == f"decode step of 32 x 1024 tokens on {first.sms} SMs"
    assert one.unit == "ms"
    assert one.after == pytest.approx(2.0 * (one.before or 0.0))


def test_shapes_far_from_what_was_measured_are_the_least_certain() -> None:
    found = [one for one in uncertainties(PROFILE) if one.predictor == "prefill"]
    assert [one.error for one in found] == sorted((one.error for one in found), reverse=True)
    by_shape = {(one.size, one.reused_tokens): one.error for one in found}
    assert by_shape[16384, 32768] > by_shape[1024, 0], "measured were 128, 1024 and 4096 new tokens"
    assert min(by_shape.values()) >= PROFILE.fits[0].errors.p50
    assert {one.sms for one in found} == {PROFILE.fits[0].sms}


def test_nothing_is_said_of_a_predictor_without_samples() -> None:
    assert not [one for one in uncertainties(PROFILE) if one.predictor == "decode"]
