"""Part (c): the papers' directions, on profiles like the papers' devices."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from evaluation.goodput import CHUNKS, lookup, search
from evaluation.store import Store, fingerprint
from evaluation.workloads import (
    AZURE_CODE,
    AZURE_CONV,
    LONG_DOCUMENTS,
    MOONCAKE,
    SHAREGPT_LIKE,
    SHORT_AND_LONG,
    Sources,
    Workload,
)

from pdmuxd.daemon.compare.goodput import run_point
from pdmuxd.daemon.compare.plan import Cell, ComparePlan, Point
from pdmuxd.daemon.compare.stages import OnStage, at_points
from pdmuxd.daemon.replay.metrics import Metrics

A100, H100, H200 = "8xa100-llama-70b", "h100-qwen3-8b", "h200-llama-8b"
DUET_STATIC = ("static:88,44", "static:64,68", "static:44,88")
"""DuetServe figure 9: 22, 33 and 44 of 66 TPCs decode; a TPC is two SMs, partitions are multiples of 8."""
DUET_CHUNKED = "chunked:8192"
TBT_A100_S, TBT_H100_S, TBT_H200_S = 0.100, 0.100, 0.050
PAPER_TTFT_S = 20.0
"""Fixed part of the TTFT target here. The papers raise the rate until TBT fails or queues grow, without a
target for TTFT (MuxWise 4.2.3): short of a growing queue, this one is always met."""
PREEMPTION_RPS = (0.5, 0.3, 0.15)
"""The paper's rate, and two with less of a queue: the emulated device is slower on long prompts."""
SYNC_LOAD = 0.7
"""Share of muxwise's own goodput at which synchronisation is compared."""

KEPT = (
    *("requests", "finished", "tbt", "ttft_per_1k_new_tokens_p99_ms", "ttft_attainment_ratio"),
    *("tbt_attainment_ratio", "throughput_requests_per_s", "switches", "preemptions"),
)
"""Of the metrics of a run at a given rate."""

MUXWISE_FIGURES = {
    SHAREGPT_LIKE.name: "1.9 (figure 17)",
    LONG_DOCUMENTS.name: "1.71 (LooGLE, figure 17)",
    MOONCAKE.name: "3.06 (Tool&Agent, figure 15)",
    AZURE_CONV.name: "above 1 (no figure; 1.2 for short chat on one A100, 4.3.1)",
}
DUET_LOADS = {AZURE_CODE: 16.0, AZURE_CONV: 20.0, MOONCAKE: 5.0}
"""Requests a second of DuetServe's figures, at and beyond saturation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of the table; `key` finds its sentence in notes.py."""

    key: str
    what: str
    paper: str
    ours: str


def findings(sources: Sources, store: Store, follow: OnStage) -> Iterator[Finding]:
    """All lines, each as soon as it is known."""
    yield from _muxwise_over_chunked(sources, store, follow)
    yield from _duet(sources, store, follow)
    yield from _preemption(sources, store, follow)
    yield from _synchronisation(sources, store, follow)


def _muxwise_over_chunked(sources: Sources, store: Store, follow: OnStage) -> Iterator[Finding]:
    for workload in (SHAREGPT_LIKE, LONG_DOCUMENTS, MOONCAKE, AZURE_CONV):
        plan = sources.plan(A100, workload, ttft_fixed_s=PAPER_TTFT_S)
        found = _goodputs(plan, workload, ("muxwise", *CHUNKS), TBT_A100_S, sources.jobs, store, follow)
        best = max(CHUNKS, key=lambda policy: found[policy])
        yield Finding(
            key=f"muxwise {workload.name}",
            what=f"MuxWise over chunked prefill, goodput, {workload.title}, {A100}, TBT 100 ms",
            paper=MUXWISE_FIGURES[workload.name],
            ours=f"{_ratio(found['muxwise'], found[best])} over the best ({found['muxwise']:.3g} against "
            f"{found[best]:.3g}/s, {best}), "
            f"{_ratio(found['muxwise'], found['chunked:256'])} over chunked:256",
        )


def _duet(sources: Sources, store: Store, follow: OnStage) -> Iterator[Finding]:
    for workload, rate_rps in DUET_LOADS.items():
        plan = sources.plan(H100, workload, ttft_fixed_s=PAPER_TTFT_S)
        policies = ("duet", *DUET_STATIC, DUET_CHUNKED)
        runs = _runs(plan, workload, policies, TBT_H100_S, rate_rps, sources.jobs, store, follow)
        done = {policy: _mean(runs[policy], lambda m: m["throughput_requests_per_s"]) for policy in policies}
        best, worst = (pick(DUET_STATIC, key=lambda p: done[p]) for pick in (max, min))
        yield Finding(
            key=f"duet static {workload.name}",
            what=f"DuetServe over static splits, requests/s at {rate_rps:g}/s offered, "
            f"{workload.title}, {H100}",
            paper="above 1 everywhere (figure 9)",
            ours=f"{_ratio(done['duet'], done[best])} over the best ({best}), "
            f"{_ratio(done['duet'], done[worst])} over the worst ({worst})",
        )
        if workload is MOONCAKE:
            yield Finding(
                key="duet chunked",
                what=f"DuetServe over chunked:8192, requests/s at {rate_rps:g}/s offered, Mooncake, {H100}",
                paper="1.27 (2.72 against 2.14)",
                ours=f"{_ratio(done['duet'], done[DUET_CHUNKED])} "
                f"({done['duet']:.2f} against {done[DUET_CHUNKED]:.2f})",
            )
        found = _goodputs(plan, workload, policies, TBT_H100_S, sources.jobs, store, follow)
        best = max(DUET_STATIC, key=lambda p: found[p])
        yield Finding(
            key=f"duet goodput {workload.name}",
            what=f"the same, goodput at TBT {TBT_H100_S * 1000:g} ms, {workload.title}",
            paper="not given",
            ours=f"{_ratio(found['duet'], found[best])} over the best split ({best}), "
            f"{_ratio(found['duet'], found[DUET_CHUNKED])} over chunked:8192",
        )


def _preemption(sources: Sources, store: Store, follow: OnStage) -> Iterator[Finding]:
    plan = sources.plan(A100, SHORT_AND_LONG)
    policies = ("muxwise", "muxwise:preempt")
    for rate_rps in PREEMPTION_RPS:
        runs = _runs(plan, SHORT_AND_LONG, policies, TBT_A100_S, rate_rps, sources.jobs, store, follow)
        off, on = (_mean(runs[p], _tail_ms) for p in policies)
        preempted = _mean(runs["muxwise:preempt"], lambda m: m["preemptions"])
        yield Finding(
            key=f"preemption {rate_rps:g}",
            what=f"Preemption, p99 TTFT per token, half short and half long at {rate_rps:g}/s, {A100}",
            paper="1.96 (figure 20)",
            ours=f"{_ratio(off, on)} ({off / 1000:,.0f} to {on / 1000:,.0f} ms a token, "
            f"{preempted:.0f} preemptions)"
            if math.isfinite(off) and math.isfinite(on)
            else f"none: over 1% are refused, having waited for five targets ({preempted:.0f} preemptions)",
        )


def _tail_ms(metrics: dict) -> float:
    """JSON has no infinity: a request that was refused never got its token."""
    tail_ms = metrics["ttft_per_1k_new_tokens_p99_ms"]
    return math.inf if tail_ms is None else tail_ms


def _synchronisation(sources: Sources, store: Store, follow: OnStage) -> Iterator[Finding]:
    policies = ("muxwise", "muxwise:whole", "muxwise:whole+blocking")
    for profile, tbt_s, blocking in ((A100, TBT_A100_S, "+672 ms"), (H200, TBT_H200_S, "+314 ms")):
        plan = sources.plan(profile, MOONCAKE, ttft_fixed_s=PAPER_TTFT_S)
        found = _goodputs(plan, MOONCAKE, ("muxwise",), tbt_s, sources.jobs, store, follow)
        rate_rps = SYNC_LOAD * found["muxwise"] or SYNC_LOAD
        runs = _runs(plan, MOONCAKE, policies, tbt_s, rate_rps, sources.jobs, store, follow)
        full, whole, both = (
            [_mean(runs[p], lambda m, q=q: m["tbt"][q]) for q in ("p50_ms", "p99_ms", "max_ms")]
            for p in policies
        )
        where = f"p50, p99 and largest TBT, Mooncake at {rate_rps:.3g}/s, {profile}"
        yield Finding(
            key=f"layerwise {profile}",
            what=f"Layer-wise execution off, {where}",
            paper="+10 ms (figure 19)",
            ours=_differences(full, whole),
        )
        yield Finding(
            key=f"query {profile}",
            what=f"Query-based synchronisation off too, {where}",
            paper=f"{blocking} (figure 19)",
            ours=_differences(whole, both),
        )


def _goodputs(
    plan: ComparePlan,
    workload: Workload,
    policies: Sequence[str],
    tbt_s: float,
    jobs: int,
    store: Store,
    follow: OnStage,
) -> dict[str, float]:
    cells = [Cell(policy=policy, tbt_s=tbt_s) for policy in policies]
    search(plan, workload, cells, jobs, store, follow)
    found = ((cell.policy, lookup(plan, workload, cell, store)) for cell in cells)
    return {policy: goodput.mean for policy, goodput in found if goodput is not None}


def _runs(
    plan: ComparePlan,
    workload: Workload,
    policies: Sequence[str],
    tbt_s: float,
    rate_rps: float,
    jobs: int,
    store: Store,
    follow: OnStage,
) -> dict[str, list[dict]]:
    """The metrics of every seed at one rate, kept."""

    def key(policy: str) -> tuple[str, str]:
        where = f"{plan.profile.name} {workload.name} {tbt_s * 1000:g}ms {rate_rps:.4g}rps {policy}"
        return f"papers {where}", fingerprint(plan, policy, rate_rps)

    missing = [
        Point(cell=Cell(policy=policy, tbt_s=tbt_s), rate_rps=rate_rps, seed=seed)
        for policy in policies
        for seed in plan.seeds
        if store.get(*key(policy)) is None
    ]
    if missing:
        title = f"papers {plan.profile.name} {workload.name}"
        found: dict[str, list[Metrics]] = {}
        for point, probe in at_points(title, run_point, plan, missing, jobs, follow):
            found.setdefault(point.cell.policy, []).append(probe.metrics)
        for policy, metrics in found.items():
            store.put(*key(policy), [{name: getattr(one, name) for name in KEPT} for one in metrics])
    return {policy: store.get(*key(policy)) for policy in policies}


def _mean(runs: Sequence[dict], of: Callable[[dict], float]) -> float:
    return sum(of(metrics) for metrics in runs) / len(runs)


def _ratio(ours: float, theirs: float) -> str:
    return f"{ours / theirs:.2f}" if theirs > 0 else "no rate held"


def _differences(before: Sequence[float], after: Sequence[float]) -> str:
    return ", ".join(f"{b - a:+.1f}" for a, b in zip(before, after, strict=True)) + " ms"
