from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdmuxd.engine.core.errors import ProfileError
from pdmuxd.engine.core.shapes import DeviceShape, ModelShape, TensorParallel

LLAMA_8B = ModelShape(
    name="llama-8b",
    layers=32,
    hidden=4096,
    intermediate=14336,
    heads=32,
    kv_heads=8,
    head_dim=128,
    vocab=128256,
    max_context_tokens=131072,
)
DEVICE = DeviceShape(
    name="a GPU",
    total_sms=100,
    min_sms=8,
    multiple_sms=8,
    flops=1000.0,
    bytes_per_s=500.0,
    bandwidth_curvature=4.5,
)
STRAIGHT = replace(DEVICE, bandwidth_curvature=1e-9)


def test_a_token_of_llama_8b_keeps_128_kib() -> None:
    assert LLAMA_8B.kv_bytes_per_token == 128 * 1024


def test_the_layers_of_llama_8b_hold_7_billion_weights() -> None:
    # Query and output 4096 x 4096, key and value 4096 x 1024, gate, up and down 4096 x 14336.
    assert LLAMA_8B.layer_weights == 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336
    assert 32 * LLAMA_8B.layer_weights == pytest.approx(7.0e9, rel=0.01)


def test_a_fifth_of_the_sms_reaches_three_fifths_of_the_bandwidth() -> None:
    assert DEVICE.bytes_per_s_on(20) == pytest.approx(0.6 * 500.0, rel=0.01)


def test_all_sms_reach_all_of_both() -> None:
    for curvature in (0.0, 0.8, 4.5):
        device = replace(DEVICE, compute_curvature=curvature)
        assert device.flops_on(100) == pytest.approx(1000.0)
        assert device.bytes_per_s_on(100) == pytest.approx(500.0)


def test_compute_follows_the_sms_when_it_is_not_curved() -> None:
    assert DEVICE.flops_on(25) == pytest.approx(250.0)
    assert STRAIGHT.bytes_per_s_on(25) == pytest.approx(125.0)


@given(st.floats(0.0, 8.0), st.integers(1, 99))
def test_an_sm_less_never_helps_when_the_curve_is_any(curvature: float, sms: int) -> None:
    device = replace(DEVICE, compute_curvature=curvature, bandwidth_curvature=max(curvature, 1e-12))
    assert 0.0 < device.flops_on(sms) < device.flops_on(sms + 1) <= 1000.0 * (1 + 1e-9)
    assert 0.0 < device.bytes_per_s_on(sms) < device.bytes_per_s_on(sms + 1) <= 500.0 * (1 + 1e-9)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *((field, 0) for field in ("total_sms", "min_sms", "multiple_sms", "flops", "bytes_per_s")),
        ("bandwidth_curvature", 0.0),
        ("flops", float("nan")),
        ("compute_curvature", -0.1),
        ("serial_ratio", -0.1),
        ("serial_ratio", float("nan")),
    ],
)
def test_the_field_is_named_when_a_device_cannot_be(field: str, value: Any) -> None:
    with pytest.raises(ProfileError, match=rf"device\.{field} is"):
        replace(DEVICE, **{field: value})


@pytest.mark.parametrize("field", ["gpus", "startup_s", "link_bytes_per_s"])
def test_the_field_is_named_when_gpus_cannot_be(field: str) -> None:
    with pytest.raises(ProfileError, match=rf"tensor_parallel\.{field} must be positive"):
        TensorParallel(**{field: 0})


def test_one_gpu_sums_nothing() -> None:
    assert TensorParallel(gpus=1).all_reduce_s(1e9, 1.0) == 0.0


def test_a_ring_of_two_and_of_four_take_what_the_formula_says() -> None:
    # Startup 2(n-1), transfer 2(n-1)/n of the message over the link, n(n-1) additions of it (DuetServe 4.1).
    two = TensorParallel(gpus=2, startup_s=1.0, link_bytes_per_s=50.0)
    assert two.all_reduce_s(100.0, 10.0) == pytest.approx(2.0 + 2.0 + 20.0)
    four = TensorParallel(gpus=4, startup_s=1.0, link_bytes_per_s=50.0)
    assert four.all_reduce_s(100.0, 10.0) == pytest.approx(6.0 + 3.0 + 120.0)


H200 = replace(DEVICE, total_sms=132)


@pytest.mark.parametrize(
    ("sms", "requests", "seen"),
    [(24, 1, 24.0), (132, 8, 132.0), (28, 1, 22.0), (28, 128, 22.0), (28, 160, 24.0), (36, 256, 34.0)],
)
def test_what_a_split_leaves_decodes_as_fewer_sms_in_whole_groups(
    sms: int, requests: int, seen: float
) -> None:
    assert H200.grouped_sms(sms, requests) == seen


def test_no_sms_are_left_where_groups_divide_all_of_them() -> None:
    pairs = replace(H200, total_sms=108, multiple_sms=2)
    assert [pairs.grouped_sms(sms, 1) for sms in (14, 28, 108)] == [14, 28, 108]
    assert H200.grouped_sms(4, 1) == 1.0
