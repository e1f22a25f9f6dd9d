"""Equations against values worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from observations import waiting

from pdmuxd.engine.core.errors import ProfileError
from pdmuxd.engine.core.latency import (
    FITTED_CONTEXT_TOKENS,
    MAX_ENTRIES,
    DecodeCoefficients,
    FusedCoefficients,
    LatencyCache,
    PrefillCoefficients,
    SoloRunModel,
    on_curve,
)
from pdmuxd.engine.core.roofline import RooflineModel
from pdmuxd.engine.core.shapes import DeviceShape, ModelShape, Overheads, TensorParallel
from pdmuxd.engine.core.types import DecodeShape, PrefillShape

# One layer, hidden 2, so that every operator can be counted on paper.
TOY = ModelShape(
    name="toy",
    layers=1,
    hidden=2,
    intermediate=3,
    heads=1,
    kv_heads=1,
    head_dim=2,
    vocab=5,
    max_context_tokens=64,
)
NO_OVERHEADS = Overheads(
    graph_launch_s=0.0, layer_launch_s=0.0, host_step_s=0.0, layer_fixed_s=0.0, switch_s=0.0
)


def device(*, flops: float, bytes_per_s: float) -> DeviceShape:
    return DeviceShape(
        name="toy",
        total_sms=10,
        min_sms=1,
        multiple_sms=1,
        flops=flops,
        bytes_per_s=bytes_per_s,
        bandwidth_curvature=4.5,
    )


def test_muxwise_equation_1_when_a_batch_has_two_requests() -> None:
    shape = PrefillShape.of([(10, 0), (20, 5)])
    theta = PrefillCoefficients(
        per_new_squared_s=1.0, per_new_times_reused_s=10.0, per_new_s=100.0, fixed_s=7.0
    )
    # By hand: 500 squared tokens, 100 pairs, 30 tokens, and the fixed part.
    assert theta.predict_s(shape) == 4507.0


def test_muxwise_equation_2_when_a_batch_decodes() -> None:
    theta = DecodeCoefficients(per_reused_s=2.0, per_request_s=10.0, fixed_s=1.0)
    assert theta.predict_s(DecodeShape(bs=3, reused_tokens=50)) == 131.0


def test_duetserve_roofline_is_compute_bound_when_bandwidth_is_endless() -> None:
    model = RooflineModel(model=TOY, device=device(flops=1.0, bytes_per_s=1e30), overheads=NO_OVERHEADS)
    # Linear, per token: 2*(2*6 + 2*2 + 2*6 + 3*2) = 68, four tokens: 272.
    # Attention: (4*1*2 + 2*1) * (4*4/2 + 4*3) = 10 * 20 = 200. Classifier: 2*1*2*5 = 20.
    assert model.prefill_s(PrefillShape.of([(4, 3)]), 10) == pytest.approx(492.0)


def test_duetserve_roofline_is_memory_bound_when_compute_is_endless() -> None:
    model = RooflineModel(model=TOY, device=device(flops=1e30, bytes_per_s=1.0), overheads=NO_OVERHEADS)
    # Linear, bytes of 2 tokens: 2*2*((2+6) + (2+2) + (2+6) + (3+2)) = 100, and weights 2*(12+4+12+6) = 68.
    # Attention: queries and outputs 2*1*2*2*2 = 16, keys and values 2*1*2*2 * (9+2) = 88.
    # The classifier moves 2*5*2 = 20.
    assert model.decode_s(DecodeShape(bs=2, reused_tokens=9), 10) == pytest.approx(292.0)


def test_the_roofline_adds_what_is_not_overlapped_when_computing_and_moving_are_serial() -> None:
    one = DecodeShape(bs=2, reused_tokens=9)
    computing = RooflineModel(model=TOY, device=device(flops=1.0, bytes_per_s=1e30), overheads=NO_OVERHEADS)
    moving = RooflineModel(model=TOY, device=device(flops=1e30, bytes_per_s=1.0), overheads=NO_OVERHEADS)
    serial = replace(device(flops=1.0, bytes_per_s=1.0), serial_ratio=1.0)
    both = RooflineModel(model=TOY, device=serial, overheads=NO_OVERHEADS)
    assert both.decode_s(one, 10) == pytest.approx(computing.decode_s(one, 10) + moving.decode_s(one, 10))


def test_a_fused_batch_pays_the_weights_once_when_both_phases_are_in_it() -> None:
    model = RooflineModel(model=TOY, device=device(flops=1e30, bytes_per_s=1.0), overheads=NO_OVERHEADS)
    prefill, decode = PrefillShape.of([(4, 0)]), DecodeShape(bs=2, reused_tokens=9)
    weights_and_classifier = 68.0 + 20.0
    apart = model.prefill_s(prefill, 10) + model.decode_s(decode, 10)
    assert model.fused_s(prefill, decode, 10) == pytest.approx(apart - weights_and_classifier)


def test_a_fifth_of_the_sms_reaches_three_fifths_of_the_bandwidth_when_curvature_is_4_5() -> None:
    shape = device(flops=100.0, bytes_per_s=1000.0)
    assert shape.bytes_per_s_on(2) == pytest.approx(600.0, rel=0.01)  # DuetServe figure 4
    assert shape.bytes_per_s_on(10) == pytest.approx(1000.0)
    assert shape.flops_on(2) == pytest.approx(20.0)


def test_an_sm_computes_less_when_all_do_and_compute_is_curved() -> None:
    straight = device(flops=100.0, bytes_per_s=1000.0)
    curved = replace(straight, compute_curvature=0.8)
    # By hand: (1 - e^-0.16) / (1 - e^-0.8) = 0.2685.
    assert curved.flops_on(2) == pytest.approx(26.85, abs=0.01)
    assert curved.flops_on(10) == pytest.approx(100.0)
    assert replace(straight, compute_curvature=1e-9).flops_on(3) == pytest.approx(30.0)


def test_a_long_context_holds_up_a_fused_batch_when_its_attention_is_not_split() -> None:
    split = RooflineModel(model=TOY, device=device(flops=1.0, bytes_per_s=1e30), overheads=NO_OVERHEADS)
    tiled = replace(split, fused_tile_rows=3)
    prefill, decode = PrefillShape.of([(4, 0)]), DecodeShape(bs=2, reused_tokens=9)
    # Per context token 4 * 3 rows * 2 of head_dim = 24 FLOPs on a tenth of the device; attention of all is
    # (4*1*2 + 2*1) * (4*4/2) = 80 for prefill and 10 * 11 = 110 for decode.
    long = replace(decode, max_context_tokens=8)
    assert tiled.fused_s(prefill, long, 10) - split.fused_s(prefill, long, 10) == pytest.approx(
        8 * 24 * 10 - 190.0
    )
    assert tiled.fused_s(prefill, decode, 10) == split.fused_s(prefill, decode, 10)
    assert tiled.decode_s(decode, 10) == split.decode_s(decode, 10)


def test_a_fused_fit_is_late_by_what_a_longer_context_than_fitted_adds() -> None:
    roofline = RooflineModel(
        model=TOY, device=device(flops=1.0, bytes_per_s=1e30), overheads=NO_OVERHEADS, fused_tile_rows=3
    )
    fit = FusedCoefficients(
        prefill=PrefillCoefficients(
            per_new_squared_s=0.0, per_new_times_reused_s=0.0, per_new_s=0.0, fixed_s=7.0
        ),
        per_reused_s=0.0,
    )
    model = SoloRunModel(prefill={}, decode={}, fallback=roofline, fused={10: fit})
    prefill = PrefillShape.of([(4, 0)])

    def fused_s(max_context_tokens: int) -> float:
        decode = DecodeShape(bs=2, reused_tokens=9, max_context_tokens=max_context_tokens)
        return model.fused_s(prefill, decode, 10)

    assert fused_s(0) == fused_s(FITTED_CONTEXT_TOKENS) == 7.0
    assert fused_s(FITTED_CONTEXT_TOKENS + 100) == pytest.approx(7.0 + 100 * 24 * 10)


def test_a_fused_fit_waits_for_the_longest_context_when_it_outlasts_all_of_them() -> None:
    prefill_fit = PrefillCoefficients(
        per_new_squared_s=1.0, per_new_times_reused_s=0.0, per_new_s=0.0, fixed_s=7.0
    )
    fit = FusedCoefficients(prefill=prefill_fit, per_reused_s=1.0, per_max_context_s=5.0)
    chunk = PrefillShape.of([(2, 1)])
    assert fit.predict_s(chunk, DecodeShape.of([6, 1, 1])) == 7.0 + 5 * 6
    assert fit.predict_s(chunk, DecodeShape.of([6] * 6)) == 7.0 + 4 + 36
    assert fit.predict_s(chunk, DecodeShape.of([1])) == 7.0 + 5 * 3, "the prompt's own context is the longest"
    assert fit.predict_s(chunk, DecodeShape(bs=2, reused_tokens=10)) == 7.0 + 5 * 5, "nobody looked: the mean"
    assert fit.scaled(2.0).predict_s(chunk, DecodeShape.of([6, 1, 1])) == 2 * (7.0 + 5 * 6)
    assert replace(fit, per_max_context_s=0.0).predict_s(chunk, DecodeShape.of([6, 1, 1])) == 7.0 + 4 + 8


def test_the_roofline_adds_nothing_for_a_long_context_when_the_fused_fit_waits_for_it() -> None:
    roofline = RooflineModel(
        model=TOY, device=device(flops=1.0, bytes_per_s=1e30), overheads=NO_OVERHEADS, fused_tile_rows=3
    )
    nothing = PrefillCoefficients(
        per_new_squared_s=0.0, per_new_times_reused_s=0.0, per_new_s=0.0, fixed_s=0.0
    )
    fit = FusedCoefficients(prefill=nothing, per_reused_s=0.0, per_max_context_s=1.0)
    model = SoloRunModel(prefill={}, decode={}, fallback=roofline, fused={10: fit})
    long = DecodeShape.of([2 * FITTED_CONTEXT_TOKENS])
    assert model.fused_s(PrefillShape.of([(4, 0)]), long, 10) == 2 * FITTED_CONTEXT_TOKENS


def test_the_roofline_answers_when_an_sm_count_has_no_fit() -> None:
    roofline = RooflineModel(model=TOY, device=device(flops=1.0, bytes_per_s=1.0), overheads=NO_OVERHEADS)
    fit = DecodeCoefficients(per_reused_s=0.0, per_request_s=0.0, fixed_s=42.0)
    model = SoloRunModel(prefill={}, decode={4: fit}, fallback=roofline)
    shape = DecodeShape(bs=1, reused_tokens=8)
    assert model.decode_s(shape, 4) == 42.0
    assert model.decode_s(shape, 5) == roofline.decode_s(shape, 5)
    with pytest.raises(ProfileError, match="no latency on 0 SMs"):
        model.decode_s(shape, 0)


def test_what_a_prefill_takes_beside_decode_is_as_measured_or_follows_from_decodes_share() -> None:
    """A fifth of the 10 SMs is decode's beside 8: 15% longer."""
    roofline = RooflineModel(model=TOY, device=device(flops=1.0, bytes_per_s=1.0), overheads=NO_OVERHEADS)
    fit = PrefillCoefficients(
        per_new_squared_s=0.0, per_new_times_reused_s=0.0, per_new_s=1.0, fixed_s=0.0, colocated_ratio=1.4
    )
    model = SoloRunModel(prefill={4: fit, 6: replace(fit, colocated_ratio=0.0)}, decode={}, fallback=roofline)
    assert model.colocated_ratio(4) == fit.scaled(2.0).colocated_ratio == 1.4
    assert model.colocated_ratio(6) == roofline.colocated_ratio(6) == pytest.approx(1.3)
    assert model.colocated_ratio(8) == pytest.approx(1.15)
    assert model.colocated_ratio(10) == 1.0


def test_the_field_is_named_when_a_device_is_impossible() -> None:
    with pytest.raises(ProfileError, match=r"device\.flops is 0"):
        device(flops=0, bytes_per_s=1.0)
    with pytest.raises(ProfileError, match=r"device\.compute_curvature is -1; it must not be negative"):
        replace(device(flops=1.0, bytes_per_s=1.0), compute_curvature=-1)
    with pytest.raises(ProfileError, match=r"device\.serial_ratio is -1; it must not be negative"):
        replace(device(flops=1.0, bytes_per_s=1.0), serial_ratio=-1)


def test_duetserve_all_reduce_when_four_gpus_share_a_layer() -> None:
    parallel = TensorParallel(gpus=4, startup_s=2.0, link_bytes_per_s=10.0)
    # 2*3 rounds of 2 s, 2*3*80/(4*10) s of transfer, 4*3*80/60 s of reduction.
    assert parallel.all_reduce_s(80.0, 60.0) == pytest.approx(12.0 + 12.0 + 16.0)
    assert TensorParallel(gpus=1).all_reduce_s(80.0, 60.0) == 0.0


def test_each_gpu_does_its_share_when_a_model_is_split() -> None:
    free = TensorParallel(gpus=2, startup_s=1e-30, link_bytes_per_s=1e30)
    shape = device(flops=1.0, bytes_per_s=1e30)
    whole = RooflineModel(model=TOY, device=shape, overheads=NO_OVERHEADS)
    halved = RooflineModel(model=TOY, device=shape, overheads=NO_OVERHEADS, tensor_parallel=free)
    batch = PrefillShape.of([(4, 3)])
    reduction_s = 2 * 2 * 1 * (4 * 2 * 2)  # two all-reduces of four tokens, at one FLOP/s
    assert halved.prefill_s(batch, 10) == pytest.approx(whole.prefill_s(batch, 10) / 2 + reduction_s)


def test_a_curve_is_straight_between_its_points_and_constant_beyond_when_read() -> None:
    curve = ((10.0, 1.0), (20.0, 3.0), (40.0, 2.0))
    sizes = (0.0, 10.0, 15.0, 20.0, 30.0, 40.0, 99.0)
    assert [on_curve(curve, size) for size in sizes] == [1.0, 1.0, 2.0, 3.0, 2.5, 2.0, 2.0]


def test_a_queue_is_ordered_by_the_same_prediction_when_the_line_is_bent() -> None:
    theta = PrefillCoefficients(
        per_new_squared_s=1e-9,
        per_new_times_reused_s=2e-9,
        per_new_s=1e-5,
        fixed_s=0.01,
        curve=((0.0, 0.02), (512.0, 0.0)),
        tile_tokens=64,
        per_reused_s=1e-6,
        floor_s=0.02,
    )
    roofline = RooflineModel(model=TOY, device=device(flops=1.0, bytes_per_s=1.0), overheads=NO_OVERHEADS)
    model = SoloRunModel(prefill={8: theta}, decode={}, fallback=roofline)
    for new, reused in ((1, 0), (256, 4096), (4096, 100)):
        one = model.prefill_s(PrefillShape.of([(new, reused)]), 8)
        assert model.request_s(new, reused, 8) == pytest.approx(one)


def test_a_fused_batch_is_never_faster_than_its_layers_are_launched_unless_it_is_replayed() -> None:
    slow_host = replace(NO_OVERHEADS, layer_launch_s=9.0, fused_graph_tokens=8)
    model = RooflineModel(model=TOY, device=device(flops=1e30, bytes_per_s=1e30), overheads=slow_host)
    decode = DecodeShape(bs=3, reused_tokens=30)
    assert model.fused_s(PrefillShape.of([(5, 0)]), decode, 10) < 1.0
    assert model.fused_s(PrefillShape.of([(6, 0)]), decode, 10) == 9.0


PREFILL_FIT = PrefillCoefficients(
    per_new_squared_s=1e-9,
    per_new_times_reused_s=2e-9,
    per_new_s=3e-6,
    fixed_s=4e-3,
    curve=((10.0, 1e-3), (1000.0, 5e-3)),
    tile_tokens=64,
    per_reused_s=5e-7,
    floor_s=6e-3,
    colocated_ratio=1.2,
)
DECODE_FIT = DecodeCoefficients(
    per_reused_s=1e-7, per_request_s=2e-5, fixed_s=3e-3, curve=((1.0, 1e-4), (64.0, 2e-3))
)


@given(st.integers(1, 5000), st.integers(0, 5000), st.floats(0.5, 2.0))
def test_every_prediction_is_as_much_slower_when_a_predictor_is_scaled(
    new: int, reused: int, ratio: float
) -> None:
    shape = PrefillShape.of([(new, reused), (7, 3)])
    scaled = PREFILL_FIT.scaled(ratio)
    assert scaled.predict_s(shape) == pytest.approx(PREFILL_FIT.predict_s(shape) * ratio)
    assert scaled.colocated_ratio == PREFILL_FIT.colocated_ratio, "a ratio of two times stays"
    decode = DecodeShape.of([new, reused])
    assert DECODE_FIT.scaled(ratio).predict_s(decode) == pytest.approx(DECODE_FIT.predict_s(decode) * ratio)


class Counted:
    """Tells the three numbers it was asked for apart, and remembers them."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int, int]] = []

    def __call__(self, new_tokens: int, reused_tokens: int, sms: int) -> float:
        self.asked.append((new_tokens, reused_tokens, sms))
        return float(100 * new_tokens + 10 * reused_tokens + sms)


def test_each_question_is_computed_once_when_it_is_asked_again() -> None:
    cache, compute = LatencyCache(), Counted()
    for _ in range(2):
        assert cache.lookup(1, 2, 3, compute) == 123.0
        assert cache.lookup(2, 1, 3, compute) == 213.0
        assert cache.lookup(1, 2, 4, compute) == 124.0
    assert compute.asked == [(1, 2, 3), (2, 1, 3), (1, 2, 4)]


def test_a_latency_of_zero_is_kept_too() -> None:
    cache, asked = LatencyCache(), []
    for _ in range(2):
        assert cache.lookup(0, 0, 1, lambda *key: asked.append(key) or 0.0) == 0.0
    assert len(asked) == 1


def test_all_is_forgotten_when_it_is_full() -> None:
    cache, compute = LatencyCache(), Counted()
    for tokens in range(MAX_ENTRIES):
        cache.lookup(tokens, 0, 1, compute)
    cache.lookup(0, 0, 1, compute)
    assert len(compute.asked) == MAX_ENTRIES, "so many are kept"
    cache.lookup(MAX_ENTRIES, 0, 1, compute)
    cache.lookup(MAX_ENTRIES, 0, 1, compute)
    assert len(compute.asked) == MAX_ENTRIES + 1
    cache.lookup(0, 0, 1, compute)
    assert len(compute.asked) == MAX_ENTRIES + 2


def test_all_requests_of_a_window_are_looked_up_at_once() -> None:
    cache, compute = LatencyCache(), Counted()
    window = [waiting(1, 1, reused_tokens=2), waiting(2, 2, reused_tokens=1), waiting(3, 1, reused_tokens=2)]
    assert cache.lookup_all(window, 3, compute) == [123.0, 213.0, 123.0]
    assert cache.lookup_all(window[:2], 3, compute) == [123.0, 213.0]
    assert cache.lookup(2, 1, 3, compute) == 213.0
    assert compute.asked == [(1, 2, 3), (2, 1, 3)]
