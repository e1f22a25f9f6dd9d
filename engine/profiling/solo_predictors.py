"""The predictors of work that runs alone, fitted to samples: which law each gets, and how good it is."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from pdmuxd.engine.core.errors import ProfileError
from pdmuxd.engine.core.latency import FusedCoefficients, PrefillCoefficients
from pdmuxd.engine.link.predictors import SoloRun
from pdmuxd.engine.profiling import designs, solo
from pdmuxd.engine.profiling.design_points import (
    cost_s,
    decode_points,
    fused_of_size,
    fused_points,
    prefill_points,
)
from pdmuxd.engine.profiling.device_law import LawFit, fit_device_law
from pdmuxd.engine.profiling.document import FitErrors
from pdmuxd.engine.profiling.joint import fit_joint, is_better
from pdmuxd.engine.profiling.judging import beyond_launching, errors_of, over_all
from pdmuxd.engine.profiling.launching import LaunchCost, with_launching
from pdmuxd.engine.profiling.measurement import Point, Sample, Target
from pdmuxd.engine.profiling.regression import Floats

FLOORS_AGREEING = 3
"""On so many SM counts a floor of launching must show before it is taken for the floor of all."""
MAX_POINT_S = 10.0
"""The roofline is asked about further points beside the samples, if they take at most so long."""

Groups = dict[int, list[Sample]]
"""Samples of one kind by SM count."""

_CoefficientsT = TypeVar("_CoefficientsT")


def fit_solo_runs(
    samples: Sequence[Sample], target: Target, launching: LaunchCost | None, left_out: list[str]
) -> tuple[tuple[SoloRun, ...], list[FitErrors]]:
    """Everything that the samples allow; why a predictor is missing is added to `left_out`. `launching`: what
    the host takes, if the samples have nothing of it."""
    fits: list[FitErrors] = []
    prefills, fusions = _by_sms(samples, "prefill"), _by_sms(samples, "fused")
    prefill: dict[int, PrefillCoefficients]
    fused: dict[int, FusedCoefficients]
    if launching is None:
        prefill = _prefill_with_launching(prefills, target, fits, left_out)
    else:
        prefill = _prefill_of_device(prefills, target, launching, fits, left_out)
    decode = _fitted(designs.DECODE, _by_sms(samples, "decode"), decode_points, target, fits, left_out)
    if launching is None:
        fused = _fitted(designs.FUSED, fusions, fused_points, target, fits, left_out)
    elif target.hello.captured_fused_tokens:
        # A graph is one launch, and the device alone has no floor.
        family = replace(designs.FUSED, floors=(False,))
        fused = _fitted(family, fusions, fused_points, target, fits, left_out)
    else:
        fused = _fused_of_device(fusions, target, launching, fits, left_out)
    solo_run = tuple(
        SoloRun(sms=sms, prefill=prefill.get(sms), decode=decode.get(sms), fused=fused.get(sms))
        for sms in sorted({*prefill, *decode, *fused})
    )
    return solo_run, fits


def _prefill_with_launching(
    prefills: Groups, target: Target, fits: list[FitErrors], left_out: list[str]
) -> dict[int, PrefillCoefficients]:
    """Where launching is part of what was measured."""
    prefill = _fitted(designs.PREFILL, prefills, prefill_points, target, fits, left_out)
    together = fit_joint(prefills)
    if together is None or not is_better(together, _held_out(fits)):
        return prefill
    fits[:] = errors_of("prefill", prefills, together.outliers, together.held_out)
    left_out.clear()  # of prefill alone as yet
    return dict(together.coefficients)


def _prefill_of_device(
    prefills: Groups, target: Target, launching: LaunchCost, fits: list[FitErrors], left_out: list[str]
) -> dict[int, PrefillCoefficients]:
    """One law for all SM counts, and launching beside it."""
    found = _law("prefill", prefills, target, left_out)
    if found is None:
        return {}
    launch_s = launching.prefill_s(target.model.layers)
    each = errors_of("prefill", prefills, found.outliers, found.held_out)
    fits.append(over_all(each, [one for group in prefills.values() for one in group], launch_s))
    fits += [beyond_launching(fit, prefills[fit.sms], launch_s) for fit in each]
    return {sms: with_launching(found.law.prefill(sms), launching, target.model.layers) for sms in prefills}


def _fused_of_device(
    fusions: Groups, target: Target, launching: LaunchCost, fits: list[FitErrors], left_out: list[str]
) -> dict[int, FusedCoefficients]:
    """Where no batch is one launch, launching all layers is the least that it takes."""
    found = _law("fused", fusions, target, left_out)
    if found is None:
        return {}
    each = errors_of("fused", fusions, found.outliers, found.held_out)
    fused = {sms: found.law.fused(sms) for sms in fusions}
    if target.overheads.fused_graph_tokens:
        fits += each
        return fused
    layers = target.model.layers
    fits += [beyond_launching(fit, fusions[fit.sms], launching.prefill_s(layers)) for fit in each]
    return {
        sms: replace(one, prefill=with_launching(one.prefill, launching, layers))
        for sms, one in fused.items()
    }


def _law(name: str, groups: Groups, target: Target, left_out: list[str]) -> LawFit | None:
    found = fit_device_law(groups, target.hello.total_sms)
    if found is None:
        left_out.append(f"{name}: {sum(map(len, groups.values()))} samples are too few for its law")
    return found


def _held_out(fits: Sequence[FitErrors]) -> dict[int, Floats]:
    return {fit.sms: np.array([math.nan if one is None else one for one in fit.held_out]) for fit in fits}


def _by_sms(samples: Sequence[Sample], mode: str) -> dict[int, list[Sample]]:
    groups: dict[int, list[Sample]] = {}
    for sample in samples:
        if sample.point.mode == mode:
            groups.setdefault(sample.sms, []).append(sample)
    return dict(sorted(groups.items()))


def _fitted(
    family: designs.Family[_CoefficientsT],
    groups: dict[int, list[Sample]],
    points: Callable[[Target, int, float], list[Point]],
    target: Target,
    fits: list[FitErrors],
    left_out: list[str],
) -> dict[int, _CoefficientsT]:
    """Coefficients by SM count. Where samples are too few, as after an interruption, the roofline predicts
    instead of a fit.

    Launching takes as long on any number of SMs, so the floor that most of them show is the floor of all.
    """
    captured = family.captured(target.hello)
    found: dict[int, solo.SoloFit[_CoefficientsT]] = {}

    def fit_on(sms: int, floor_s: float | None = None) -> solo.SoloFit[_CoefficientsT]:
        samples = groups[sms]
        around = {*points(target, sms, MAX_POINT_S), *(sample.point for sample in samples)}
        if family.name == designs.FUSED.name and captured:
            sizes = {family.size_of(sample.point) for sample in samples}
            around.update(point for size in sizes for point in fused_of_size(target, sms, size))
        expected = sorted(((point, cost_s(target, point)) for point in around), key=lambda one: one[1])
        return solo.fit_solo(family, samples, captured, expected, floor_s, target.model.experts)

    for sms in groups:
        try:
            found[sms] = fit_on(sms)
        except ProfileError as error:
            left_out.append(str(error))
    floors = [fit.floor_s for fit in found.values() if fit.floor_s]
    if len(floors) >= FLOORS_AGREEING:
        found = {sms: fit_on(sms, statistics.median(floors)) for sms in found}
    fits += [
        FitErrors(
            predictor=family.name,
            sms=sms,
            samples=fit.samples,
            outliers=fit.outliers,
            errors=fit.errors,
            held_out=tuple(None if math.isnan(one) else round(float(one), 5) for one in fit.held_out),
        )
        for sms, fit in found.items()
    ]
    return {sms: fit.coefficients for sms, fit in found.items()}
