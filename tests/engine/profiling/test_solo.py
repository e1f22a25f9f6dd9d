"""Fits of samples whose law is known."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiling import decode_samples, fused_samples, prefill_samples

from pdmuxd.engine.core.errors import ProfileError
from pdmuxd.engine.core.latency import (
    DecodeCoefficients,
    FusedCoefficients,
    PrefillCoefficients,
    batch_max_context_tokens,
    padded_bs,
)
from pdmuxd.engine.core.shapes import Experts
from pdmuxd.engine.core.types import DecodeShape, PrefillShape
from pdmuxd.engine.link.measuring import Measured
from pdmuxd.engine.profiling.designs import DECODE, FUSED, PREFILL
from pdmuxd.engine.profiling.document import read_file
from pdmuxd.engine.profiling.measurement import Point, Sample
from pdmuxd.engine.profiling.solo import fit_solo

PREFILL_LAW = PrefillCoefficients(
    per_new_squared_s=1e-9, per_new_times_reused_s=2e-9, per_new_s=4e-5, fixed_s=0.002
)
DECODE_LAW = DecodeCoefficients(per_reused_s=5e-8, per_request_s=3e-5, fixed_s=0.006)
SPLIT_LAW = FusedCoefficients(
    prefill=PrefillCoefficients(
        per_new_squared_s=1e-10, per_new_times_reused_s=9e-10, per_new_s=2.2e-5, fixed_s=0.005
    ),
    per_reused_s=3e-8,
)
UNDIVIDED_LAW = replace(SPLIT_LAW, per_max_context_s=4e-7)
NOISE = 0.01


def test_the_coefficients_are_recovered_within_the_noise_when_the_law_is_eq_1() -> None:
    found = fit_solo(PREFILL, prefill_samples(PREFILL_LAW.predict_s, noise=NOISE)).coefficients
    assert found.per_new_squared_s == pytest.approx(PREFILL_LAW.per_new_squared_s, rel=3 * NOISE)
    assert found.per_new_times_reused_s == pytest.approx(PREFILL_LAW.per_new_times_reused_s, rel=3 * NOISE)
    assert found.per_new_s == pytest.approx(PREFILL_LAW.per_new_s, rel=3 * NOISE)
    assert found.fixed_s == pytest.approx(PREFILL_LAW.fixed_s, rel=10 * NOISE)
    assert (found.curve, found.tile_tokens, found.floor_s) == ((), 1, 0.0)


def test_the_coefficients_are_recovered_within_the_noise_when_the_law_is_eq_2() -> None:
    found = fit_solo(DECODE, decode_samples(DECODE_LAW.predict_s, noise=NOISE)).coefficients
    assert found.per_reused_s == pytest.approx(DECODE_LAW.per_reused_s, rel=3 * NOISE)
    assert found.per_request_s == pytest.approx(DECODE_LAW.per_request_s, rel=10 * NOISE)
    assert found.fixed_s == pytest.approx(DECODE_LAW.fixed_s, rel=3 * NOISE)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(poisoned=st.integers(0, 47), factor=st.sampled_from([10.0, 0.1]))
def test_no_prediction_moves_by_more_than_1_percent_when_one_measurement_is_tenfold(
    poisoned: int, factor: float
) -> None:
    clean = prefill_samples(PREFILL_LAW.predict_s, noise=NOISE)
    dirty = list(clean)
    seconds = dirty[poisoned].seconds * factor
    dirty[poisoned] = Sample(point=dirty[poisoned].point, prefill_s=seconds)
    before, after = fit_solo(PREFILL, clean).coefficients, fit_solo(PREFILL, dirty).coefficients
    for sample in clean:
        shape = sample.point.prefill_shape
        assert after.predict_s(shape) == pytest.approx(before.predict_s(shape), rel=0.01)


def test_no_decode_prediction_moves_by_more_than_1_percent_when_one_measurement_is_tenfold() -> None:
    clean = decode_samples(DECODE_LAW.predict_s, noise=NOISE)
    before = fit_solo(DECODE, clean).coefficients
    for poisoned in range(0, len(clean), 5):
        dirty = list(clean)
        dirty[poisoned] = Sample(point=clean[poisoned].point, decode_s=clean[poisoned].seconds * 10.0)
        found = fit_solo(DECODE, dirty)
        assert found.outliers >= 1
        for sample in clean:
            shape = sample.point.decode_shape
            moved = found.coefficients.predict_s(shape) / before.predict_s(shape)
            assert moved == pytest.approx(1.0, rel=0.01)


def test_the_held_out_error_is_the_noise_when_the_law_has_a_floor_and_tiles() -> None:
    def law(shape: PrefillShape) -> float:
        tokens = -(-shape.new_tokens // 128) * 128
        return max(0.012, 6e-5 * tokens + 1e-9 * shape.sum_new_squared + 3e-8 * shape.reused_tokens)

    found = fit_solo(PREFILL, prefill_samples(law, noise=0.005))
    assert found.coefficients.tile_tokens == 128
    assert found.coefficients.floor_s == pytest.approx(0.012, rel=0.02)
    assert found.errors.p90 < 0.02
    assert found.coefficients.predict_s(PrefillShape.of([(1030, 0)])) == pytest.approx(
        law(PrefillShape.of([(1030, 0)])), rel=0.02
    )


def test_a_padded_batch_is_fitted_at_its_graph_size_when_graphs_are_captured() -> None:
    captured = (1, 2, 4, 8, 16, 32, 64, 128, 256)

    def law(shape: DecodeShape) -> float:
        return DECODE_LAW.predict_s(shape, captured)

    samples = decode_samples(law)
    odd = Point(mode="decode", prefill_sms=0, decode_sms=64, decode=(100,) * 33)
    samples.append(Sample(point=odd, decode_s=law(odd.decode_shape)))
    found = fit_solo(DECODE, samples, captured)
    assert found.errors.max < 0.01


STAIRS_S = (0.038, 0.040, 0.041, 0.079, 0.081, 0.088, 0.093, 0.108, 0.117, 0.077, 0.169, 0.148)
STEPS = (1, 8, 24, 40, 48, 64, 80, 96, 104, 120, 160, 256)
"""Batch sizes with a graph, and what they take: as on 20 SMs of an H200 (CodeLlama-34B, 2026-11-22)."""


def stairs(shape: DecodeShape) -> float:
    return STAIRS_S[STEPS.index(padded_bs(shape.bs, STEPS))] + 1.7e-7 * shape.reused_tokens


def samples_on_stairs(seconds: Callable[[Point], float]) -> list[Sample]:
    """Each size once, with short contexts, and three of them with longer ones as well."""
    batches = [(64,) * bs for bs in STEPS]
    batches += [(context,) * bs for bs in (8, 40, 96) for context in (1024, 4096)]
    points = [Point(mode="decode", prefill_sms=0, decode_sms=20, decode=batch) for batch in batches]
    return [Sample(point=point, decode_s=seconds(point)) for point in points]


def test_a_batch_size_that_was_measured_once_has_its_own_time_when_each_runs_as_a_graph() -> None:
    found = fit_solo(DECODE, samples_on_stairs(lambda point: stairs(point.decode_shape)), STEPS)
    assert found.errors.max < 0.01
    for bs in (20, 33, 60, 101, 110, 200):
        shape = DecodeShape.of((2000,) * bs)
        assert found.coefficients.predict_s(shape, STEPS) == pytest.approx(stairs(shape), rel=0.02)


def test_one_measurement_alone_is_not_believed_of_its_size_when_it_is_tenfold() -> None:
    def once_tenfold(point: Point) -> float:
        return stairs(point.decode_shape) * (10.0 if len(point.decode) == 64 else 1.0)

    found = fit_solo(DECODE, samples_on_stairs(once_tenfold), STEPS)
    between = (stairs(DecodeShape.of((64,) * 48)), stairs(DecodeShape.of((64,) * 80)))
    assert between[0] <= found.coefficients.predict_s(DecodeShape.of((64,) * 64), STEPS) <= between[1]


FUSED_STAIRS_S = (
    0.020,
    0.023,
    0.024,
    0.0245,
    0.0255,
    0.032,
    0.033,
    0.0337,
    0.046,
    0.061,
    0.0644,
    0.122,
    0.239,
)
FUSED_STEPS = (32, 64, 96, 128, 160, 192, 256, 288, 320, 512, 640, 1024, 2048)
"""Tokens with a graph, and what they take: as on an H200 (CodeLlama-34B, 2026-11-22)."""


def fused_stairs(prefill: PrefillShape, decode: DecodeShape) -> float:
    """Beside the size, the contexts or the longest of them; above the largest graph, by the token."""
    tokens = prefill.new_tokens + decode.bs
    step_s = FUSED_STAIRS_S[FUSED_STEPS.index(padded_bs(min(tokens, FUSED_STEPS[-1]), FUSED_STEPS))]
    contexts_s = 2e-7 * prefill.reused_tokens + 3e-8 * decode.reused_tokens
    beyond_s = 0.00011 * max(0, tokens - FUSED_STEPS[-1])
    return step_s + beyond_s + max(contexts_s, 4e-7 * batch_max_context_tokens(prefill, decode))


def samples_of_graphs() -> list[Sample]:
    """Each size once, with one short context, and what a campaign has besides."""
    points = [
        Point(mode="fused", prefill_sms=132, decode_sms=132, prefill=((tokens - 1, 0),), decode=(512,))
        for tokens in FUSED_STEPS
    ]
    once = [Sample(point=p, decode_s=fused_stairs(p.prefill_shape, p.decode_shape)) for p in points]
    return [*once, *fused_samples(fused_stairs)]


def test_every_size_of_a_fused_graph_has_its_own_time_when_graphs_were_captured() -> None:
    found = fit_solo(FUSED, samples_of_graphs(), FUSED_STEPS)
    assert found.coefficients.captured == FUSED_STEPS
    assert found.errors.p90 < 0.03
    for new in (20, 100, 150, 230, 280, 300, 400, 600, 1000, 3000):
        chunk, decode = PrefillShape.of([(new, 700)]), DecodeShape.of((900,) * 12)
        assert found.coefficients.predict_s(chunk, decode) == pytest.approx(
            fused_stairs(chunk, decode), rel=0.05
        )


def test_what_contexts_cost_is_believed_when_each_size_was_measured_once() -> None:
    """One size was measured with long contexts alone: its samples tell the two apart by nothing."""
    points = [
        Point(mode="fused", prefill_sms=132, decode_sms=132, prefill=((tokens - 1, 0),), decode=(512,))
        for tokens in FUSED_STEPS
        if tokens != 256
    ]
    points += [
        Point(mode="fused", prefill_sms=132, decode_sms=132, prefill=((tokens - bs, 0),), decode=(8192,) * bs)
        for tokens, bs in ((256, 64), (3000, 8), (3500, 32), (4096, 8), (5000, 1))
    ]
    samples = [Sample(point=p, decode_s=fused_stairs(p.prefill_shape, p.decode_shape)) for p in points]
    around = {
        Point(mode="fused", prefill_sms=132, decode_sms=132, prefill=((tokens - bs, 0),), decode=(ctx,) * bs)
        for tokens in FUSED_STEPS
        for bs in (1, 8, 64)
        if bs < tokens
        for ctx in (512, 8192)
    }

    def line(point: Point) -> float:
        """No stairs, and a device that is a tenth faster."""
        prefill, decode = point.prefill_shape, point.decode_shape
        contexts_s = max(3e-8 * decode.reused_tokens, 4e-7 * batch_max_context_tokens(prefill, decode))
        return 0.9 * (0.012 + 1e-4 * (prefill.new_tokens + decode.bs) + contexts_s)

    expected = [(point, line(point)) for point in (*around, *points)]
    told = fit_solo(FUSED, samples, FUSED_STEPS, expected).coefficients
    alone = fit_solo(FUSED, samples, FUSED_STEPS).coefficients
    off = {}
    for name, found in (("told", told), ("alone", alone)):
        shapes = [
            (PrefillShape.of([(new, 0)]), DecodeShape.of((context,) * bs))
            for new, bs, context in ((140, 100, 1700), (180, 60, 600), (100, 20, 6000), (500, 12, 900))
        ]
        off[name] = max(abs(found.predict_s(*shape) / fused_stairs(*shape) - 1.0) for shape in shapes)
    assert off["told"] < 0.05
    assert off["alone"] > 0.09


@pytest.mark.slow
def test_a_fused_size_in_between_is_off_when_graphs_are_not_known() -> None:
    line = fit_solo(FUSED, samples_of_graphs()).coefficients
    chunk, decode = PrefillShape.of([(309, 0)]), DecodeShape.of((512,))
    assert line.captured == ()
    assert line.predict_s(chunk, decode) != pytest.approx(fused_stairs(chunk, decode), rel=0.05)


def test_what_the_longest_context_takes_is_recovered_when_a_fused_batch_waits_for_it() -> None:
    law = UNDIVIDED_LAW
    fit = fit_solo(FUSED, fused_samples(law.predict_s, noise=NOISE))
    assert fit.coefficients.per_max_context_s == pytest.approx(law.per_max_context_s, rel=10 * NOISE)
    assert fit.coefficients.per_reused_s == pytest.approx(law.per_reused_s, rel=10 * NOISE)
    assert fit.errors.p90 < 3 * NOISE
    # One context of half of a batch's, and longer than any that was fitted.
    chunk, decode = PrefillShape.of([(256, 0)]), DecodeShape.of([40_000, *[5_000] * 8])
    assert fit.coefficients.predict_s(chunk, decode) == pytest.approx(law.predict_s(chunk, decode), rel=0.1)


def test_the_longest_context_has_no_part_in_a_fit_when_contexts_are_split() -> None:
    fit = fit_solo(FUSED, fused_samples(SPLIT_LAW.predict_s, noise=NOISE))
    assert fit.coefficients.per_max_context_s == 0.0
    assert fit.errors.p90 < 3 * NOISE


@pytest.mark.slow
def test_tokens_beyond_the_largest_chunk_cost_as_those_before_when_a_fused_line_bends() -> None:
    """However the largest samples scatter: all of them have 4096 prompt tokens and a few requests besides."""
    bent = replace(SPLIT_LAW.prefill, curve=((0.0, 0.0), (256.0, -0.005)))
    law = replace(UNDIVIDED_LAW, prefill=bent)
    chunk, decode = PrefillShape.of([(8192, 0)]), DecodeShape.of([2000] * 8)
    for seed in range(5):
        found = fit_solo(FUSED, fused_samples(law.predict_s, noise=0.02, seed=seed)).coefficients
        assert found.predict_s(chunk, decode) == pytest.approx(law.predict_s(chunk, decode), rel=0.1)


def test_samples_are_refused_when_there_are_none() -> None:
    with pytest.raises(ProfileError, match="prefill: 0 samples; at least 8"):
        fit_solo(PREFILL, [])


def test_samples_are_refused_with_their_number_when_there_are_too_few() -> None:
    with pytest.raises(ProfileError, match="prefill on 64 SMs: 5 samples; at least 8"):
        fit_solo(PREFILL, prefill_samples(PREFILL_LAW.predict_s)[:5])


def test_samples_are_refused_when_all_took_the_same_time() -> None:
    with pytest.raises(ProfileError, match=r"all 48 samples took 0\.5 s, whatever their size"):
        fit_solo(PREFILL, prefill_samples(lambda _: 0.5))


def test_samples_are_refused_when_all_are_of_one_size() -> None:
    one = [sample for sample in decode_samples(DECODE_LAW.predict_s) if len(sample.point.decode) == 8]
    with pytest.raises(ProfileError, match="are of one size"):
        fit_solo(DECODE, one * 3)


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_a_measurement_is_refused_when_no_work_can_take_it(seconds: float) -> None:
    point = Point(mode="prefill", prefill_sms=64, decode_sms=0, prefill=((10, 0),))
    with pytest.raises(ProfileError, match="which no work takes"):
        Sample.of(point, Measured(point_id=1, prefill_s=(0.1, seconds)))


@pytest.mark.parametrize("captured", [(1, 2, 4, 8, 16, 32, 64, 128, 256), ()])
def test_a_larger_batch_is_predicted_to_take_less_when_it_was_measured_so(captured: tuple[int, ...]) -> None:
    """Also where no graph is replayed: kernels are chosen by the batch's size all the same."""
    sizes = (1, 2, 4, 8, 16, 32, 64, 128, 256)
    beside_the_line_s = {32: 0.006, 64: 0.009, 128: -0.002}

    def law(shape: DecodeShape) -> float:
        return DECODE_LAW.predict_s(shape, captured) + beside_the_line_s.get(shape.bs, 0.0)

    found = fit_solo(DECODE, decode_samples(law, noise=0.001), captured).coefficients
    for bs in sizes:
        shape = DecodeShape(bs=bs, reused_tokens=2000 * bs)
        assert found.predict_s(shape, captured) == pytest.approx(law(shape), rel=0.01)


EXPERTS = Experts(count=128, per_token=8, intermediate=768)
H200 = Path(__file__).parents[3] / "docs/measurements/h200"


def test_the_bend_of_touched_experts_is_predicted_when_a_few_batches_were_measured() -> None:
    """Nine samples per SM count of one H200, and batches that were measured apart from them."""
    profile = read_file(H200 / "qwen3-30b-a3b.profile.json.gz")
    packed = gzip.decompress((H200 / "qwen3-30b-a3b.unseen.json.gz").read_bytes())
    fitted = [one for one in profile.samples if one.point.mode == "decode"]
    unseen = [one for one in msgspec.json.decode(packed, type=list[Sample]) if one.point.mode == "decode"]
    captured = profile.captured_decode_bs

    def errors(experts: Experts | None) -> tuple[float, float]:
        held_out, off = [], []
        for sms in {sample.sms for sample in fitted}:
            group = [sample for sample in fitted if sample.sms == sms]
            found = fit_solo(DECODE, group, captured, experts=experts)
            held_out += [abs(one) for one in found.held_out if not np.isnan(one)]
            for sample in unseen:
                if sample.sms == sms:
                    predicted_s = found.coefficients.predict_s(sample.point.decode_shape, captured)
                    off.append(abs(predicted_s / sample.seconds - 1.0))
        return float(np.median(held_out)), float(np.median(off))

    assert max(errors(EXPERTS)) < 0.06
    assert min(errors(None)) > 0.1, "a line does not bend there"


@pytest.mark.parametrize("captured", [(1, 2, 4, 8, 16, 32, 64, 128, 256), ()])
def test_what_an_expert_costs_is_found_when_it_is_the_law(captured: tuple[int, ...]) -> None:
    def law(shape: DecodeShape) -> float:
        return DECODE_LAW.predict_s(shape, captured) + 2e-4 * EXPERTS.touched(padded_bs(shape.bs, captured))

    fit = fit_solo(DECODE, decode_samples(law, noise=NOISE), captured, experts=EXPERTS)
    assert fit.errors.p90 < 0.03
    for bs in (1, 3, 8, 12, 24, 48, 100, 256):
        shape = DecodeShape(bs=bs, reused_tokens=2000 * bs)
        assert fit.coefficients.predict_s(shape, captured) == pytest.approx(law(shape), rel=0.03)
