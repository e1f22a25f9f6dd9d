"""The numbers of a replay, from what became of its requests. Pure.

Percentiles are nearest rank: always a value that occurred, never one between two.
A request that failed or never finished is a miss in every share and stays in every denominator; the
first token and the gaps that it is owed and never got count as infinite in the percentiles.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np

from pdmuxd.daemon.replay.outcomes import EngineTotals, Flags, Floats, Outcomes, nearest_rank
from pdmuxd.engine.core.slo import Slo

ROUNDING_S = 1e-9
"""Instants are sums of floats: a latency that exceeds its target by less than this meets it."""

LENGTH_CLASSES = (
    ("<1K", 0, 1_000),
    ("1K-4K", 1_000, 4_000),
    ("4K-16K", 4_000, 16_000),
    (">=16K", 16_000, None),
)
"""Name, first prompt length, first length above; 1K is 1,000 tokens of the whole prompt."""


QUARTERS = ("shortest quarter", "second quarter", "third quarter", "longest quarter")
"""Of the requests, by prompt tokens that were not cached; equal lengths are in one quarter."""


class Percentiles(msgspec.Struct, frozen=True, kw_only=True):
    """Nearest-rank percentiles in milliseconds; infinite (null in JSON) if the token never came."""

    p50_ms: float
    p90_ms: float
    p99_ms: float
    p99_9_ms: float
    max_ms: float


class GroupAttainment(msgspec.Struct, frozen=True, kw_only=True):
    """Attainment of one part of the requests: a prompt length class or a tenant."""

    name: str
    requests: int
    ttft_attainment_ratio: float
    tbt_attainment_ratio: float
    good_ratio: float


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the table shows. Ratios are 0 to 1."""

    requests: int
    finished: int
    failed: int
    unfinished: int
    """Neither finished nor failed when nothing was left to happen."""
    ttft: Percentiles
    tbt: Percentiles
    ttft_per_1k_new_tokens_p99_ms: float
    ttft_attainment_ratio: float
    tbt_attainment_ratio: float
    """Share of all owed gaps that were within the target."""
    targets_met: bool
    """Both attainments reach the SLO's attainment ratio."""
    good_ratio: float
    """Share of requests with TTFT, the p99 of their own gaps, and the whole answer if it has one, within the
    targets."""
    good_strict_ratio: float
    """Share of requests with TTFT and every single gap within the targets."""
    good_forgiven_ratio: float
    """Share of requests that are good, or would be without one of their late gaps: the p99 of fewer than 101
    gaps is the longest one, so that a single pause is to blame for the rest."""
    goodput_requests_per_s: float
    goodput_output_tokens_per_s: float
    throughput_requests_per_s: float
    input_tokens_per_s: float
    output_tokens_per_s: float
    input_tokens: int
    output_tokens: int
    """Really produced."""
    reused_tokens: int
    cache_hit_ratio: float
    prefill_sm_ratio: float
    decode_sm_ratio: float
    idle_sm_ratio: float
    steps: int
    switches: int
    preemptions: int
    retractions: int
    arrival_span_s: float
    makespan_s: float
    by_input_tokens: tuple[GroupAttainment, ...]
    by_tenant: tuple[GroupAttainment, ...]
    by_new_tokens_quarter: tuple[GroupAttainment, ...] = ()
    """As QUARTERS: whether long prompts pay for short ones."""
    late_requests: int = 0
    """Whose first token came after its target, or never."""
    late_by: Percentiles = Percentiles(p50_ms=0.0, p90_ms=0.0, p99_ms=0.0, p99_9_ms=0.0, max_ms=0.0)
    """Of these, TTFT beyond the target."""
    stalled_steps: int = 0
    """Decode and fused steps that took far longer than steps of their size do."""
    host_delayed_steps: int = 0
    """For which the device waited for the host for more than a millisecond."""
    tbt_use_p50_ratio: float | None = None
    """Of the TBT target, what decode steps with prompt tokens in or beside them take; None without any."""
    tbt_use_p99_ratio: float | None = None


def measure(outcomes: Outcomes, totals: EngineTotals, slo: Slo) -> Metrics:
    """All metrics of one replay under one SLO for every tenant."""
    judged = judge(outcomes, slo)
    count = len(outcomes.arrival_s)
    first_s = float(outcomes.arrival_s.min())
    arrival_span_s = float(outcomes.arrival_s.max()) - first_s
    makespan_s = totals.end_s - first_s
    # All arrivals at one instant have no span: goodput is then over the time until the last request ended.
    goodput_over_s = arrival_span_s if arrival_span_s > 0 else makespan_s
    everyone = _group("all", np.ones(count, dtype=np.bool_), judged)
    good_tokens = int(outcomes.produced_tokens[judged.good].sum())
    sm_s = totals.total_sms * makespan_s
    prefill, decode = _per(totals.prefill_sm_s, sm_s), _per(totals.decode_sm_s, sm_s)
    finished, failed = int(outcomes.finished.sum()), int(outcomes.failed.sum())
    input_tokens, reused = int(outcomes.input_tokens.sum()), int(outcomes.reused_tokens.sum())
    produced = int(outcomes.produced_tokens.sum())
    excess_s = outcomes.ttft_s - judged.due_s
    late_by_s = excess_s[excess_s > ROUNDING_S]
    edges = np.quantile(judged.new_tokens, (0.25, 0.5, 0.75))
    quarter = np.searchsorted(edges, judged.new_tokens)
    prefilled = int(outcomes.input_tokens[np.isfinite(outcomes.ttft_s)].sum())
    return Metrics(
        requests=count,
        finished=finished,
        failed=failed,
        unfinished=count - finished - failed,
        ttft=_percentiles(outcomes.ttft_s),
        tbt=_percentiles(outcomes.gaps_s, missing=int(judged.owed_gaps.sum()) - len(outcomes.gaps_s)),
        ttft_per_1k_new_tokens_p99_ms=1000.0
        * nearest_rank(outcomes.ttft_s / (judged.new_tokens / 1000.0), 990),
        ttft_attainment_ratio=everyone.ttft_attainment_ratio,
        tbt_attainment_ratio=everyone.tbt_attainment_ratio,
        targets_met=min(everyone.ttft_attainment_ratio, everyone.tbt_attainment_ratio)
        >= slo.attainment_ratio,
        good_ratio=everyone.good_ratio,
        good_strict_ratio=float(judged.good_strict.mean()),
        good_forgiven_ratio=float(judged.good_forgiven.mean()),
        goodput_requests_per_s=_per(int(judged.good.sum()), goodput_over_s),
        goodput_output_tokens_per_s=_per(good_tokens, goodput_over_s),
        throughput_requests_per_s=_per(finished, makespan_s),
        input_tokens_per_s=_per(prefilled, makespan_s),
        output_tokens_per_s=_per(produced, makespan_s),
        input_tokens=input_tokens,
        output_tokens=produced,
        reused_tokens=reused,
        cache_hit_ratio=_per(reused, input_tokens),
        prefill_sm_ratio=prefill,
        decode_sm_ratio=decode,
        idle_sm_ratio=max(0.0, 1.0 - prefill - decode),
        steps=totals.steps,
        switches=totals.switches,
        preemptions=totals.preemptions,
        retractions=totals.retractions,
        arrival_span_s=arrival_span_s,
        makespan_s=makespan_s,
        by_input_tokens=tuple(
            _group(name, _between(outcomes, low, high), judged) for name, low, high in LENGTH_CLASSES
        ),
        by_tenant=tuple(
            _group(name, outcomes.tenant == index, judged) for index, name in enumerate(outcomes.tenants)
        ),
        by_new_tokens_quarter=tuple(
            _group(name, quarter == index, judged) for index, name in enumerate(QUARTERS)
        ),
        late_requests=len(late_by_s),
        late_by=_percentiles(late_by_s),
        stalled_steps=totals.stalls,
        host_delayed_steps=totals.host_delays,
        tbt_use_p50_ratio=_of_target(totals, 500),
        tbt_use_p99_ratio=_of_target(totals, 990),
    )


class Judged(msgspec.Struct, frozen=True):
    """What each request was owed: what it was owed and whether it got it."""

    new_tokens: Floats
    due_s: Floats
    """From arrival to the first token."""
    owed_gaps: Floats
    gaps_met: Floats
    ttft_met: Flags
    good: Flags
    good_strict: Flags
    good_forgiven: Flags


def judge(outcomes: Outcomes, slo: Slo) -> Judged:
    """Every request against the targets."""
    new_tokens = np.maximum(outcomes.input_tokens - outcomes.reused_tokens, 1).astype(np.float64)
    due_s = slo.ttft_fixed_s + slo.ttft_per_1k_new_tokens_s * new_tokens / 1000.0
    ttft_met = outcomes.finished & (outcomes.ttft_s <= due_s + ROUNDING_S)
    limit_s = slo.tbt_s + ROUNDING_S
    owed_gaps = np.maximum(outcomes.output_tokens - 1, 0).astype(np.float64)
    gaps_met = np.where(outcomes.finished, outcomes.gaps_met, 0).astype(np.float64)
    whole_s = outcomes.end_s - outcomes.arrival_s
    in_time = ttft_met & (whole_s <= (math.inf if slo.e2e_s is None else slo.e2e_s + ROUNDING_S))
    good = in_time & (outcomes.gap_p99_s <= limit_s)
    other_gaps = np.maximum(owed_gaps - 1, 0)
    may_be_late = other_gaps - np.ceil(99 * other_gaps / 100)
    return Judged(
        new_tokens=new_tokens,
        due_s=due_s,
        owed_gaps=owed_gaps,
        gaps_met=gaps_met,
        ttft_met=ttft_met,
        good=good,
        good_strict=in_time & (outcomes.gap_max_s <= limit_s),
        good_forgiven=good | (in_time & (owed_gaps - gaps_met - 1 <= may_be_late)),
    )


def _group(name: str, members: Flags, judged: Judged) -> GroupAttainment:
    """Shares among `members`; an empty group has missed nothing."""
    count = int(members.sum())
    return GroupAttainment(
        name=name,
        requests=count,
        ttft_attainment_ratio=_share(judged.ttft_met[members].sum(), count),
        tbt_attainment_ratio=_share(judged.gaps_met[members].sum(), judged.owed_gaps[members].sum()),
        good_ratio=_share(judged.good[members].sum(), count),
    )


def _between(outcomes: Outcomes, low: int, high: int | None) -> Flags:
    above = outcomes.input_tokens >= low
    return above if high is None else above & (outcomes.input_tokens < high)


def _percentiles(
    values_s: Floats | np.ndarray[tuple[int], np.dtype[np.float32]], missing: int = 0
) -> Percentiles:
    p50, p90, p99, p99_9, top = (
        1000.0 * nearest_rank(values_s, permille, missing) for permille in (500, 900, 990, 999, 1000)
    )
    return Percentiles(p50_ms=p50, p90_ms=p90, p99_ms=p99, p99_9_ms=p99_9, max_ms=top)


def _of_target(totals: EngineTotals, permille: int) -> float | None:
    use = totals.tbt_use
    return None if use is None or not len(use) else nearest_rank(use, permille)


def _share(part: float, whole: float) -> float:
    return float(part / whole) if whole else 1.0


def _per(amount: float, over: float) -> float:
    return float(amount / over) if over > 0 else 0.0
