"""Builds the JSON result of a comparison from what was found out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from pdmuxd.daemon.compare.goodput import CellGoodput
from pdmuxd.daemon.compare.plan import ComparePlan
from pdmuxd.daemon.compare.schema import (
    SCHEMA,
    AtGoodput,
    CellDocument,
    CommonPolicyDocument,
    CommonRateDocument,
    CompareDocument,
    CurvePointDocument,
    ProbeDocument,
    RunsDocument,
    SeedDocument,
    TargetsDocument,
    WorkloadDocument,
)
from pdmuxd.daemon.compare.stages import CommonRate, Comparison, mean_rps
from pdmuxd.daemon.compare.statistics import estimate
from pdmuxd.daemon.replay.document import profile_document
from pdmuxd.daemon.replay.metrics import QUARTERS, Metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a result comes from."""

    command: str
    version: str
    created_at: datetime
    rates_rps: tuple[float, ...] = ()
    max_input_tokens: int | None = None
    left_out_longer: int = 0


def build_document(plan: ComparePlan, comparison: Comparison, origin: Origin) -> CompareDocument:
    """Put configuration and results together; `origin.created_at` is aware."""
    tbts_s = tuple(dict.fromkeys(cell.tbt_s for cell in comparison.cells))
    return CompareDocument(
        schema=SCHEMA,
        pdmuxd_version=origin.version,
        created_at=origin.created_at.isoformat(timespec="seconds"),
        command=origin.command,
        percentile_method="nearest_rank",
        workload=_workload(plan, origin),
        profile=profile_document(plan.profile),
        targets=TargetsDocument(
            ttft_fixed_ms=plan.ttft_fixed_s * 1000.0,
            ttft_per_1k_new_tokens_ms=plan.ttft_per_1k_new_tokens_s * 1000.0,
            tbt_ms=tuple(_ms(tbt_s) for tbt_s in tbts_s),
            attainment_ratio=plan.attainment_ratio,
            e2e_ms=None if plan.e2e_s is None else plan.e2e_s * 1000.0,
        ),
        runs=RunsDocument(
            seconds=plan.seconds,
            seeds=plan.seeds,
            rates_per_s=origin.rates_rps,
            resolution_ratio=plan.resolution,
            doublings=plan.doublings,
        ),
        cells=cell_documents(comparison.cells),
        curve=tuple(
            CurvePointDocument(
                policy=point.cell.policy,
                tbt_ms=_ms(point.cell.tbt_s),
                rate_per_s=point.rate_rps,
                seed=point.seed,
                requests=found.requests,
                good_ratio=found.good_ratio,
                ttft_attainment_ratio=found.metrics.ttft_attainment_ratio,
                tbt_attainment_ratio=found.metrics.tbt_attainment_ratio,
            )
            for point, found in comparison.curve
            if found.metrics is not None
        ),
        common=tuple(_common(common) for common in comparison.common),
    )


def cell_documents(cells: Sequence[CellGoodput]) -> tuple[CellDocument, ...]:
    """The cells with their ratio to the best of the same target."""
    best: dict[float, float] = {}
    for cell in cells:
        best[cell.tbt_s] = max(best.get(cell.tbt_s, 0.0), mean_rps(cell))
    return tuple(_cell(cell, best[cell.tbt_s]) for cell in cells)


def _cell(cell: CellGoodput, best_rps: float) -> CellDocument:
    goodput = estimate([seed.rate_rps for seed in cell.seeds])
    return CellDocument(
        policy=cell.policy,
        tbt_ms=_ms(cell.tbt_s),
        goodput_requests_per_s=goodput.mean,
        goodput_half_width_95=goodput.half_width_95,
        ratio_to_best=goodput.mean / best_rps if best_rps > 0 else None,
        at_goodput=_at_goodput([seed.metrics for seed in cell.seeds if seed.metrics is not None]),
        seeds=tuple(
            SeedDocument(
                seed=seed.seed,
                goodput_requests_per_s=seed.rate_rps,
                metrics=seed.metrics,
                probes=tuple(
                    ProbeDocument(
                        rate_per_s=probe.rate_rps,
                        requests=probe.requests,
                        good_ratio=probe.good_ratio,
                        gave_up=probe.gave_up,
                    )
                    for probe in seed.probes
                ),
                seconds=seed.seconds,
                stands=seed.stands,
            )
            for seed in cell.seeds
        ),
    )


def _at_goodput(metrics: Sequence[Metrics]) -> AtGoodput | None:
    if not metrics:
        return None

    def mean(of: Callable[[Metrics], float]) -> float:
        return math.fsum(of(m) for m in metrics) / len(metrics)

    return AtGoodput(
        requests=mean(lambda m: m.requests),
        ttft_p50_ms=mean(lambda m: m.ttft.p50_ms),
        ttft_p99_ms=mean(lambda m: m.ttft.p99_ms),
        tbt_p50_ms=mean(lambda m: m.tbt.p50_ms),
        tbt_p99_ms=mean(lambda m: m.tbt.p99_ms),
        ttft_p99_9_ms=mean(lambda m: m.ttft.p99_9_ms),
        ttft_late_by_p99_ms=mean(lambda m: m.late_by.p99_ms),
        ttft_by_new_tokens_quarter_ratio=tuple(
            mean(lambda m, index=index: m.by_new_tokens_quarter[index].ttft_attainment_ratio)  # type: ignore[misc]
            for index in range(len(QUARTERS))
        ),
        prefill_sm_ratio=mean(lambda m: m.prefill_sm_ratio),
        decode_sm_ratio=mean(lambda m: m.decode_sm_ratio),
        idle_sm_ratio=mean(lambda m: m.idle_sm_ratio),
        input_tokens_per_s=mean(lambda m: m.input_tokens_per_s),
        output_tokens_per_s=mean(lambda m: m.output_tokens_per_s),
        cache_hit_ratio=mean(lambda m: m.cache_hit_ratio),
    )


def _workload(plan: ComparePlan, origin: Origin) -> WorkloadDocument:
    trace = plan.trace
    count = len(trace.requests)
    return WorkloadDocument(
        file=str(trace.path),
        format=trace.format,
        requests=count,
        mean_input_tokens=sum(r.input_tokens for r in trace.requests) / count,
        mean_output_tokens=sum(r.output_tokens for r in trace.requests) / count,
        block_tokens=trace.block_tokens,
        order="shuffled" if plan.shuffle else "trace",
        max_input_tokens=origin.max_input_tokens,
        left_out_longer=origin.left_out_longer,
        dropped_too_long=trace.dropped_too_long,
        clipped=trace.clipped,
    )


def _common(common: CommonRate) -> CommonRateDocument:
    return CommonRateDocument(
        tbt_ms=_ms(common.tbt_s),
        rate_per_s=common.rate_rps,
        policies=tuple(
            CommonPolicyDocument(policy=replay.policy, metrics=replay.metrics) for replay in common.replays
        ),
    )


def _ms(seconds: float) -> float:
    """Milliseconds without the noise of the conversion to seconds and back."""
    return round(seconds * 1000.0, 9)
