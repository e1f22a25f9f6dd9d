"""The JSON result of a comparison: a stable schema, documented in docs/result-json.md."""

from __future__ import annotations

import msgspec

from pdmuxd.daemon.replay.document import ProfileDocument
from pdmuxd.daemon.replay.metrics import Metrics

SCHEMA = "pdmuxd.compare/1"
"""Keys are only ever added under one number; a changed meaning is a new number."""


class WorkloadDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The trace that runs are drawn from, and how."""

    file: str
    format: str
    requests: int
    mean_input_tokens: float
    mean_output_tokens: float
    block_tokens: int
    order: str
    """`trace` or `shuffled`."""
    max_input_tokens: int | None
    left_out_longer: int
    dropped_too_long: int
    clipped: int


class TargetsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The targets of every request."""

    ttft_fixed_ms: float
    ttft_per_1k_new_tokens_ms: float
    tbt_ms: tuple[float, ...]
    attainment_ratio: float
    e2e_ms: float | None = None


class RunsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """How runs were made."""

    seconds: float
    seeds: tuple[int, ...]
    rates_per_s: tuple[float, ...]
    """Empty when rates were searched for."""
    resolution_ratio: float
    doublings: int
    """How often the run at a seed's goodput was doubled at most."""


class ProbeDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a search."""

    rate_per_s: float
    requests: int
    good_ratio: float
    gave_up: bool
    """Too many had missed already: `good_ratio` is an upper bound."""


class SeedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One seed of a cell."""

    seed: int
    goodput_requests_per_s: float
    metrics: Metrics | None
    probes: tuple[ProbeDocument, ...]
    seconds: float
    """Of arrivals in the run that held the rate."""
    stands: bool | None
    """Whether a run twice as long held it as well; null if no run was doubled."""


class AtGoodput(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy looks like at its own goodput: means over the seeds that held a rate."""

    requests: float
    ttft_p50_ms: float
    ttft_p99_ms: float
    tbt_p50_ms: float
    tbt_p99_ms: float
    ttft_p99_9_ms: float
    ttft_late_by_p99_ms: float
    """Beyond the target, of the requests that were late; 0 if none was."""
    ttft_by_new_tokens_quarter_ratio: tuple[float, ...]
    """First tokens in time, by quarter of the requests, the shortest prompts first."""
    prefill_sm_ratio: float
    decode_sm_ratio: float
    idle_sm_ratio: float
    input_tokens_per_s: float
    output_tokens_per_s: float
    cache_hit_ratio: float


class CellDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One policy under one TBT target."""

    policy: str
    tbt_ms: float
    goodput_requests_per_s: float
    goodput_half_width_95: float | None
    ratio_to_best: float | None
    """Of the same target's cells; null when no policy held any rate."""
    at_goodput: AtGoodput | None
    seeds: tuple[SeedDocument, ...]


class CurvePointDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One full run at a chosen rate."""

    policy: str
    tbt_ms: float
    rate_per_s: float
    seed: int
    requests: int
    good_ratio: float
    ttft_attainment_ratio: float
    tbt_attainment_ratio: float


class CommonPolicyDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One policy at the common rate."""

    policy: str
    metrics: Metrics


class CommonRateDocument(msgspec.Struct, frozen=True, kw_only=True):
    """All policies at the rate that the best of them holds, with the first seed."""

    tbt_ms: float
    rate_per_s: float
    policies: tuple[CommonPolicyDocument, ...]


class CompareDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The whole result. Infinite times are null: the token never came."""

    schema: str
    pdmuxd_version: str
    created_at: str
    command: str
    percentile_method: str
    workload: WorkloadDocument
    profile: ProfileDocument
    targets: TargetsDocument
    runs: RunsDocument
    cells: tuple[CellDocument, ...]
    curve: tuple[CurvePointDocument, ...]
    common: tuple[CommonRateDocument, ...]
