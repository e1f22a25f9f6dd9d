"""How good the predictors of a profile are on samples that they were not fitted to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import structs

from pdmuxd.engine.profiling import designs, solo
from pdmuxd.engine.profiling.document import FitErrors
from pdmuxd.engine.profiling.hardware import predict_s
from pdmuxd.engine.profiling.measurement import Sample, Target
from pdmuxd.engine.profiling.regression import Floats

MIN_JUDGED = 6
"""Fewer samples that outlast launching say nothing of an SM count; then all of it count."""


def errors_of(
    predictor: str,
    groups: Mapping[int, Sequence[Sample]],
    outliers: Mapping[int, int],
    held_out: Mapping[int, Floats],
) -> list[FitErrors]:
    """Errors on each SM count."""
    return [
        FitErrors(
            predictor=predictor,
            sms=sms,
            samples=len(samples),
            outliers=outliers[sms],
            errors=solo.Errors.of(np.abs(held_out[sms])),
            held_out=tuple(round(float(one), 5) for one in held_out[sms]),
        )
        for sms, samples in groups.items()
    ]


def over_all(fits: Sequence[FitErrors], samples: Sequence[Sample], launch_s: float) -> FitErrors:
    """Errors of one law over all its SM counts; `samples` in the order of the fits."""
    whole = structs.replace(
        fits[0],
        sms=0,
        samples=len(samples),
        outliers=sum(fit.outliers for fit in fits),
        held_out=tuple(one for fit in fits for one in fit.held_out),
    )
    return structs.replace(beyond_launching(whole, samples, launch_s), held_out=())


def beyond_launching(fit: FitErrors, samples: Sequence[Sample], launch_s: float) -> FitErrors:
    """The errors without those of what takes less than launching: launching is what is predicted of it."""
    judged = [
        abs(off)
        for sample, off in zip(samples, fit.held_out, strict=True)
        if off is not None and sample.seconds >= launch_s
    ]
    return structs.replace(fit, errors=solo.Errors.of(np.array(judged))) if len(judged) >= MIN_JUDGED else fit


def beside_roofline(fit: FitErrors, samples: Sequence[Sample], measured: Target) -> FitErrors:
    """Judge a fit beside the error of the roofline, which would stand in for it."""
    captured = measured.hello.captured_decode_bs
    errors = [
        abs(predict_s(measured.prior, sample.point, captured) / sample.seconds - 1.0)
        for sample in samples
        if sample.point.mode == fit.predictor
        and fit.sms in (0, sample.sms)
        and sample.seconds >= _launch_s(sample, measured)
    ]
    return structs.replace(fit, roofline_p90=solo.Errors.of(np.array(errors)).p90 if errors else None)


def _launch_s(sample: Sample, measured: Target) -> float:
    """What the roofline says at least of a sample that has no launching in it."""
    largest = max(measured.hello.captured_fused_tokens, default=measured.overheads.fused_graph_tokens)
    is_replayed = sample.point.mode == "fused" and designs.FUSED.size_of(sample.point) <= largest
    if not sample.is_device_time or is_replayed:
        return 0.0
    return measured.overheads.layer_launch_s * measured.model.layers
