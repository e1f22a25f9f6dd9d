"""The GPU as measured: the roofline's rates and fixed costs, and what two streams take from each other.

Source: DuetServe section 4.2 measures the curves of compute and bandwidth with microbenchmarks; here the
model's own batches say the same and include what its kernels achieve.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy  # loads scipy.optimize when it is first used: a daemon starts without it

from pdmuxd.engine.core.errors import ProfileError
from pdmuxd.engine.core.latency import LatencyModel, padded_bs
from pdmuxd.engine.core.roofline import RooflineModel
from pdmuxd.engine.core.shapes import DeviceShape, Overheads
from pdmuxd.engine.core.types import DecodeShape
from pdmuxd.engine.profiling.measurement import Point, Sample
from pdmuxd.engine.profiling.regression import Floats
from pdmuxd.engine.profiling.solo import Errors

MIN_SAMPLES = 16
_OUTLIER_SCALE = 0.1
"""Residuals beyond this share have less and less weight."""
_SMALLEST_S = 1e-7
_HIGHEST = 50.0
"""Bound of the logarithm of any rate, in both directions: on its way the fit would try rates too large for a
number."""
_LONGEST = 0.0
"""Upper bound of the logarithm of any fixed cost in seconds: the fit would go far off along a cost that the
samples do not show."""
_FIRST_CURVATURE = 0.3
"""First curvature of compute if the prior has none: logarithms are fitted, and 0 has none."""
_FIRST_SERIAL = 0.3
"""The same for the share of computing and moving bytes that does not overlap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """A roofline that reproduces what was measured, and how well."""

    device: DeviceShape
    overheads: Overheads
    errors: Errors


def fit_hardware(
    samples: Sequence[Sample],
    prior: RooflineModel,
    captured_bs: tuple[int, ...] = (),
    launch_s: float | None = None,
) -> Hardware:
    """Fit to solo samples of all modes, starting from the prior of the device.

    The cost of summing over several GPUs is the prior's; what it really costs shows in the rates. `launch_s`:
    what launching a layer takes, if that was measured apart from these samples.

    Launching costs a fused batch a graph launch and a decode step the host's work as well, so the two are
    told apart only if both were measured. Raises: ProfileError for too few samples.
    """
    solo = [sample for sample in samples if sample.point.mode != "colocated"]
    if len(solo) < MIN_SAMPLES:
        raise ProfileError(f"the device: {len(solo)} solo samples; at least {MIN_SAMPLES} are needed")
    seconds = np.array([sample.seconds for sample in solo])

    def built(parameters: Floats) -> RooflineModel:
        overheads = _overheads(prior.overheads, parameters)
        return replace(
            prior,
            device=_device(prior.device, parameters),
            overheads=overheads if launch_s is None else replace(overheads, layer_launch_s=0.0),
        )

    def residuals(parameters: Floats) -> Floats:
        roofline = built(parameters)
        predicted = [predict_s(roofline, sample.point, captured_bs) for sample in solo]
        logarithms: Floats = np.log(np.array(predicted) / seconds)
        return logarithms

    start = _start(prior.device, prior.overheads)
    found = scipy.optimize.least_squares(
        residuals, start, loss="soft_l1", f_scale=_OUTLIER_SCALE, x_scale="jac"
    )
    parameters = np.asarray(found.x, dtype=np.float64)
    fitted = built(parameters)
    overheads = fitted.overheads
    return Hardware(
        device=fitted.device,
        overheads=overheads if launch_s is None else replace(overheads, layer_launch_s=launch_s),
        errors=Errors.of(np.abs(np.expm1(residuals(parameters)))),
    )


def predict_s(roofline: RooflineModel, point: Point, captured_bs: tuple[int, ...] = ()) -> float:
    """What the roofline predicts for a point's solo work; for a pair, for its decode step."""
    if point.mode == "prefill":
        return roofline.prefill_s(point.prefill_shape, point.prefill_sms)
    if point.mode == "fused":
        return roofline.fused_s(point.prefill_shape, point.decode_shape, point.prefill_sms)
    shape = point.decode_shape
    padded = DecodeShape(bs=padded_bs(shape.bs, captured_bs), reused_tokens=shape.reused_tokens)
    return roofline.decode_s(padded, point.decode_sms)


def _start(device: DeviceShape, overheads: Overheads) -> Floats:
    """Logarithms of what is fitted, so that all of it stays positive."""
    values = (
        device.flops,
        device.bytes_per_s,
        device.bandwidth_curvature,
        max(device.compute_curvature, _FIRST_CURVATURE),
        max(device.serial_ratio, _FIRST_SERIAL),
        overheads.layer_fixed_s,
        overheads.layer_launch_s,
        overheads.graph_launch_s,
        overheads.host_step_s,
    )
    return np.array([math.log(max(value, _SMALLEST_S)) for value in values])


def _device(device: DeviceShape, parameters: Floats) -> DeviceShape:
    flops, bytes_per_s, bandwidth, compute, serial = (
        float(x) for x in np.exp(np.clip(parameters[:5], -_HIGHEST, _HIGHEST))
    )
    return replace(
        device,
        flops=flops,
        bytes_per_s=bytes_per_s,
        bandwidth_curvature=bandwidth,
        compute_curvature=compute,
        serial_ratio=min(1.0, serial),
    )


def _overheads(overheads: Overheads, parameters: Floats) -> Overheads:
    fixed, launch, graph, host = (float(x) for x in np.exp(np.minimum(parameters[5:], _LONGEST)))
    return replace(
        overheads, layer_fixed_s=fixed, layer_launch_s=launch, graph_launch_s=graph, host_step_s=host
    )


MIN_COLOCATED = 5
"""So many pairs of a split are needed to say how much slower its prefills are."""
STALL_RATIO = 1.25
"""Contention lasts as long as the prefill. If the steps of one pair scatter more than this, some were
stalled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A decode batch beside a prefill, and how much slower than predicted alone its steps were."""

    point: Point
    slowdown: float
    """The slowdown of its slower steps, which the guard must cover."""
    typical: float
    """Of its median step."""
    prefill: float
    """How much slower than predicted alone the prefill was; NaN if it was not measured."""


def pairs_of(samples: Sequence[Sample], latency: LatencyModel) -> list[Pair]:
    """The pairs among samples, against the solo predictor in use: the guard covers its errors too."""
    pairs = []
    for sample in samples:
        high_s, typical_s = sample.decode_high_s, sample.decode_s
        if sample.point.mode == "colocated" and high_s is not None and typical_s is not None:
            solo_s = latency.decode_s(sample.point.decode_shape, sample.point.decode_sms)
            slower_s = high_s if high_s <= STALL_RATIO * typical_s else typical_s
            pairs.append(
                Pair(
                    point=sample.point,
                    slowdown=slower_s / solo_s,
                    typical=typical_s / solo_s,
                    prefill=_prefill_slowdown(sample, latency),
                )
            )
    return pairs


def colocated_ratios(pairs: Sequence[Pair]) -> dict[int, float]:
    """How many times longer a prefill takes beside decode, typically, by its SM count."""
    by_sms: dict[int, list[float]] = {}
    for pair in pairs:
        if math.isfinite(pair.prefill):
            by_sms.setdefault(pair.point.prefill_sms, []).append(pair.prefill)
    return {
        sms: max(1.0, statistics.median(ratios))
        for sms, ratios in by_sms.items()
        if len(ratios) >= MIN_COLOCATED
    }


def _prefill_slowdown(sample: Sample, latency: LatencyModel) -> float:
    if sample.prefill_s is None:
        return math.nan
    return sample.prefill_s / latency.prefill_s(sample.point.prefill_shape, sample.point.prefill_sms)


HIGHEST = 1.0
"""Of each: what the emulated device accepts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interference:
    """Slowdowns beyond 1, typical ones."""

    decode_ratio: float = 0.0
    """Of decode beside any prefill."""
    decode_sms_ratio: float = 0.0
    """For decode beside a prefill, per share of the SMs that the prefill has."""
    contention_ratio: float = 0.0
    """For decode beside a prefill, per share of the bandwidth that the prefill uses."""
    prefill_ratio: float | None = None
    """Of prefill, per share of the bandwidth that decode moves, times the root of decode's share of the SMs;
    None if no pair tells. Without the root, prefill on 96 and 112 SMs of 132 was 5 to 11% too slow, and on 32
    to 64 up to 10% too fast (four models on one H200, 2026-11-22)."""


def interference_of(pairs: Sequence[Pair], roofline: RooflineModel) -> Interference:
    """A least-squares fit of the slowdown that sharing the bandwidth does not explain.

    The streams slow each other only while both are on the device; `busy` is that share of a decode step.
    """
    points = [pair.point for pair in pairs]
    shares = np.array([_bandwidth_shares(roofline, point) for point in points])
    prefill_share, decode_share = shares[:, 0], shares[:, 1]
    busy = np.array([_busy_share(roofline, point) for point in points])
    sms = np.array([(point.prefill_sms, point.decode_sms) for point in points], dtype=np.float64)
    decode_sms_share = sms[:, 1] / sms.sum(axis=1)
    on_device = (np.array([pair.typical for pair in pairs]) - 1.0) / busy + 1.0
    excess = on_device / np.maximum(1.0, shares.sum(axis=1)) - 1.0
    terms = np.column_stack([np.ones(len(pairs)), 1.0 - decode_sms_share, prefill_share])
    (fixed, per_sms, per_share), _ = scipy.optimize.nnls(terms, np.maximum(0.0, excess))
    return Interference(
        decode_ratio=_within(float(fixed)),
        decode_sms_ratio=_within(float(per_sms)),
        contention_ratio=_within(float(per_share)),
        prefill_ratio=_prefill_ratio(
            decode_share * np.sqrt(decode_sms_share) * busy, np.array([pair.prefill for pair in pairs])
        ),
    )


def _prefill_ratio(weights: Floats, slowdowns: Floats) -> float | None:
    known = np.isfinite(slowdowns)
    if not known.any():
        return None
    weight, excess = weights[known], slowdowns[known] - 1.0
    return _within(float(weight @ excess / max(1e-9, float(weight @ weight))))


def _bandwidth_shares(roofline: RooflineModel, point: Point) -> tuple[float, float]:
    """The shares of the device's bandwidth that the prefill and the decode step would each use alone."""
    prefill, decode = point.prefill_shape, point.decode_shape
    prefill_bytes = roofline.prefill_cost(prefill, point.prefill_sms).hbm_bytes
    prefill_s = roofline.prefill_s(prefill, point.prefill_sms)
    decode_cost = roofline.decode_cost(decode, point.decode_sms)
    most = roofline.device.bytes_per_s
    return (
        min(1.0, prefill_bytes / prefill_s / most),
        min(1.0, decode_cost.hbm_bytes / decode_cost.seconds / most),
    )


def _busy_share(roofline: RooflineModel, point: Point) -> float:
    """The share of a decode step during which it is on the device; the rest is the host's."""
    shape, sms = point.decode_shape, point.decode_sms
    return roofline.decode_cost(shape, sms).seconds / roofline.decode_s(shape, sms)


def _within(ratio: float) -> float:
    return min(HIGHEST, max(0.0, ratio))
