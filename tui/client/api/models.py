"""What is sent and answered, as JSON. Made by `make client` from the OpenAPI document.

What each field means is in the document."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict


class ActionOut(TypedDict):
    """What came of it."""

    action: Literal["start", "drain", "resume", "restart"]
    changed: bool
    state: Literal["starting", "serving", "draining", "down"]
    text: str


class ActivateIn(TypedDict):
    """How to activate."""

    force: NotRequired[bool]


class ActiveOut(TypedDict):
    """What the policies predict with."""

    profile: ProfileOut | None
    in_force: bool
    predicts_with: str
    difference: str | None


class AdminTokenIn(TypedDict):
    """A new token."""

    name: str
    role: NotRequired[Literal["admin", "reader"]]
    lifetime_s: NotRequired[int | None]


class AdminTokenOut(TypedDict):
    """A token without its secret."""

    name: str
    role: Literal["admin", "reader"]
    last4: str
    created_by: str
    created_at: str
    expires_at: str | None
    revoked_at: str | None
    last_used_at: str | None
    version: int


class AlarmEvent(TypedDict):
    """An alarm was raised, or cleared."""

    at: str
    id: str
    kind: Literal[
        "engine_down",
        "link_lost",
        "ttft_burn",
        "tbt_burn",
        "availability_burn",
        "e2e_burn",
        "late_now",
        "telemetry_dropped",
        "predictor_drift",
        "database_lost",
        "database_unwritable",
        "disk_low",
        "usage_unsaved",
        "clock_jumped",
        "loop_late",
        "quarantined",
    ]
    tenant: str | None
    state: Literal["raised", "cleared"]
    severity: Literal["critical", "warning"]
    since: str
    text: str


class AlarmsOut(TypedDict):
    """What is wrong, and what was."""

    active: list[AlarmEvent]
    recent: list[AlarmEvent]


AssumedOut = TypedDict(
    "AssumedOut",
    {
        "decode_bs": "int",
        "decode_context_tokens": "int",
        "prefill_new_tokens": "int",
        "prefill_reused_tokens": "int",
        "from": "Literal['request', 'recent', 'mixed', 'default']",
    },
)

"""The load that the answer holds for."""


class AttainmentOut(TypedDict):
    """A page of the tenants, by name."""

    windows_ms: list[float]
    totals: TotalsOut | None
    tenants: list[TenantAttainmentOut]


class AuditEntryOut(TypedDict):
    """One change."""

    entry_id: int
    at: str
    who_kind: str
    who: str
    why: str | None
    source: str | None
    action: str
    subject: str
    tenant: str | None
    settings_version: int
    before: dict[str, Any] | None
    after: dict[str, Any] | None


class AuditOut(TypedDict):
    """Changes, newest first."""

    entries: list[AuditEntryOut]
    next_before: int | None


class AvailabilityOut(TypedDict):
    """Whether requests were served, over one window."""

    window_ms: float
    asked: int
    unserved: int
    limited: int
    availability_ratio: float | None
    budget_left_ratio: float
    burn: float | None


class BandOut(TypedDict):
    """Where a share is likely to lie: by past forecasts' errors, and by how few requests there are."""

    low_ratio: float
    high_ratio: float


class BindingOut(TypedDict):
    """A tenant whose TBT target was the strictest of those that decoded."""

    tenant: str
    time_ratio: float


class BusyOut(TypedDict):
    """The same question for a busy moment of the last five minutes: the 90th percentile of each figure."""

    assumed: AssumedOut
    feasible: bool
    mode: str
    text: str
    prefill_tokens_per_s: float | None
    lowest_feasible_tbt_ms: float | None


class ChangeOut(TypedDict):
    """One thing that was learned, or reset."""

    kind: str
    subject: str
    before: float
    after: float
    evidence: str
    at_bound: bool
    created_at: str


class ConfigAppliedOut(TypedDict):
    """What was changed, or with `dry_run` would be."""

    settings_version: int
    dry_run: bool
    changed: bool
    summary: str
    changes: list[ConfigChangeOut]
    unmanaged: int
    unmanaged_names: list[str]
    outlook: OutlookOut | None


class ConfigChangeOut(TypedDict):
    """One thing that does not stay as it is."""

    kind: Literal["tenant", "policy", "prices"]
    name: str
    action: Literal["create", "change", "delete"]
    text: str
    fields: list[ConfigDifferenceOut]


class ConfigDifferenceOut(TypedDict):
    """One field that becomes another."""

    field: str
    before: str | float | bool | None
    after: str | float | bool | None


class ConfigIn(TypedDict):
    """All that operators set, without keys and tokens: of those only hashes are stored."""

    tenants: NotRequired[dict[str, ConfigTenantIn | None] | None]
    policy: NotRequired[PolicyIn | None]
    prices: NotRequired[PricesIn | None]


class ConfigOut(TypedDict):
    """All that operators set."""

    tenants: dict[str, Any]
    policy: dict[str, Any]
    prices: dict[str, Any]


class ConfigTenantIn(TypedDict):
    """A tenant as it is to be: all of it, so what is left out gets its default."""

    slo: NotRequired[SloIn | None]
    max_in_flight: NotRequired[int]
    cache_group: NotRequired[str | None]
    priority_class: NotRequired[Literal["interactive", "standard", "batch"]]
    weight: NotRequired[float]
    max_wait_ms: NotRequired[int | None]
    late_action: NotRequired[Literal["serve", "refuse"]]
    count_cached_tokens: NotRequired[bool]
    max_tbt_cost_ratio: NotRequired[float | None]
    model_aliases: NotRequired[list[str]]
    enabled: NotRequired[bool]
    limits: NotRequired[LimitsPatch | None]


class CorrectionOut(TypedDict):
    """How much slower than fitted work is."""

    predictor: str
    sms: int
    ratio: float


class DecisionEvent(TypedDict):
    """One decision, or several alike that followed each other; single values are the last one's."""

    at: str
    seq: int
    count: int
    step: int
    mode: str
    reason: str
    order: NotRequired[str]
    partition_id: int
    prefill_sms: int
    decode_sms: int
    decode_bs: int
    decode_reused_tokens: int
    prefill_new_tokens: int
    prefill_layers: int
    decode_steps: int
    sitting_out: NotRequired[int]
    sitting_out_for: NotRequired[TbtTarget | None]
    predicted_ms: float | None
    measured_ms: float
    measured_max_ms: float
    stall_cause: NotRequired[str | None]
    guard_ratio: float | None
    margin_ratio: NotRequired[float | None]
    stall_room_ms: NotRequired[float | None]
    prefill_ratio: NotRequired[float | None]
    split_ratio: NotRequired[float | None]
    tbt_target_ms: NotRequired[float | None]
    delivery_ms: NotRequired[float | None]
    slack_ms: float | None
    slack_min_ms: float | None
    folded_other: int
    tbt_capped: NotRequired[list[str]]


class DecisionSummariesOut(TypedDict):
    """What was decided, by time and then the most frequent first."""

    step_s: int
    summaries: list[DecisionSummaryOut]


class DecisionSummaryOut(TypedDict):
    """Decisions alike in one period."""

    at: str
    mode: str
    reason: str
    count: int
    time_ms: int
    prefill_tokens: int


class DecisionsOut(TypedDict):
    """The newest decisions that fit, newest first."""

    decisions: list[DecisionEvent]
    total_seen: int
    oldest_at: str | None
    dropped: int


class DriftOut(TypedDict):
    """How far predictors are off."""

    pairs: list[DriftPairOut]
    alarm: bool


class DriftPairOut(TypedDict):
    """Measured over predicted for one kind of work, over the last ten minutes."""

    work: Literal["decode", "prefill", "fused"]
    sms: int
    samples: int
    p50_ratio: float
    p90_ratio: float
    error_p50_ratio: float
    error_p90_ratio: float


class DutyOut(TypedDict):
    """Something that the daemon does by itself."""

    name: str
    period_ms: float | None
    last_run_at: str | None
    failed: str | None
    is_alone: bool


class EffectMeasuredOut(TypedDict):
    """The minute before a change, or the time since."""

    length_ms: float
    sms: SmUseOut
    tenants: list[StandingOut]


class EffectOut(TypedDict):
    """One change."""

    at: str
    kind: str
    tenant: str | None
    text: str
    state: Literal["too_early", "measuring", "measured", "overtaken"]
    mixed: bool
    before: EffectMeasuredOut
    after: EffectMeasuredOut | None
    replay: EffectReplayOut | None


class EffectReplayOut(TypedDict):
    """What the change did, apart from the load: the requests since, forecast under both settings."""

    requests: int
    why_not: str | None
    tenants: list[ReplayedTenantOut]


class EffectsOut(TypedDict):
    """What changes did, newest first."""

    least_ms: float
    most_ms: float
    effects: list[EffectOut]


class EngineInfoOut(TypedDict):
    """How the engine introduced itself."""

    engine: str
    engine_version: str
    model: str
    device: str
    total_sms: int
    partitions: list[PartitionOut]
    profile: str
    profile_provenance: str


class EngineOut(TypedDict):
    """The engine at this instant."""

    state: Literal["starting", "serving", "draining", "down"]
    since: str
    pid: int | None
    restarts: int
    last_error: str | None
    held: bool
    policy: str | None
    wanted_version: int
    acked_version: int
    strictest_tbt: TbtOut | None
    engine: EngineInfoOut | None
    stats: EngineStatsOut | None


class EngineStatsOut(TypedDict):
    """The engine's last heartbeat; counters are totals since it started."""

    uptime_s: float
    running: int
    waiting: int
    prefilling: int
    kv_used_tokens: int
    kv_capacity_tokens: int
    cached_tokens: int
    prompt_tokens: int
    reused_tokens: int
    output_tokens: int
    steps: int
    switches: int
    preemptions: int
    retractions: int
    partition_id: int
    prefill_sms: int
    decode_sms: int
    sm_busy_prefill_ratio: float
    sm_busy_decode_ratio: float
    dropped_records: int
    profile_id: int
    gpu_clock_mhz: int | None
    gpu_power_w: float | None
    stalls: int
    host_delays: int
    hidden: HiddenOut


class FitOut(TypedDict):
    """How far a predictor is off on samples that it was not fitted to."""

    predictor: str
    sms: int
    samples: int
    outliers: int
    p50_error_ratio: float
    p90_error_ratio: float
    max_error_ratio: float


class FrozenIn(TypedDict):
    """Whether to learn."""

    frozen: bool


class FusedOut(TypedDict):
    """Fused steps on all SMs, as the policy in force sizes them."""

    meets: bool
    token_budget: int
    worst_ms: float | None
    prefill_tokens_per_s: float | None


class GoodOut(TypedDict):
    """Requests of the last hour with TTFT, 99% of their gaps and their whole answer in time."""

    ended: int
    delivered: int
    by_steps: int
    forgiven: int


class GroupOut(TypedDict):
    """One partition group."""

    time_ms: float
    time_ratio: float | None
    decisions: int
    prefill_tokens: int
    decode_tokens: int
    partition_id: int
    prefill_sms: int
    decode_sms: int
    in_force: bool


class GuardCellOut(TypedDict):
    """One cell of the guard; the indexes are those of the grid."""

    decode_sms: int
    prefill_new: int
    prefill_reused: int
    decode_bs: int
    decode_reused: int
    ratio: float
    observed_max_ratio: float | None
    observed_p50_ratio: float | None
    samples: int
    raised: bool
    changed_at: str


class GuardOut(TypedDict):
    """The cells that decisions have used since the engine started."""

    cells: list[GuardCellOut]


class HeldOut(TypedDict):
    """A body of a tenant, or a whole tenant, that is refused with 403 `quarantined`."""

    tenant: str
    body: str | None
    request_ids: list[str]
    engine_errors: list[str]
    until: str


class HiddenOut(TypedDict):
    """How many waiting requests the policy does not see or may not begin, by reason; each has one."""

    policy_change: int
    kv_denied: int
    long_prompt: int
    beyond_window: int


class HistoryColumns(TypedDict):
    """A value per instant of `at` in each."""

    arrivals: list[int]
    ended: list[int]
    good: list[int]
    ttft_judged: list[int]
    ttft_missed: list[int]
    tbt_requests: list[int]
    gaps: list[int]
    gaps_missed: list[int]
    engine_ttft_judged: list[int]
    engine_ttft_missed: list[int]
    engine_gaps: list[int]
    engine_gaps_missed: list[int]
    prompt_tokens: list[int]
    cached_tokens: list[int]
    output_tokens: list[int]
    refused: list[int]
    prefill_sm_ms: list[int]
    decode_sm_ms: list[int]
    total_sm_ms: list[int]
    asked: list[int]
    unserved: list[int]
    limited: list[int]
    e2e_judged: list[int]
    e2e_missed: list[int]
    worst_wait_ms: list[int]
    worst_ttft_ms: list[int]
    worst_gap_ms: list[int]
    waiting: list[int]
    late: list[int]
    in_flight: list[int]


class HistoryOut(TypedDict):
    """One tenant's history, or the node's."""

    tenant: str | None
    step_s: int
    kept_from: str
    at: list[str]
    columns: HistoryColumns
    marks: list[MarkOut]


class IncidentEvent(TypedDict):
    """A time in which a tenant did not get what it is promised, from its first miss to its last."""

    at: str
    incident_id: str
    tenant: str
    state: Literal["open", "over"]
    began_at: str
    last_missed_at: str
    over_at: NotRequired[str | None]
    ended_by: NotRequired[Literal["recovered", "gone", "restart"] | None]
    promised_ratio: float
    targets: list[IncidentTarget]
    cause: str
    cause_ratio: NotRequired[float | None]
    behind: NotRequired[str | None]
    text: str
    command: NotRequired[str | None]
    predicted: NotRequired[str | None]
    not_predicted: NotRequired[str | None]


class IncidentTarget(TypedDict):
    """One target during an incident: how much of it was missed, and how badly at worst."""

    target: Literal["ttft", "tbt", "availability", "e2e"]
    judged: int
    missed: int
    worst_ratio: float
    worst_at: str
    worst_by_ms: float


class IncidentsOut(TypedDict):
    """Incidents: on the first page those that are open, the worst first; then the others, newest first."""

    incidents: list[IncidentEvent]
    next_before: str | None


class IssuedAdminTokenOut(TypedDict):
    """A token with its secret, for the only time."""

    name: str
    role: Literal["admin", "reader"]
    last4: str
    created_by: str
    created_at: str
    expires_at: str | None
    revoked_at: str | None
    last_used_at: str | None
    version: int
    secret: str


class IssuedKeyOut(TypedDict):
    """A key with its secret, for the only time."""

    key_id: str
    tenant: str
    label: str
    scopes: list[Literal["serve", "read", "admin"]]
    state: Literal["valid", "expired", "revoked"]
    last4: str
    created_at: str
    expires_at: str | None
    revoked_at: str | None
    last_used_at: str | None
    replaces: str | None
    version: int
    secret: str


class KeyIn(TypedDict):
    """A new key."""

    label: NotRequired[str]
    scopes: NotRequired[list[Literal["serve", "read", "admin"]]]
    lifetime_s: NotRequired[int | None]


class KeyOut(TypedDict):
    """A key without its secret."""

    key_id: str
    tenant: str
    label: str
    scopes: list[Literal["serve", "read", "admin"]]
    state: Literal["valid", "expired", "revoked"]
    last4: str
    created_at: str
    expires_at: str | None
    revoked_at: str | None
    last_used_at: str | None
    replaces: str | None
    version: int


class LedgerEntryOut(TypedDict):
    """One request that ended."""

    id: int
    at: str
    request_id: str
    tenant: str
    tenant_since: str
    key_id: str
    model: str
    outcome: str
    status: int | None
    prefill_tokens: int
    cached_tokens: int
    output_tokens: int
    good: bool
    duration_ms: int | None
    ttft_ms: int | None


LedgerOut = TypedDict(
    "LedgerOut", {"from": "str", "to": "str", "entries": "list[LedgerEntryOut]", "next_after": "int | None"}
)

"""Requests in the order in which they were stored."""


class LimitIn(TypedDict):
    """A limit: its value, and what becomes of a request above it."""

    value: int
    action: NotRequired[Literal["refuse", "wait"]]


class LimitInForce(TypedDict):
    """One limit, and what of it is used."""

    value: int
    action: Literal["refuse", "wait"]
    name: Literal[
        "concurrency",
        "requests_per_min",
        "input_tokens_per_min",
        "output_tokens_per_min",
        "tokens_per_day",
        "tokens_per_month",
        "spend_cents_per_day",
        "spend_cents_per_month",
        "max_output_tokens",
        "max_wait_ms",
    ]
    of: str
    used: int | None


class LimitOut(TypedDict):
    """One limit."""

    value: int
    action: Literal["refuse", "wait"]


class LimitsOut(TypedDict):
    """All limits that hold for the requests of a tenant or of a key."""

    tenant: str
    key_id: str | None
    max_in_flight: int
    count_cached_tokens: bool
    limits: list[LimitInForce]
    version: int


class LimitsPatch(TypedDict):
    """Which limits change: null removes one, and what is left out stays."""

    concurrency: NotRequired[LimitIn | None]
    requests_per_min: NotRequired[LimitIn | None]
    input_tokens_per_min: NotRequired[LimitIn | None]
    output_tokens_per_min: NotRequired[LimitIn | None]
    tokens_per_day: NotRequired[LimitIn | None]
    tokens_per_month: NotRequired[LimitIn | None]
    spend_cents_per_day: NotRequired[LimitIn | None]
    spend_cents_per_month: NotRequired[LimitIn | None]
    max_output_tokens: NotRequired[LimitIn | None]
    max_wait_ms: NotRequired[LimitIn | None]


LoadOut = TypedDict(
    "LoadOut",
    {
        "decode_bs": "int",
        "decode_context_tokens": "int",
        "prefill_new_tokens": "int",
        "prefill_reused_tokens": "int",
        "from": "Literal['request', 'recent', 'mixed', 'default']",
    },
)

"""The load that a split is chosen for."""


class LoadOutlookOut(TypedDict):
    """What the policy in force would do at one load, under the tenant's TBT target."""

    load: LoadOut
    tbt_ms: float
    text: str
    prefill_tokens_per_s: float | None
    meets: bool


class LogOut(TypedDict):
    """The last lines, oldest first."""

    path: str | None
    lines: list[str]
    truncated: bool


class MarkOut(TypedDict):
    """Something that happened at an instant."""

    at: str
    kind: str
    tenant: str | None
    text: str


class ObstacleOut(TypedDict):
    """A target that is infeasible."""

    field: str
    text: str
    lowest_feasible_ms: float | None


class OutcomeOut(TypedDict):
    """What one variant came to."""

    label: str
    policy: str
    requests: int
    finished: int
    span_ms: float
    goodput_per_s: float
    prefill_sm_ratio: float
    decode_sm_ratio: float
    tenants: list[TenantOutcomeOut]


class OutlookMeasuredOut(TypedDict):
    """What it really got, to judge the prediction by."""

    ttft_attainment_ratio: float | None
    tbt_attainment_ratio: float | None


class OutlookOut(TypedDict):
    """What new targets would give at the load of the last minutes."""

    verdict: Literal["feasible", "at_risk", "infeasible", "unknown"]
    text: str
    window_ms: float
    requests: int
    checked: int
    policy: str | None
    predictors: str | None
    before: UnderTargetsOut
    after: UnderTargetsOut
    lowest_feasible_tbt_ms: float | None
    obstacles: list[ObstacleOut]
    tenants: list[TenantOutlookOut]


class PartitionOut(TypedDict):
    """The SMs of one partition group."""

    prefill_sms: int
    decode_sms: int


class PartitionsOut(TypedDict):
    """Where the time went, since the engine started."""

    since: str | None
    switches: int
    groups: list[GroupOut]
    fused: WorkOut
    decode: WorkOut
    idle: UseOut


class PastAlarmOut(TypedDict):
    """One alarm from its beginning to its end."""

    alarm_id: int
    kind: str
    tenant: str | None
    severity: str
    began_at: str
    raised_at: str
    ended_at: str | None
    ended_by: str | None
    text: str


class PastAlarmsOut(TypedDict):
    """Alarms, newest first."""

    alarms: list[PastAlarmOut]
    next_before: int | None


class PolicyIn(TypedDict):
    """All of it; what is null or absent is as the settings, or the engine, have it."""

    policy: NotRequired[str | None]
    partitions: NotRequired[list[SplitIn] | None]
    shadow: NotRequired[str | None]


class PolicyOut(TypedDict):
    """A scheduling policy."""

    name: str
    syntax: str
    summary: str
    example: str


class PolicyRevisionOut(TypedDict):
    """One edit of the policy; version 0 is what the settings have."""

    version: int
    policy: str | None
    partitions: list[PolicySplitOut] | None
    shadow: str | None
    settings_version: int
    created_at: str | None


class PolicySplitOut(TypedDict):
    """One split of the device."""

    prefill_sms: int
    decode_sms: int


class PolicyStateOut(TypedDict):
    """The newest edit, and how far it has come."""

    version: int
    policy: str | None
    partitions: list[PolicySplitOut] | None
    shadow: str | None
    settings_version: int
    created_at: str | None
    running: str | None
    in_force: bool
    waits_for: Literal["engine", "next_start"] | None
    why: str | None
    shadow_report: ShadowOut | None


class PriceIn(TypedDict):
    """What a million tokens of each kind cost."""

    tenant: NotRequired[str | None]
    model: NotRequired[str | None]
    input: str
    cached: str
    output: str


class PriceOut(TypedDict):
    """What a million tokens of each kind cost; decimal numbers as text."""

    tenant: str | None
    model: str | None
    input: str
    cached: str
    output: str


class PricesIn(TypedDict):
    """The whole list: what it does not have costs nothing, and is not told in money."""

    currency: NotRequired[str | None]
    prices: list[PriceIn]


class PricesOut(TypedDict):
    """The price list that holds."""

    currency: str | None
    prices: list[PriceOut]
    version: int


class Problem(TypedDict):
    """The body of every answer of 400 and above."""

    type: str
    title: str
    status: int
    detail: str
    field: str | None


class ProfileCellOut(TypedDict):
    """A guard cell whose bound was learned."""

    cell: str
    ratio: float


class ProfileDifferenceOut(TypedDict):
    """One quantity of two profiles."""

    quantity: str
    unit: str
    before: float | None
    after: float | None


class ProfileGuardOut(TypedDict):
    """The guard as measured."""

    pairs: int
    exceeded_ratio: float
    overestimate_ratio: float
    default_ratio: float
    cells: int


class ProfileLearnedOut(TypedDict):
    """What serving has taught beyond the profile."""

    cells: list[ProfileCellOut]
    corrections: list[CorrectionOut]


class ProfileOut(TypedDict):
    """A stored profile."""

    id: int
    name: str
    version: int
    origin: str
    active: bool
    frozen: bool
    created_at: str
    device: str
    gpus: int
    model: str
    provenance: str
    total_sms: int
    samples: int
    took_ms: float
    worst_p90_error_ratio: float
    fits: list[FitOut]
    guard: ProfileGuardOut | None
    left_out: list[str]
    doubts: list[str]


class ReleaseIn(TypedDict):
    """The tenant whose bodies are released; all tenants if none is named."""

    tenant: NotRequired[str | None]


class ReleasedOut(TypedDict):
    """What came of it."""

    released: int


class ReloadOut(TypedDict):
    """The settings that have changed since they were read last, by name."""

    in_force: list[str]
    needs_engine_restart: list[str]
    needs_upgrade: list[str]
    needs_restart: list[str]


class ReplayIn(TypedDict):
    """Which traffic, and how to serve it beside what is in force."""

    minutes: NotRequired[float]
    variants: list[VariantIn]


class ReplayOut(TypedDict):
    """One replay; its outcomes are there when it is `done`."""

    id: str
    state: Literal["waiting", "running", "done", "failed", "cancelled"]
    created_at: str
    requests: int
    progress_ratio: float
    reason: str | None
    outcomes: list[OutcomeOut]


class ReplayedTenantOut(TypedDict):
    """Shares in time that one tenant's requests since the change are forecast to get."""

    tenant: str
    requests: int
    ttft_before_ratio: float | None
    ttft_after_ratio: float | None
    tbt_before_ratio: float | None
    tbt_after_ratio: float | None


class RequestDecisions(TypedDict):
    """The decisions between a request's arrival and its end, as far as they are kept."""

    count: int
    by_reason: dict[str, int]
    by_partition_id: dict[str, int]
    min_slack_ms: float | None


class RequestEvent(TypedDict):
    """The life of a request; what the engine tells is null while it is in flight or if the engine died."""

    request_id: str
    tenant: str
    state: Literal["in_flight", "ended"]
    outcome: NotRequired[
        Literal["finished", "aborted", "invalid", "limited", "refused", "expired", "lost", "failed"] | None
    ]
    error: NotRequired[str | None]
    path: str | None
    status: int | None
    arrived_at: str | None
    ended_at: str | None
    new_tokens: NotRequired[int | None]
    reused_tokens: NotRequired[int | None]
    output_tokens: NotRequired[int | None]
    queue_ms: NotRequired[float | None]
    prefill_ms: NotRequired[float | None]
    ttft_ms: NotRequired[float | None]
    ttft_target_ms: NotRequired[float | None]
    tbt_target_ms: NotRequired[float | None]
    tbt_max_ms: NotRequired[float | None]
    tbt_p99_ms: NotRequired[float | None]
    tbt_gaps: NotRequired[int | None]
    tbt_gaps_met: NotRequired[int | None]
    e2e_ms: NotRequired[float | None]
    e2e_target_ms: NotRequired[float | None]
    retractions: NotRequired[int | None]
    slo_version: NotRequired[int | None]
    delivered_ttft_ms: NotRequired[float | None]
    delivered_tbt_max_ms: NotRequired[float | None]
    delivered_tbt_gaps_missed: NotRequired[int | None]
    delivered_e2e_ms: NotRequired[float | None]
    missed: NotRequired[list[RequestViolation]]
    timeline: NotRequired[list[TimelinePoint]]


class RequestOut(TypedDict):
    """The life of one request, with what was decided meanwhile."""

    request_id: str
    tenant: str
    state: Literal["in_flight", "ended"]
    outcome: NotRequired[
        Literal["finished", "aborted", "invalid", "limited", "refused", "expired", "lost", "failed"] | None
    ]
    error: NotRequired[str | None]
    path: str | None
    status: int | None
    arrived_at: str | None
    ended_at: str | None
    new_tokens: NotRequired[int | None]
    reused_tokens: NotRequired[int | None]
    output_tokens: NotRequired[int | None]
    queue_ms: NotRequired[float | None]
    prefill_ms: NotRequired[float | None]
    ttft_ms: NotRequired[float | None]
    ttft_target_ms: NotRequired[float | None]
    tbt_target_ms: NotRequired[float | None]
    tbt_max_ms: NotRequired[float | None]
    tbt_p99_ms: NotRequired[float | None]
    tbt_gaps: NotRequired[int | None]
    tbt_gaps_met: NotRequired[int | None]
    e2e_ms: NotRequired[float | None]
    e2e_target_ms: NotRequired[float | None]
    retractions: NotRequired[int | None]
    slo_version: NotRequired[int | None]
    delivered_ttft_ms: NotRequired[float | None]
    delivered_tbt_max_ms: NotRequired[float | None]
    delivered_tbt_gaps_missed: NotRequired[int | None]
    delivered_e2e_ms: NotRequired[float | None]
    missed: NotRequired[list[RequestViolation]]
    timeline: NotRequired[list[TimelinePoint]]
    decisions: RequestDecisions


class RequestViolation(TypedDict):
    """A target that a request missed."""

    target: str
    by_ms: float
    cause: str
    text: str
    mode: NotRequired[str | None]
    prefill_sms: NotRequired[int | None]
    decode_sms: NotRequired[int | None]


class RequestsOut(TypedDict):
    """The newest requests that fit, newest first."""

    requests: list[RequestEvent]
    kept: int


class RestartIn(TypedDict):
    """How to restart; the body may be left out."""

    at_once: NotRequired[bool]


class RollbackIn(TypedDict):
    """What to go back to."""

    version: NotRequired[int | None]


class RotateIn(TypedDict):
    """How to rotate."""

    overlap_s: NotRequired[int]


class ShadowOut(TypedDict):
    """How the shadow's decisions differ, since it was set: where a prefill begins, 50 times a second at
    most.
    """

    policy: str
    decisions: int
    same_ratio: float | None
    other_mode_ratio: float | None
    other_split_ratio: float | None
    other_requests_ratio: float | None
    late_ratio: float | None
    shadow_late_ratio: float | None
    prefill_sms_mean: float | None
    shadow_prefill_sms_mean: float | None


class SharingIn(TypedDict):
    """How a tenant takes part in what all share; what is left out is as it is in force."""

    priority_class: NotRequired[Literal["interactive", "standard", "batch"] | None]
    weight: NotRequired[float | None]
    late_action: NotRequired[Literal["serve", "refuse"] | None]


class SloIn(TypedDict):
    """A tenant's targets, all of them."""

    ttft_fixed_ms: float
    ttft_per_1k_new_tokens_ms: float
    tbt_ms: float
    attainment_ratio: float
    e2e_ms: NotRequired[float | None]


class SloOut(TypedDict):
    """One revision of a tenant's targets."""

    ttft_fixed_ms: float
    ttft_per_1k_new_tokens_ms: float
    tbt_ms: float
    attainment_ratio: float
    e2e_ms: float | None
    version: int
    settings_version: int
    in_force: bool
    created_at: str


class SloPatch(TypedDict):
    """The targets that are to change; what is left out stays."""

    ttft_fixed_ms: NotRequired[float | None]
    ttft_per_1k_new_tokens_ms: NotRequired[float | None]
    tbt_ms: NotRequired[float | None]
    attainment_ratio: NotRequired[float | None]
    e2e_ms: NotRequired[float | None]


class SloSetOut(TypedDict):
    """The new revision, with what was predicted of it."""

    ttft_fixed_ms: float
    ttft_per_1k_new_tokens_ms: float
    tbt_ms: float
    attainment_ratio: float
    e2e_ms: float | None
    version: int
    settings_version: int
    in_force: bool
    created_at: str
    outlook: OutlookOut | None


class SmUseOut(TypedDict):
    """Use of the SMs; null where there was nothing to average."""

    split_ratio: float | None
    fused_ratio: float | None
    prefill_sms: float | None
    decode_sms: float | None
    prefill_busy_ratio: float | None
    decode_busy_ratio: float | None


class SplitIn(TypedDict):
    """One split of the device."""

    prefill_sms: int
    decode_sms: int


class StandingOut(TypedDict):
    """How one tenant's targets were met, as clients saw it where the gateway could."""

    tenant: str
    requests: int
    ttft_attainment_ratio: float | None
    ttft_p99_ms: float | None
    gaps: int
    tbt_attainment_ratio: float | None
    tbt_p99_ms: float | None


class TbtCostOut(TypedDict):
    """A tenant whose TBT target was the strictest of those that decoded."""

    tenant: str
    tbt_ms: float
    time_ratio: float
    others_tbt_ms: float
    prefill_busy_ratio: float
    prefill_busy_ratio_without: float
    prefill_ratio: float
    max_tbt_cost_ratio: float | None
    capped_since: str | None
    planned_tbt_ms: float


class TbtOut(TypedDict):
    """A tenant's TBT target."""

    tenant: str
    tbt_ms: float


class TbtTarget(TypedDict):
    """The strictest TBT target of the tenants with requests in flight, or of all if there are none."""

    tenant: str
    tbt_ms: float


class TenantAttainmentOut(TypedDict):
    """One tenant."""

    tenant: str
    target_ratio: float
    budget_left_ratio: float
    ttft: list[WindowOut]
    tbt: list[WindowOut]
    e2e: list[WindowOut]
    availability: list[AvailabilityOut]
    good: GoodOut
    outcomes: dict[str, int]
    requests: int
    refused: int
    in_flight: int
    waiting: int
    late_now: int
    oldest_wait_ms: float
    verdict: Literal["met", "missed", "no_traffic"]


class TenantFiguresOut(TypedDict):
    """What a tenant's requests of the last minutes get; null where there was nothing to judge."""

    ttft_p50_ms: float | None
    ttft_p99_ms: float | None
    ttft_attainment_ratio: float | None
    tbt_attainment_ratio: float | None


class TenantIn(TypedDict):
    """A new tenant; without `slo` it gets the default targets."""

    name: str
    slo: NotRequired[SloIn | None]
    max_in_flight: NotRequired[int]
    cache_group: NotRequired[str | None]
    priority_class: NotRequired[Literal["interactive", "standard", "batch"]]
    weight: NotRequired[float]
    max_wait_ms: NotRequired[int | None]
    late_action: NotRequired[Literal["serve", "refuse"]]
    count_cached_tokens: NotRequired[bool]
    max_tbt_cost_ratio: NotRequired[float | None]
    model_aliases: NotRequired[list[str]]


class TenantOut(TypedDict):
    """A tenant with its present targets."""

    name: str
    enabled: bool
    max_in_flight: int
    cache_group: str | None
    priority_class: Literal["interactive", "standard", "batch"]
    weight: float
    max_wait_ms: int | None
    late_action: Literal["serve", "refuse"]
    count_cached_tokens: bool
    max_tbt_cost_ratio: float | None
    model_aliases: list[str]
    limits: dict[str, LimitOut]
    slo: SloOut
    created_at: str
    version: int


class TenantOutcomeOut(TypedDict):
    """What one tenant's requests got; null where there was nothing to judge, or it never came."""

    tenant: str
    requests: int
    finished: int
    ttft_p50_ms: float | None
    ttft_p99_ms: float | None
    ttft_attainment_ratio: float | None
    tbt_p99_ms: float | None
    tbt_attainment_ratio: float | None
    promised_ratio: float
    kept: bool
    needed_ttft_fixed_ms: float | None


class TenantOutlookOut(TypedDict):
    """One tenant: measured, and predicted under the targets that hold and under the new ones."""

    tenant: str
    requests: int
    attainment_ratio: float
    measured: OutlookMeasuredOut | None
    before: TenantFiguresOut | None
    after: TenantFiguresOut | None
    kept: bool | None
    expected: Literal["kept", "at_risk", "missed"] | None
    ttft_band: BandOut | None
    tbt_band: BandOut | None
    ttft_delivery_ms: float
    gap_delivery_ms: float
    e2e_attainment_ratio: float | None


class TenantPatch(TypedDict):
    """What is to change; what is left out stays."""

    enabled: NotRequired[bool | None]
    max_in_flight: NotRequired[int | None]
    cache_group: NotRequired[str | None]
    priority_class: NotRequired[Literal["interactive", "standard", "batch"] | None]
    weight: NotRequired[float | None]
    max_wait_ms: NotRequired[int | None]
    late_action: NotRequired[Literal["serve", "refuse"] | None]
    count_cached_tokens: NotRequired[bool | None]
    max_tbt_cost_ratio: NotRequired[float | None]
    model_aliases: NotRequired[list[str] | None]


class TimelinePoint(TypedDict):
    """An instant in a request's life, counted from its arrival."""

    at_ms: float
    what: str


class TotalsOut(TypedDict):
    """All tenants together, whatever this page shows of them."""

    tenants: int
    active: int
    met: int
    missed: int
    in_flight: int
    waiting: int
    late_now: int
    oldest_wait_ms: float
    requests: int
    refused: int


class UnderTargetsOut(TypedDict):
    """What holds at the load of the last minutes, under one set of targets."""

    loads: list[LoadOutlookOut]
    binding: list[BindingOut]
    prefill_busy_ratio: float | None


class UpgradeIn(TypedDict):
    """How to upgrade; the body may be left out."""

    migrate: NotRequired[bool]


class UpgradeOut(TypedDict):
    """The daemon that has taken over."""

    before: str
    version: str


class UsageLineOut(TypedDict):
    """One tenant's use of one model."""

    tenant: str
    tenant_since: str
    model: str
    requests: int
    good: int
    prompt_tokens: int
    cached_tokens: int
    prefill_tokens: int
    output_tokens: int
    refused: int
    refused_by_cause: dict[str, int]
    prefill_sm_s: float
    decode_sm_s: float
    ttft_attainment_ratio: float | None
    tbt_attainment_ratio: float | None
    cost: str | None
    currency: str | None


UsageOut = TypedDict("UsageOut", {"from": "str", "to": "str", "lines": "list[UsageLineOut]"})

"""All tenants that used anything, by name; those that were deleted since included."""


class UseOut(TypedDict):
    """How long something was used, since the engine started."""

    time_ms: float
    time_ratio: float | None


class VariantIn(TypedDict):
    """One way to serve the traffic; what is left out is as it is in force."""

    label: NotRequired[str | None]
    policy: NotRequired[str | None]
    partitions: NotRequired[list[SplitIn] | None]
    targets: NotRequired[dict[str, SloIn]]
    rate_scale: NotRequired[float]
    tenant_scale: NotRequired[dict[str, float]]
    sharing: NotRequired[dict[str, SharingIn]]


class VersionOut(TypedDict):
    """Which pdmuxd this is."""

    version: str
    settings_version: int


class WhatIfIn(TypedDict):
    """A target, and the load to ask it for."""

    tbt_ms: float
    decode_bs: NotRequired[int | None]
    decode_context_tokens: NotRequired[int | None]
    prefill_new_tokens: NotRequired[int | None]
    prefill_reused_tokens: NotRequired[int | None]


class WhatIfOut(TypedDict):
    """What would become of the target."""

    tbt_ms: float
    assumed: AssumedOut
    feasible: bool
    policy: str
    mode: str
    chosen_partition_id: int | None
    reason: str
    text: str
    predictors: str
    prefill_ms: float | None
    prefill_tokens_per_s: float | None
    lowest_feasible_tbt_ms: float | None
    fused: FusedOut
    groups: list[WhatIfSplitOut]
    busy: BusyOut | None


class WhatIfSplitOut(TypedDict):
    """One split under that load."""

    partition_id: int
    prefill_sms: int
    decode_sms: int
    decode_ms: float
    guard_ratio: float
    worst_ms: float
    slack_ms: float
    meets: bool
    prefill_ms: float
    prefill_tokens_per_s: float


class WhoamiOut(TypedDict):
    """The caller."""

    role: Literal["admin", "reader", "tenant"]
    may_change: bool
    kind: Literal["file-token", "reader-token", "admin-token", "api-key", "proxy", "command-line", "daemon"]
    name: str
    tenant: str | None
    scopes: list[str]


class WindowOut(TypedDict):
    """One target over one window."""

    window_ms: float
    requests: int
    judged: int
    missed: int
    attainment_ratio: float | None
    engine_judged: int
    engine_missed: int
    budget_left_ratio: float
    burn: float | None


class WorkOut(TypedDict):
    """The same, with what was done."""

    time_ms: float
    time_ratio: float | None
    decisions: int
    prefill_tokens: int
    decode_tokens: int
