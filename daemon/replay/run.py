"""Replay one trace under one policy, on an emulated engine of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pdmuxd.daemon.replay.collect import Collector
from pdmuxd.daemon.replay.metrics import Judged, Metrics, judge, measure
from pdmuxd.daemon.replay.outcomes import EngineTotals, Outcomes
from pdmuxd.daemon.replay.timeline import GoodOverTime, Sample, Timeline, good_over_time, summarise
from pdmuxd.daemon.replay.trace import Trace
from pdmuxd.engine.core.slo import Slo
from pdmuxd.engine.core.types import EngineLimits
from pdmuxd.engine.emulator.engine import EmulatedEngine
from pdmuxd.engine.emulator.fleet import EmulatedFleet, is_fleet
from pdmuxd.engine.emulator.profile import Profile
from pdmuxd.engine.emulator.replay import drive
from pdmuxd.engine.emulator.requests import EmulatedRequest
from pdmuxd.engine.loop.requests import Target

SAMPLES_PER_SPAN = 600
MIN_SAMPLE_S = 0.05
CDF_POINTS = 400
SCATTER_POINTS = 2500

ReplayedEngine = EmulatedEngine | EmulatedFleet

OnProgress = Callable[[int, float], None]
"""Requests that have ended, and the virtual time in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPlan:
    """What every policy is replayed with."""

    trace: Trace
    profile: Profile
    slo: Slo
    seed: int = 0
    limits: EngineLimits | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """The distributions of a replay, thinned to what a plot can show. Infinite values are left out."""

    ttft_s: NDArray[np.float64]
    """Quantiles at `ttft_share`."""
    ttft_share: NDArray[np.float64]
    """Of all requests, so that it ends below 1 if some never got a token."""
    ttft_over_target: NDArray[np.float64]
    """Quantiles at `ttft_over_target_share` of TTFT over what was due to the same request."""
    ttft_over_target_share: NDArray[np.float64]
    gap_s: NDArray[np.float64]
    gap_share: NDArray[np.float64]
    scatter_input_tokens: NDArray[np.int64]
    """A seeded sample of the requests that got a token, with `scatter_ttft_s`."""
    scatter_ttft_s: NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyReplay:
    """One policy's result; small enough to travel between processes."""

    policy: str
    metrics: Metrics
    timeline: Timeline
    curves: Curves
    good_over_time: GoodOverTime
    wall_s: float
    """Real seconds of the replay itself, on the machine that ran it."""


def replay_policy(plan: ReplayPlan, policy: str, on_progress: OnProgress) -> PolicyReplay:
    """Replay `plan.trace` to its end.

    Raises: PolicyError or PartitionError if the profile's device cannot run the policy.
    """
    started = time.perf_counter()
    requests = emulated(plan.trace)
    collector = Collector(requests, plan.slo.tbt_s)
    engine = start_engine(plan, policy, requests, collector)
    samples: list[Sample] = []

    def on_sample(now_s: float) -> None:
        counters = engine.counters()
        samples.append(
            Sample(
                now_s=now_s,
                running=counters.running,
                waiting=counters.waiting,
                kv_used_tokens=counters.kv_used_tokens,
                prefill_sm_s=counters.busy_prefill_sm_s,
                decode_sm_s=counters.busy_decode_sm_s,
                step_s_by_reason=collector.take_reasons(),
            )
        )
        on_progress(collector.ended, now_s)

    sample_every_s = max(plan.trace.span_s / SAMPLES_PER_SPAN, MIN_SAMPLE_S)
    drive(engine, requests, sample_every_s=sample_every_s, on_sample=on_sample)
    outcomes = collector.outcomes()
    judged = judge(outcomes, plan.slo)
    kv_capacity_tokens = engine.counters().kv_capacity_tokens
    return PolicyReplay(
        policy=policy,
        metrics=measure(outcomes, engine_totals(engine, outcomes, collector.tbt_use()), plan.slo),
        timeline=summarise(samples, total_sms=engine.total_sms, kv_capacity_tokens=kv_capacity_tokens),
        curves=_curves(outcomes, judged, plan.seed),
        good_over_time=good_over_time(outcomes.arrival_s, judged.good),
        wall_s=time.perf_counter() - started,
    )


def emulated(trace: Trace) -> list[EmulatedRequest]:
    """The trace's requests as the engine takes them; their ids are their indices, as `Collector` wants."""
    return [
        EmulatedRequest(
            request_id=str(index),
            tenant=request.tenant,
            arrival_s=request.arrival_s,
            input_tokens=request.input_tokens,
            output_tokens=request.output_tokens,
            block_keys=request.prefix_ids,
            answer_keys=request.answer_ids,
        )
        for index, request in enumerate(trace.requests)
    ]


def start_engine(
    plan: ReplayPlan, policy: str, requests: Sequence[EmulatedRequest], collector: Collector
) -> ReplayedEngine:
    """An idle engine, or fleet, of its own under the plan's targets, observed by `collector`.

    Raises: PolicyError or PartitionError if the profile's device cannot run the policy.
    """
    engine = (EmulatedFleet if is_fleet(policy) else EmulatedEngine)(
        profile=plan.profile,
        policy=policy,
        limits=plan.limits,
        observer=collector,
        block_tokens=plan.trace.block_tokens or 512,
    )
    targets = {request.tenant: Target(slo=plan.slo, version=1) for request in requests}
    engine.apply_settings(version=1, policy=policy, slos=targets)
    collector.attach(engine.token_times)
    return engine


def engine_totals(
    engine: ReplayedEngine, outcomes: Outcomes, tbt_use: NDArray[np.float32] | None = None
) -> EngineTotals:
    """What the engine counted until the end of `outcomes`; `tbt_use` as of `Collector`."""
    counters = engine.counters()
    ends = outcomes.end_s[np.isfinite(outcomes.end_s)]
    return EngineTotals(
        total_sms=engine.total_sms,
        steps=counters.steps,
        stalls=counters.stalls,
        host_delays=counters.host_delays,
        tbt_use=tbt_use,
        switches=counters.switches,
        preemptions=counters.preemptions,
        retractions=counters.retractions,
        prefill_sm_s=counters.busy_prefill_sm_s,
        decode_sm_s=counters.busy_decode_sm_s,
        end_s=float(ends.max()) if len(ends) else counters.elapsed_s,
    )


def _curves(outcomes: Outcomes, judged: Judged, seed: int) -> Curves:
    owed_gaps = int(np.maximum(outcomes.output_tokens - 1, 0).sum())
    ttft_s, ttft_share = _quantiles(outcomes.ttft_s[np.isfinite(outcomes.ttft_s)], len(outcomes.ttft_s))
    over = outcomes.ttft_s / judged.due_s
    over_target, over_target_share = _quantiles(over[np.isfinite(over)], len(over))
    gap_s, gap_share = _quantiles(outcomes.gaps_s, owed_gaps)
    answered = np.flatnonzero(np.isfinite(outcomes.ttft_s))
    if len(answered) > SCATTER_POINTS:
        answered = np.random.default_rng(seed).choice(answered, SCATTER_POINTS, replace=False)
    return Curves(
        ttft_s=ttft_s,
        ttft_share=ttft_share,
        ttft_over_target=over_target,
        ttft_over_target_share=over_target_share,
        gap_s=gap_s,
        gap_share=gap_share,
        scatter_input_tokens=outcomes.input_tokens[answered],
        scatter_ttft_s=outcomes.ttft_s[answered],
    )


def _quantiles(values: NDArray[np.floating], total: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sorted values and the share of `total` at or below each, thinned, denser toward the top."""
    if len(values) == 0:
        return np.zeros(0), np.zeros(0)
    ordered = np.sort(values)
    even = np.linspace(0.0, 1.0, CDF_POINTS // 2)
    tail = 1.0 - np.geomspace(0.1, 1.0 / len(ordered), CDF_POINTS // 2)
    rank = np.unique(np.ceil(np.concatenate((even, tail)) * (len(ordered) - 1)).astype(np.int64))
    return ordered[rank].astype(np.float64), (rank + 1) / total
