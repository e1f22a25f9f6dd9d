"""What steps take while serving, beside what a campaign measured of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from engines import PROFILE

from pdmuxd.engine.core.errors import ProfileError
from pdmuxd.engine.core.roofline import NO_PREFILL
from pdmuxd.engine.core.types import DecodeShape, PrefillShape
from pdmuxd.engine.emulator.device import Device
from pdmuxd.engine.emulator.engine import EmulatedEngine
from pdmuxd.engine.emulator.launches import Launches
from pdmuxd.engine.emulator.measuring import measure
from pdmuxd.engine.emulator.profile import Profile, load_profile
from pdmuxd.engine.emulator.requests import EmulatedRequest
from pdmuxd.engine.link.measuring import Measure

PROMPT = PrefillShape.of([(480, 0)])
BATCH = DecodeShape(bs=32, reused_tokens=32_000, max_context_tokens=1_000)


def gap_s(profile: Profile) -> float:
    """Between the last two tokens of a request that is alone."""
    engine = EmulatedEngine(profile=profile, policy="chunked:512", block_tokens=16)
    request = EmulatedRequest(
        request_id="one", tenant="t", arrival_s=0.0, input_tokens=64, output_tokens=8, block_keys=()
    )
    engine.submit(request, 0.0)
    engine.advance(5.0)
    times_s = engine.token_times(request)
    return float(times_s[-1] - times_s[-2])


def test_a_fused_step_is_longer_by_ratio_and_launches_while_serving() -> None:
    launches = Launches(fused_step_s=1e-3, fused_layer_s=1e-5, fused_layer_request_s=1e-6)
    truth = replace(PROFILE, fused_serving_ratio=1.5, launches=launches).truth
    campaign_s = PROFILE.truth.fused_s(PROMPT, BATCH, 132)
    assert truth.fused_s(PROMPT, BATCH, 132) == campaign_s
    added_s = 1e-3 + PROFILE.model.layers * (1e-5 + 32 * 1e-6)
    assert truth.serving_fused_s(PROMPT, BATCH, 132) == pytest.approx(1.5 * campaign_s + added_s)
    assert truth.serving_fused_s(NO_PREFILL, BATCH, 132) == truth.fused_s(NO_PREFILL, BATCH, 132)


def test_only_decode_is_longer_by_the_ratio_when_both_streams_are_busy() -> None:
    def ends_s(ratio: float) -> tuple[float, float, float]:
        d = Device(bytes_per_s=100.0, contention_ratio=0.0, colocated_serving_ratio=ratio)
        layers = d.launch(d.prefill, solo_s=10.0, sms=96, hbm_bytes=10.0)
        beside = d.launch(d.decode, solo_s=1.0, sms=32, hbm_bytes=10.0)
        beside_s, layers_s = d.run_until(beside.end), d.run_until(layers.end)
        alone = d.launch(d.decode, solo_s=1.0, sms=32, hbm_bytes=10.0)
        return beside_s, layers_s, d.run_until(alone.end) - layers_s

    assert ends_s(1.25) == (pytest.approx(1.25), pytest.approx(10.0), pytest.approx(1.0))
    assert ends_s(1.0)[0] == pytest.approx(1.0)


def test_a_campaign_measures_no_serving_when_a_profile_has_ratios() -> None:
    profile = replace(PROFILE, fused_serving_ratio=1.5, colocated_serving_ratio=1.5)
    table = EmulatedEngine(profile=profile, policy="static:96,36").table
    for mode, prefill_sms, decode_sms in (("fused", 132, 132), ("colocated", 96, 36)):
        asked = Measure(
            point_id=1, mode=mode, prefill_sms=prefill_sms, decode_sms=decode_sms,
            prefill=((2048, 0),), decode=(512,) * 16, repeats=1,
        )  # fmt: skip
        found, plain = measure(profile, table, asked), measure(PROFILE, table, asked)
        assert found.error is None
        assert (found.prefill_s, found.decode_s) == (plain.prefill_s, plain.decode_s)


def test_decode_steps_wait_for_the_host_when_nothing_is_launched_ahead() -> None:
    slower = replace(PROFILE, launches=Launches(decode_step_s=4e-3))
    assert gap_s(slower) - gap_s(PROFILE) == pytest.approx(4e-3, rel=1e-3)


@pytest.mark.parametrize("field", ["fused_serving_ratio", "colocated_serving_ratio"])
def test_the_field_is_named_when_a_serving_ratio_is_out_of_range(field: str) -> None:
    with pytest.raises(ProfileError, match=f"{field} must be within 0.5 and 2"):
        replace(PROFILE, **{field: 2.5})


@pytest.mark.parametrize("model", ["llama-8b", "codellama-34b"])
def test_what_policies_believe_is_the_campaign_and_serving_takes_longer(model: str) -> None:
    profile = load_profile(f"h200-{model}-measured")
    believed_s = profile.predictor.fused_s(PROMPT, BATCH, 132)
    assert believed_s == pytest.approx(profile.truth.fused_s(PROMPT, BATCH, 132))
    assert 1.02 < profile.truth.serving_fused_s(PROMPT, BATCH, 132) / believed_s < 1.10
