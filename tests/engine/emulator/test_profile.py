from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest

from pdmuxd.engine.core.errors import ProfileError
from pdmuxd.engine.core.types import DecodeShape, PrefillShape
from pdmuxd.engine.emulator import fit
from pdmuxd.engine.emulator.profile import DEFAULT_PROFILE, available_profiles, load_profile
from pdmuxd.engine.emulator.shapes import DEPLOYMENTS, QWEN3_30B_A3B
from pdmuxd.engine.profiling.document import read_file
from pdmuxd.engine.profiling.hardware import predict_s
from pdmuxd.engine.profiling.measurement import settled

MEASURED = Path(__file__).parents[3] / "docs/measurements"


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_the_shipped_profile_is_the_derived_one_when_it_is_made_again(name: str) -> None:
    out = io.StringIO()
    fit.main([name], out.write)
    again, shipped = json.loads(out.getvalue()), load_profile(name)
    assert again["provenance"] == shipped.provenance
    assert again["provenance"].startswith("derived: roofline")
    assert again["kv_capacity_tokens"] == shipped.kv_capacity_tokens
    for made, kept in zip(again["solo_run"], shipped.solo_run, strict=True):
        assert made["decode"]["fixed_s"] == pytest.approx(kept.decode.fixed_s, rel=1e-5)
        assert made["prefill"]["per_new_s"] == pytest.approx(kept.prefill.per_new_s, rel=1e-5)


def test_a_model_with_experts_is_emulated_by_its_own_shape() -> None:
    profile = load_profile("h200-qwen3-30b-a3b")
    assert profile.model == QWEN3_30B_A3B
    # 61 GB of 0.88 x 141 are weights, and a token keeps 96 KiB.
    assert profile.kv_capacity_tokens == pytest.approx((0.88 * 141e9 - 61e9) / 98304, rel=0.01)
    one, many = (profile.truth.decode_s(DecodeShape(bs=bs, reused_tokens=bs * 100), 132) for bs in (1, 64))
    assert many > 3 * one, "64 rows read nearly all experts, one row 8 of 128"
    for bs in (1, 8, 20, 64, 200):
        batch = DecodeShape(bs=bs, reused_tokens=bs * 1000)
        truth_s = profile.truth.decode_s(batch, 132)
        assert profile.predictor.decode_s(batch, 132) == pytest.approx(truth_s, rel=0.15)


def test_predictions_are_near_the_truth_when_batches_are_common() -> None:
    profile = load_profile("h200-llama-8b")
    for sms in (20, 36, 52, 68, 100, 132):
        for shape in (DecodeShape(bs=16, reused_tokens=20_000), DecodeShape(bs=64, reused_tokens=100_000)):
            truth = profile.truth.decode_s(shape, sms)
            assert profile.predictor.decode_s(shape, sms) == pytest.approx(truth, rel=0.2)
        for prompt in ((2000, 0), (12_000, 4000)):
            batch = PrefillShape.of([prompt])
            truth = profile.truth.prefill_s(batch, sms)
            assert profile.predictor.prefill_s(batch, sms) == pytest.approx(truth, rel=0.1)


@pytest.mark.parametrize(
    ("source", "name", "fused"),
    [
        ("h200/llama-8b", "h200-llama-8b-measured", 0.005),
        ("h200/codellama-34b", "h200-codellama-34b-measured", 0.005),
        ("h200/qwen3-8b", "h200-qwen3-8b-measured", 0.05),
        ("h200/qwen3-14b", "h200-qwen3-14b-measured", 0.065),
        ("h200/llama-8b.partition-kernels", "h200-llama-8b-served", 0.02),
        ("h100/llama-8b-sampled", "h100-llama-8b-served", 0.02),
    ],
)
def test_what_was_measured_on_the_device_is_the_truth_when_a_profile_is_a_measured_one(
    source: str, name: str, fused: float
) -> None:
    measured = read_file(MEASURED / f"{source}.profile.json.gz")
    truth = load_profile(name).truth
    errors: dict[str, list[float]] = {}
    for sample in settled(measured.samples):
        if sample.point.mode != "colocated":
            took_s = predict_s(truth, sample.point, measured.captured_decode_bs)
            if sample.point.mode == "prefill" and sample.launch_s:  # held until all of it was launched
                took_s = truth.prefill_cost(sample.point.prefill_shape, sample.point.prefill_sms).seconds
            errors.setdefault(sample.point.mode, []).append(abs(took_s / sample.seconds - 1.0))
    for mode, median in (("prefill", 0.03), ("decode", 0.015), ("fused", fused)):
        assert float(np.median(errors[mode])) <= median, mode


def test_policies_and_the_device_agree_on_a_count_that_was_not_measured() -> None:
    """28 SMs are what 104 leave: at 64 requests they decode as 22 in whole groups, between 16 and 24."""
    profile = load_profile("h200-llama-8b-served")
    truth, decode, prefill = (
        profile.truth,
        DecodeShape(bs=64, reused_tokens=30_000),
        PrefillShape.of([(4000, 0)]),
    )
    assert truth.decode_s(decode, 16) > truth.decode_s(decode, 28) > truth.decode_s(decode, 24)
    assert truth.prefill_s(prefill, 100) > truth.prefill_s(prefill, 104) > truth.prefill_s(prefill, 108)
    assert truth.prefill_cost(prefill, 104).seconds <= truth.prefill_s(prefill, 104)
    assert profile.predictor.decode_s(decode, 28) == pytest.approx(truth.decode_s(decode, 28))
    assert profile.predictor.prefill_s(prefill, 104) == pytest.approx(truth.prefill_s(prefill, 104))
    far = load_profile("h200-llama-8b-measured").truth
    assert far.decode_s(decode, 8) > far.decode_s(decode, 20), "its fewest SMs are 20"


@pytest.mark.parametrize("device", ["h200", "h100"])
def test_a_device_as_served_has_the_splits_of_the_engine(device: str) -> None:
    profile = load_profile(f"{device}-llama-8b-served")
    splits = profile.policy_context.splits
    assert splits is not None
    assert [(each.prefill_sms, each.decode_sms) for each in splits[:3]] == [(124, 8), (116, 16), (108, 24)]
    assert all(each.decode_sms % 8 == 0 for each in splits)
    assert load_profile("h200-llama-8b-measured").policy_context.splits is None


def test_latency_falls_with_sms_when_the_partition_grows() -> None:
    truth = load_profile("h200-llama-8b").truth
    decode = [truth.decode_s(DecodeShape(bs=64, reused_tokens=100_000), sms) for sms in range(8, 133, 4)]
    prefill = [truth.prefill_s(PrefillShape.of([(8000, 0)]), sms) for sms in range(8, 133, 4)]
    assert decode == sorted(decode, reverse=True)
    assert prefill == sorted(prefill, reverse=True)


def test_the_shipped_ones_are_named_when_a_profile_is_unknown() -> None:
    assert DEFAULT_PROFILE in available_profiles()
    with pytest.raises(ProfileError, match=r"unknown profile 'h300'; shipped are .*h200-llama-8b"):
        load_profile("h300")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"kv_capacity_tokens": "many"}, r"Expected `int`, got `str` - at `\$\.kv_capacity_tokens`"),
        ({"kv_capacity_tokens": 0}, "kv_capacity_tokens must be positive"),
        ({"format": 9}, "format is 9; this version reads 2"),
        ({"provenance": "guessed"}, "provenance must start with"),
        ({"contention_ratio": 2.0}, "contention_ratio must be within 0 and 1"),
        ({"decode_colocated_ratio": -0.1}, "decode_colocated_ratio must be within 0 and 1"),
        ({"prefill_colocated_ratio": 1.1}, "prefill_colocated_ratio must be within 0 and 1"),
    ],
)
def test_the_field_is_named_when_a_profile_is_wrong(
    tmp_path: Path, change: dict[str, object], told: str
) -> None:
    out = io.StringIO()
    fit.main(["h200-llama-8b"], out.write)
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(json.loads(out.getvalue()) | change))
    with pytest.raises(ProfileError, match=told):
        load_profile(str(path))


def test_the_file_is_named_when_it_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"absent\.json: cannot be read"):
        load_profile(str(tmp_path / "absent.json"))
