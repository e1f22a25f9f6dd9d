"""The GPU as measured: compute, bandwidth by SM count, and fixed costs, fitted to the roofline of the core.

Source: DuetServe section 4.2 measures the two curves with microbenchmarks; here the model's own batches say
the same and include what its kernels achieve.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import least_squares

from pdmuxd.engine.core.errors import ProfileError
from pdmuxd.engine.core.latency import padded_bs
from pdmuxd.engine.core.roofline import RooflineModel
from pdmuxd.engine.core.shapes import DeviceShape, Overheads
from pdmuxd.engine.core.types import DecodeShape
from pdmuxd.engine.profiling.points import Point, Sample
from pdmuxd.engine.profiling.regression import Floats
from pdmuxd.engine.profiling.solo import Errors

MIN_SAMPLES = 16
_OUTLIER_SCALE = 0.1
"""Relative residuals beyond this count less and less."""
_SMALLEST_S = 1e-7
_HIGHEST = 50.0
"""Logarithm of any rate; negative, the lowest: the fit looks at rates that no number holds."""
_LONGEST = 0.0
"""Logarithm of the seconds of any fixed cost: the fit strides far along one that samples do not show."""
_FIRST_CURVATURE = 0.3
"""Of compute, if it is believed to be straight: from 0 a fit of logarithms finds no way."""
_FIRST_SERIAL = 0.3
"""The same of what computing and moving bytes do not overlap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """A roofline that reproduces what was measured, and how well."""

    device: DeviceShape
    overheads: Overheads
    errors: Errors


def fit_hardware(
    samples: Sequence[Sample], prior: RooflineModel, captured_bs: tuple[int, ...] = ()
) -> Hardware:
    """Fit to solo samples of all modes, starting from what is believed of the device.

    What summing over several GPUs costs is believed: what it really costs shows in the rates.

    Launching costs a fused batch a graph launch and a decode step the host's work as well, so the two are
    told apart only if both were measured. Raises: ProfileError for too few samples.
    """
    solo = [sample for sample in samples if sample.point.mode != "colocated"]
    if len(solo) < MIN_SAMPLES:
        raise ProfileError(f"the device: {len(solo)} solo samples; at least {MIN_SAMPLES} are needed")
    seconds = np.array([sample.seconds for sample in solo])

    def built(parameters: Floats) -> RooflineModel:
        return replace(
            prior,
            device=_device(prior.device, parameters),
            overheads=_overheads(prior.overheads, parameters),
        )

    def residuals(parameters: Floats) -> Floats:
        roofline = built(parameters)
        predicted = [predict_s(roofline, sample.point, captured_bs) for sample in solo]
        logarithms: Floats = np.log(np.array(predicted) / seconds)
        return logarithms

    start = _start(prior.device, prior.overheads)
    found = least_squares(residuals, start, loss="soft_l1", f_scale=_OUTLIER_SCALE, x_scale="jac")
    parameters = np.asarray(found.x, dtype=np.float64)
    fitted = built(parameters)
    return Hardware(
        device=fitted.device,
        overheads=fitted.overheads,
        errors=Errors.of(np.abs(np.expm1(residuals(parameters)))),
    )


def predict_s(roofline: RooflineModel, point: Point, captured_bs: tuple[int, ...] = ()) -> float:
    """What the roofline says of a point's solo work; of a pair, of its decode step."""
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
