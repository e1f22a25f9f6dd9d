"""Part (d): the emulator beside what was measured on one H200, in the same settings.

Measured: SGLang 0.5.23, PyTorch 2.14.1, FA3, bf16 shapes with dummy weights, greedy, one client, Poisson
arrivals over 25 to 30 s. A request is good if its TTFT is within max(1 s, 1 s per 1,000 tokens) and the
p99 of its gaps within the TBT target. Single runs: differences under 5% are noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from evaluation.store import Store, fingerprint
from evaluation.workloads import AZURE_CONV, MOONCAKE, Sources, Workload

from pdmuxd.daemon.compare.plan import ComparePlan
from pdmuxd.daemon.compare.stages import OnStage
from pdmuxd.daemon.replay.collect import Collector
from pdmuxd.daemon.replay.metrics import ROUNDING_S, measure
from pdmuxd.daemon.replay.pool import run_tasks
from pdmuxd.daemon.replay.run import emulated, engine_totals, start_engine
from pdmuxd.daemon.replay.trace import Trace
from pdmuxd.engine.emulator.replay import drive
from pdmuxd.engine.emulator.requests import EmulatedRequest

SECONDS = 30.0
SEEDS = {True: 2, False: 6}
"""By --quick: a run has only 15 to 720 requests."""
WARM_UP_S = 3600.0
REVISION = 2
"""Of how a run is made; a change makes all again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """One run; None was not written down."""

    good_ratio: float | None
    ttft_p50_ms: float | None
    tbt_p50_ms: float | None
    tbt_p99_ms: float | None
    input_tokens_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A setting and what was measured in it."""

    profile: str
    workload: Workload
    rate_rps: float
    tbt_s: float
    policy: str
    numbers: Numbers
    cached_ratio: float = 0.0
    """Share of the input that an earlier run had left in the prefix cache."""

    @property
    def title(self) -> str:
        """The first cell of its line."""
        cached = f", {self.cached_ratio:.0%} cached" if self.cached_ratio else ""
        return f"{self.profile}, {self.workload.title}, {self.rate_rps:g}/s{cached}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One emulated run."""

    measured: Measured
    seed: int


def _rows(
    profile: str, workload: Workload, rate: float, tbt_s: float, cached: float, *rows: tuple[object, ...]
) -> list[Measured]:
    """(policy, good %, TTFT p50 ms, TBT p50 ms, TBT p99 ms[, input tokens/s])."""
    return [
        Measured(
            profile=profile,
            workload=workload,
            rate_rps=rate,
            tbt_s=tbt_s,
            policy=policy,
            cached_ratio=cached,
            numbers=Numbers(
                good_ratio=good / 100.0,
                ttft_p50_ms=ttft,
                tbt_p50_ms=p50,
                tbt_p99_ms=p99,
                input_tokens_per_s=more[0] if more else None,
            ),
        )
        for policy, good, ttft, p50, p99, *more in rows
    ]


STOCK = "prefill-first:8192"
L8B, C34B = "h200-llama-8b-measured", "h200-codellama-34b-measured"
MEASURED = [
    *_rows(L8B, AZURE_CONV, 12, 0.05, 0.0,
           (STOCK, 42, 40, 6.2, 78), ("chunked:512", 100, 50, 6.1, 15.8), ("upstream", 97, 77, 8.2, 25.5)),
    *_rows(L8B, AZURE_CONV, 24, 0.05, 0.46,
           (STOCK, 49, 42, 9.5, 176), ("chunked:512", 88, 65, 7.7, 20.0), ("upstream", 65, 158, 15.8, 25.7)),
    *_rows(L8B, MOONCAKE, 1.5, 0.05, 0.0,
           (STOCK, 59, 757, 9.2, 48), ("chunked:512", 80, 2105, 9.8, 38), ("upstream", 85, 1388, 10.7, 39)),
    *_rows(L8B, AZURE_CONV, 24, 0.05, 0.0,
           ("chunked:1024", 71, 407, 31.5, 37, 22_893), ("static:112,20", 1, 1421, 61, 116, 18_006),
           ("static:96,36", 14, 909, 31.7, 76, 21_487)),
    *_rows(L8B, MOONCAKE, 1.5, 0.05, 0.0,
           ("chunked:1024", 14, 1636, 12.4, 64, 17_330), ("static:112,20", 32, 1470, 14.5, 62, 17_133),
           ("static:96,36", 82, 2234, 21.3, 31, 17_142)),
    *_rows(L8B, MOONCAKE, 2, 0.05, 0.0,
           ("chunked:1024", 15, 3374, 43, 71, 19_033), ("static:112,20", 10, 2703, 22.6, 101, 18_055),
           ("static:96,36", 74, 4679, 27.8, 37, 18_889)),
    *_rows(C34B, AZURE_CONV, 6, 0.1, 0.0,
           ("chunked:512", 26, 2681, 62, 68, 5437), ("upstream", 2, 9248, 39, 46, 4296)),
    *_rows(C34B, MOONCAKE, 0.5, 0.1, 0.0,
           ("chunked:512", 30, 7784, 27.7, 103, 4293), ("upstream", 75, 8845, 61, 82, 4178)),
]  # fmt: skip


def run_reality(sources: Sources, store: Store, follow: OnStage) -> list[tuple[Measured, Numbers]]:
    """Every setting, emulated: means over the seeds."""
    seeds = tuple(range(SEEDS[sources.quick]))
    results = []
    for profile, workload in dict.fromkeys((m.profile, m.workload) for m in MEASURED):
        plan = sources.plan(profile, workload, seconds=SECONDS, seeds=seeds)
        mine = [m for m in MEASURED if (m.profile, m.workload) == (profile, workload)]
        missing = [m for m in mine if store.get(*_key(plan, m)) is None]
        tasks = [Task(measured=m, seed=seed) for m in missing for seed in seeds]
        if tasks:
            follow.stage(f"reality {profile} {workload.name}", len(tasks))
            found = run_tasks(
                emulate,
                plan,
                tasks,
                sources.jobs,
                on_report=lambda _index, _report: None,
                on_done=lambda _index, _result: follow.done(),
            )
            for m in missing:
                runs = [run for task, run in zip(tasks, found, strict=True) if task.measured is m]
                store.put(*_key(plan, m), {"mean": _mean(runs), "seeds": runs})
        results += [(m, Numbers(**store.get(*_key(plan, m))["mean"])) for m in mine]
    return sorted(results, key=lambda result: MEASURED.index(result[0]))


def emulate(plan: ComparePlan, task: Task, report: object) -> Numbers:
    """One run; what is cached was prefilled long before."""
    measured = task.measured
    run = plan.run(measured.rate_rps, measured.tbt_s, task.seed)
    requests = emulated(run.trace if plan.shuffle else _from_start(plan.trace, run.trace))
    if measured.cached_ratio:
        requests = _with_warm_up(requests, measured.cached_ratio)
    collector = Collector(requests, measured.tbt_s)
    engine = start_engine(run, measured.policy, requests, collector)
    drive(engine, requests, sample_every_s=WARM_UP_S, on_sample=lambda _now_s: None)
    outcomes = collector.outcomes()
    asked = outcomes.arrival_s >= WARM_UP_S if measured.cached_ratio else outcomes.arrival_s >= 0.0
    metrics = measure(outcomes, engine_totals(engine, outcomes), run.slo)
    thousands = (outcomes.input_tokens - outcomes.reused_tokens) / 1000.0
    good = (
        outcomes.finished
        & (outcomes.ttft_s <= np.maximum(1.0, thousands) + ROUNDING_S)
        & (outcomes.gap_p99_s <= measured.tbt_s + ROUNDING_S)
    )
    span_s = outcomes.end_s[asked].max() - outcomes.arrival_s[asked].min()
    return Numbers(
        good_ratio=float(good[asked].mean()),
        ttft_p50_ms=float(np.median(outcomes.ttft_s[asked])) * 1000.0,
        tbt_p50_ms=metrics.tbt.p50_ms,
        tbt_p99_ms=metrics.tbt.p99_ms,
        input_tokens_per_s=float(outcomes.input_tokens[asked].sum() / span_s),
    )


def _from_start(whole: Trace, drawn: Trace) -> Trace:
    """The drawn arrivals with the trace's first requests: the measurement began there too."""
    pairs = zip(whole.requests, drawn.requests, strict=False)
    return replace(drawn, requests=tuple(replace(first, arrival_s=d.arrival_s) for first, d in pairs))


def _with_warm_up(requests: Sequence[EmulatedRequest], cached_ratio: float) -> list[EmulatedRequest]:
    """Leading requests that hold so much of the input are sent once before, a second apart.

    Each has a text of its own. A warm-up asks for one token, so that it adds no gap.
    """
    block = 512
    total = sum(r.input_tokens for r in requests)
    measured = [
        replace(
            r,
            request_id=str(i),
            arrival_s=r.arrival_s + WARM_UP_S,
            block_keys=tuple(range(1_000_000 * (i + 1), 1_000_000 * (i + 1) + -(-r.input_tokens // block))),
        )
        for i, r in enumerate(requests)
    ]
    warm, tokens = [], 0
    for r in measured:
        if tokens >= cached_ratio * total:
            break
        tokens += r.input_tokens
        warm.append(replace(r, arrival_s=float(len(warm)), output_tokens=1))
    return [replace(r, request_id=str(i), segments=[]) for i, r in enumerate([*warm, *measured])]


def _key(plan: ComparePlan, m: Measured) -> tuple[str, str]:
    key = f"reality {m.title}, TBT {m.tbt_s * 1000:g} ms, {m.policy}"
    return key, fingerprint(plan, m.policy, m.rate_rps, m.cached_ratio, REVISION)


def _mean(runs: Sequence[Numbers]) -> Numbers:
    return Numbers(
        **{field: float(np.mean([getattr(run, field) for run in runs])) for field in Numbers.__slots__}
    )
