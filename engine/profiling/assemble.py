"""Assembles a profile from samples: all fits, the device, the guard, and how good each is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from msgspec import structs

from pdmuxd.engine.core.errors import ProfileError
from pdmuxd.engine.core.guard import UNMEASURED_RATIO
from pdmuxd.engine.core.latency import LatencyModel
from pdmuxd.engine.link.predictors import Predictors, SoloRun, latency_model
from pdmuxd.engine.profiling.contention import GuardFit, fit_guard
from pdmuxd.engine.profiling.document import (
    FORMAT,
    FitErrors,
    GuardSummary,
    MeasuredProfile,
    Provenance,
)
from pdmuxd.engine.profiling.gate import trusted_runs
from pdmuxd.engine.profiling.hardware import Interference, Pair, colocated_ratios, fit_hardware, pairs_of
from pdmuxd.engine.profiling.judging import beside_roofline
from pdmuxd.engine.profiling.launching import fit_launching
from pdmuxd.engine.profiling.measurement import Sample, Target, settled
from pdmuxd.engine.profiling.solo_predictors import fit_solo_runs


def assemble(
    name: str,
    target: Target,
    samples: Sequence[Sample],
    *,
    measured_at: str,
    took_s: float,
    interrupted: bool,
) -> MeasuredProfile:
    """A profile of all that the samples allow. A predictor with too few samples is left out, and the roofline
    predicts instead. Pairs are judged against what will serve: the gate leaves out doubtful predictors.

    Raises: ProfileError if there are too few samples even for a roofline.
    """
    samples = settled(samples)
    captured = target.hello.captured_decode_bs
    launching = fit_launching(samples, target.model.layers)
    told = samples if launching is None else [one for one in samples if _is_apart(one)]
    hardware = fit_hardware(
        told, target.prior, captured, None if launching is None else launching.per_layer_s
    )
    left_out: list[str] = []
    measured = replace(target, device=hardware.device, overheads=hardware.overheads)
    alone, fits = fit_solo_runs(told, measured, launching, left_out)
    fits = [beside_roofline(fit, told, measured) for fit in fits]
    pairs = pairs_of(samples, _latency(measured, trusted_runs(alone, fits)))
    solo_run = _colocated(alone, colocated_ratios(pairs))
    guard = _guard(measured, pairs, left_out)
    interference = guard.interference if guard is not None else Interference()
    roofline = FitErrors(
        predictor="roofline", sms=0, samples=len(samples), outliers=0, errors=hardware.errors
    )
    hello = target.hello
    return MeasuredProfile(
        format=FORMAT,
        name=name,
        provenance=Provenance(
            device=hello.device,
            driver=hello.driver,
            engine=hello.engine,
            engine_version=hello.engine_version,
            sglang_version=hello.sglang_version,
            model=hello.model,
            model_hash=hello.model_hash,
            measured_at=measured_at,
            took_s=took_s,
            samples=len(samples),
            interrupted=interrupted,
        ),
        total_sms=hello.total_sms,
        partitions=hello.partitions,
        model=target.model,
        device=hardware.device,
        overheads=hardware.overheads,
        tensor_parallel=target.tensor_parallel,
        kv_capacity_tokens=hello.kv_capacity_tokens,
        max_decode_bs=hello.max_decode_bs,
        captured_decode_bs=captured,
        captured_fused_tokens=hello.captured_fused_tokens,
        fused_tile_rows=hello.fused_tile_rows,
        solo_run=solo_run,
        fits=(*fits, roofline),
        launching=launching,
        guard_default_ratio=guard.default_ratio if guard is not None else UNMEASURED_RATIO,
        guard_cells=tuple(sorted(guard.cells.items())) if guard is not None else (),
        guard=None
        if guard is None
        else GuardSummary(
            pairs=guard.pairs,
            exceeded_ratio=guard.exceeded_ratio,
            overestimate_ratio=guard.overestimate_ratio,
        ),
        contention_ratio=interference.contention_ratio,
        decode_colocated_ratio=interference.decode_ratio,
        decode_colocated_sms_ratio=interference.decode_sms_ratio,
        prefill_colocated_ratio=interference.prefill_ratio,
        left_out=tuple(left_out),
        samples=tuple(samples),
    )


def _is_apart(sample: Sample) -> bool:
    """Whether a sample says what its predictor is of: the device's time, of what is launched in parts."""
    return sample.point.mode in ("decode", "colocated") or sample.is_device_time


def _latency(target: Target, solo_run: tuple[SoloRun, ...]) -> LatencyModel:
    predictors = Predictors(
        profile_id=0,
        profile="",
        provenance="",
        solo_run=solo_run,
        guard_default_ratio=UNMEASURED_RATIO,
        captured_decode_bs=target.hello.captured_decode_bs,
    )
    return latency_model(predictors, target.prior)


def _colocated(solo_run: tuple[SoloRun, ...], ratios: Mapping[int, float]) -> tuple[SoloRun, ...]:
    """The same fits, with how much slower prefill is beside decode where that was measured."""
    return tuple(
        structs.replace(fit, prefill=replace(fit.prefill, colocated_ratio=ratios[fit.sms]))
        if fit.prefill is not None and fit.sms in ratios
        else fit
        for fit in solo_run
    )


def _guard(target: Target, pairs: Sequence[Pair], left_out: list[str]) -> GuardFit | None:
    if not target.splits:
        return None
    try:
        return fit_guard(
            pairs,
            roofline=target.prior,
            splits=target.splits,
            kv_capacity_tokens=target.hello.kv_capacity_tokens,
            max_decode_bs=target.hello.max_decode_bs,
        )
    except ProfileError as error:
        left_out.append(str(error))
        return None
