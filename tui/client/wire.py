"""What the daemon says, as the console reads it. Made by `make client` from the OpenAPI document.

What each field means is there."""

from __future__ import annotations

from datetime import datetime

import msgspec

API_VERSION = 1


class PartitionOut(msgspec.Struct, frozen=True, kw_only=True):
    """The SMs of one partition group."""

    prefill_sms: int = 0
    decode_sms: int = 0


class EngineEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The engine's state, at each change of it."""

    at: datetime
    state: str
    reason: str | None = None
    since: datetime
    pid: int | None = None
    restarts: int = 0
    held: bool = False
    wanted_version: int = 0
    acked_version: int = 0
    kind: str | None = None
    engine_version: str | None = None
    model: str | None = None
    device: str | None = None
    total_sms: int | None = None
    partitions: tuple[PartitionOut, ...] | None = None
    profile: str | None = None
    policy: str | None = None


class AlarmEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An alarm was raised, or cleared."""

    at: datetime
    id: str
    kind: str
    tenant: str | None = None
    state: str
    severity: str
    since: datetime
    text: str


class IncidentTarget(msgspec.Struct, frozen=True, kw_only=True):
    """One target during an incident: how much of it was missed, and how badly at worst."""

    target: str
    judged: int = 0
    missed: int = 0
    worst_ratio: float = 0.0
    worst_at: datetime
    worst_by_ms: float = 0.0


class IncidentEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A time in which a tenant did not get what it is promised, from its first miss to its last."""

    at: datetime
    incident_id: str
    tenant: str
    state: str
    began_at: datetime
    last_missed_at: datetime
    over_at: datetime | None = None
    ended_by: str | None = None
    promised_ratio: float = 0.0
    targets: tuple[IncidentTarget, ...] = ()
    cause: str
    cause_ratio: float | None = None
    behind: str | None = None
    text: str
    command: str | None = None
    predicted: str | None = None
    not_predicted: str | None = None


class HelloEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The first event of every stream: who answers, and how things are now."""

    version: str
    api_version: int = 0
    session: str
    started_at: datetime
    at: datetime
    role: str
    head: str
    engine: EngineEvent
    alarms: tuple[AlarmEvent, ...] = ()
    incidents: tuple[IncidentEvent, ...] = ()
    settings_version: int = 0
    heartbeat_ms: float = 0.0
    stats_ms: float = 0.0


class GapEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Events that this client will not get."""

    reason: str
    lost: int | None = None
    from_: str | None = msgspec.field(name="from", default=None)
    to: str | None = None
    at: datetime


class ByeEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The last event of a stream that the daemon ends."""

    reason: str
    at: datetime


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """The engine's counters since it started."""

    steps: int = 0
    switches: int = 0
    preemptions: int = 0
    retractions: int = 0
    prompt_tokens: int = 0
    reused_tokens: int = 0
    output_tokens: int = 0
    dropped_records: int = 0


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """A distribution in milliseconds; percentiles are within 4%, null when `count` is 0."""

    count: int = 0
    p50: float | None = None
    p99: float | None = None


class TbtTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The strictest TBT target of the tenants with requests in flight, or of all if there are none."""

    tenant: str
    tbt_ms: float = 0.0


class StatsEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The daemon and its engine at one instant, ten times a second."""

    engine_age_ms: float | None = None
    policy: str | None = None
    uptime_ms: float | None = None
    partition_id: int | None = None
    prefill_sms: int | None = None
    decode_sms: int | None = None
    total_sms: int | None = None
    mode: str | None = None
    reason: str | None = None
    sm_busy_prefill_ratio: float | None = None
    sm_busy_decode_ratio: float | None = None
    running: int | None = None
    waiting: int | None = None
    prefilling: int | None = None
    kv_used_tokens: int | None = None
    kv_capacity_tokens: int | None = None
    cached_tokens: int | None = None
    cache_hit_ratio: float | None = None
    prompt_tokens_per_s: float | None = None
    output_tokens_per_s: float | None = None
    steps_per_s: float | None = None
    totals: Totals | None = None
    at: datetime
    state: str
    in_flight: int = 0
    window_ms: float = 0.0
    requests_per_s: float = 0.0
    goodput_per_s: float = 0.0
    good_by_steps_per_s: float | None = None
    good_forgiven_per_s: float | None = None
    ttft_ms: Spread = Spread()
    tbt_gap_ms: Spread = Spread()
    tbt_worst_ms: Spread = Spread()
    strictest_tbt: TbtTarget | None = None
    waiting_total: int = 0
    late_now: int = 0
    oldest_wait_ms: float = 0.0


class TenantLoad(msgspec.Struct, frozen=True, kw_only=True):
    """One tenant in the event `tenants`."""

    tenant: str
    in_flight: int = 0
    waiting: int = 0
    late_now: int = 0
    oldest_wait_ms: float = 0.0
    verdict: str = "no_traffic"
    target_ratio: float = 0.0
    requests_per_s: float = 0.0
    goodput_per_s: float = 0.0
    good_by_steps_per_s: float | None = None
    good_forgiven_per_s: float | None = None
    output_tokens_per_s: float = 0.0
    refused_per_s: float = 0.0
    ttft_ms: Spread = Spread()
    tbt_gap_ms: Spread = Spread()
    tbt_worst_ms: Spread = Spread()
    ttft_attainment_ratio: float | None = None
    tbt_attainment_ratio: float | None = None
    availability_ratio: float | None = None
    e2e_attainment_ratio: float | None = None
    ttft_burn: float | None = None
    tbt_burn: float | None = None
    availability_burn: float | None = None
    e2e_burn: float | None = None
    asked: int = 0
    unserved: int = 0
    limited: int = 0
    budget_left_ratio: float | None = None
    tbt_capped_since: datetime | None = None
    planned_tbt_ms: float | None = None


class TenantsEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The busiest tenants, once a second."""

    at: datetime
    window_ms: float = 0.0
    omitted: int = 0
    tenants: tuple[TenantLoad, ...] = ()
    incidents: tuple[IncidentEvent, ...] = ()
    incidents_omitted: int = 0
    alarm_texts: dict[str, str] = {}


class DecisionEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One decision, or several alike that followed each other; single values are the last one's."""

    at: datetime
    seq: int = 0
    count: int = 0
    step: int = 0
    mode: str
    reason: str
    order: str = "arrival"
    partition_id: int = 0
    prefill_sms: int = 0
    decode_sms: int = 0
    decode_bs: int = 0
    decode_reused_tokens: int = 0
    prefill_new_tokens: int = 0
    prefill_layers: int = 0
    decode_steps: int = 0
    sitting_out: int = 0
    sitting_out_for: TbtTarget | None = None
    predicted_ms: float | None = None
    measured_ms: float = 0.0
    measured_max_ms: float = 0.0
    stall_cause: str | None = None
    guard_ratio: float | None = None
    margin_ratio: float | None = None
    stall_room_ms: float | None = None
    prefill_ratio: float | None = None
    split_ratio: float | None = None
    tbt_target_ms: float | None = None
    delivery_ms: float | None = None
    slack_ms: float | None = None
    slack_min_ms: float | None = None
    folded_other: int = 0
    tbt_capped: tuple[str, ...] = ()


class RequestViolation(msgspec.Struct, frozen=True, kw_only=True):
    """A target that a request missed."""

    target: str
    by_ms: float = 0.0
    cause: str
    text: str
    mode: str | None = None
    prefill_sms: int | None = None
    decode_sms: int | None = None


class TimelinePoint(msgspec.Struct, frozen=True, kw_only=True):
    """An instant in a request's life, counted from its arrival."""

    at_ms: float = 0.0
    what: str


class RequestEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The life of a request; what the engine tells is null while it is in flight or if the engine died."""

    request_id: str
    tenant: str
    state: str
    outcome: str | None = None
    error: str | None = None
    path: str | None = None
    status: int | None = None
    arrived_at: datetime | None = None
    ended_at: datetime | None = None
    new_tokens: int | None = None
    reused_tokens: int | None = None
    output_tokens: int | None = None
    queue_ms: float | None = None
    prefill_ms: float | None = None
    ttft_ms: float | None = None
    ttft_target_ms: float | None = None
    tbt_target_ms: float | None = None
    tbt_max_ms: float | None = None
    tbt_p99_ms: float | None = None
    tbt_gaps: int | None = None
    tbt_gaps_met: int | None = None
    e2e_ms: float | None = None
    e2e_target_ms: float | None = None
    retractions: int | None = None
    slo_version: int | None = None
    delivered_ttft_ms: float | None = None
    delivered_tbt_max_ms: float | None = None
    delivered_tbt_gaps_missed: int | None = None
    delivered_e2e_ms: float | None = None
    missed: tuple[RequestViolation, ...] = ()
    timeline: tuple[TimelinePoint, ...] = ()


class Targets(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant's targets in the event `settings`."""

    tenant: str
    slo_version: int = 0
    tbt_ms: float = 0.0
    ttft_fixed_ms: float = 0.0
    ttft_per_1k_new_tokens_ms: float = 0.0
    attainment_ratio: float = 0.0
    e2e_ms: float | None = None
    enabled: bool = False


class SettingsEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A settings version was wanted, or came into force in the engine."""

    at: datetime
    kind: str
    version: int = 0
    changed: tuple[Targets, ...] = ()
    removed: tuple[str, ...] = ()


class ActionOut(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it."""

    action: str
    changed: bool = False
    state: str
    text: str


class TotalsOut(msgspec.Struct, frozen=True, kw_only=True):
    """All tenants together, whatever this page shows of them."""

    tenants: int = 0
    active: int = 0
    met: int = 0
    missed: int = 0
    in_flight: int = 0
    waiting: int = 0
    late_now: int = 0
    oldest_wait_ms: float = 0.0
    requests: int = 0
    refused: int = 0


class WindowOut(msgspec.Struct, frozen=True, kw_only=True):
    """One target over one window."""

    window_ms: float = 0.0
    requests: int = 0
    judged: int = 0
    missed: int = 0
    attainment_ratio: float | None = None
    engine_judged: int = 0
    engine_missed: int = 0
    budget_left_ratio: float = 0.0
    burn: float | None = None


class AvailabilityOut(msgspec.Struct, frozen=True, kw_only=True):
    """Whether requests were served, over one window."""

    window_ms: float = 0.0
    asked: int = 0
    unserved: int = 0
    limited: int = 0
    availability_ratio: float | None = None
    budget_left_ratio: float = 0.0
    burn: float | None = None


class GoodOut(msgspec.Struct, frozen=True, kw_only=True):
    """Requests of the last hour with TTFT, 99% of their gaps and their whole answer in time."""

    ended: int = 0
    delivered: int = 0
    by_steps: int = 0
    forgiven: int = 0


class TenantAttainmentOut(msgspec.Struct, frozen=True, kw_only=True):
    """One tenant."""

    tenant: str
    target_ratio: float = 0.0
    budget_left_ratio: float = 0.0
    ttft: tuple[WindowOut, ...] = ()
    tbt: tuple[WindowOut, ...] = ()
    e2e: tuple[WindowOut, ...] = ()
    availability: tuple[AvailabilityOut, ...] = ()
    good: GoodOut = GoodOut()
    outcomes: dict[str, int] = {}
    requests: int = 0
    refused: int = 0
    in_flight: int = 0
    waiting: int = 0
    late_now: int = 0
    oldest_wait_ms: float = 0.0
    verdict: str


class AttainmentOut(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the tenants, by name."""

    windows_ms: tuple[float, ...] = ()
    totals: TotalsOut | None = None
    tenants: tuple[TenantAttainmentOut, ...] = ()


class DecisionsOut(msgspec.Struct, frozen=True, kw_only=True):
    """The newest decisions that fit, newest first."""

    decisions: tuple[DecisionEvent, ...] = ()
    total_seen: int = 0
    oldest_at: datetime | None = None
    dropped: int = 0


class DriftPairOut(msgspec.Struct, frozen=True, kw_only=True):
    """Measured over predicted for one kind of work, over the last ten minutes."""

    work: str
    sms: int = 0
    samples: int = 0
    p50_ratio: float = 0.0
    p90_ratio: float = 0.0
    error_p50_ratio: float = 0.0
    error_p90_ratio: float = 0.0


class DriftOut(msgspec.Struct, frozen=True, kw_only=True):
    """How far predictors are off."""

    pairs: tuple[DriftPairOut, ...] = ()
    alarm: bool = False


class SmUseOut(msgspec.Struct, frozen=True, kw_only=True):
    """Use of the SMs; null where there was nothing to average."""

    split_ratio: float | None = None
    fused_ratio: float | None = None
    prefill_sms: float | None = None
    decode_sms: float | None = None
    prefill_busy_ratio: float | None = None
    decode_busy_ratio: float | None = None


class StandingOut(msgspec.Struct, frozen=True, kw_only=True):
    """How one tenant's targets were met, as clients saw it where the gateway could."""

    tenant: str
    requests: int = 0
    ttft_attainment_ratio: float | None = None
    ttft_p99_ms: float | None = None
    gaps: int = 0
    tbt_attainment_ratio: float | None = None
    tbt_p99_ms: float | None = None


class EffectMeasuredOut(msgspec.Struct, frozen=True, kw_only=True):
    """The minute before a change, or the time since."""

    length_ms: float = 0.0
    sms: SmUseOut = SmUseOut()
    tenants: tuple[StandingOut, ...] = ()


class ReplayedTenantOut(msgspec.Struct, frozen=True, kw_only=True):
    """Shares in time that one tenant's requests since the change are forecast to get."""

    tenant: str
    requests: int = 0
    ttft_before_ratio: float | None = None
    ttft_after_ratio: float | None = None
    tbt_before_ratio: float | None = None
    tbt_after_ratio: float | None = None


class EffectReplayOut(msgspec.Struct, frozen=True, kw_only=True):
    """What the change did, apart from the load: the requests since, forecast under both settings."""

    requests: int = 0
    why_not: str | None = None
    tenants: tuple[ReplayedTenantOut, ...] = ()


class EffectOut(msgspec.Struct, frozen=True, kw_only=True):
    """One change."""

    at: datetime
    kind: str
    tenant: str | None = None
    text: str
    state: str
    mixed: bool = False
    before: EffectMeasuredOut = EffectMeasuredOut()
    after: EffectMeasuredOut | None = None
    replay: EffectReplayOut | None = None


class EffectsOut(msgspec.Struct, frozen=True, kw_only=True):
    """What changes did, newest first."""

    least_ms: float = 0.0
    most_ms: float = 0.0
    effects: tuple[EffectOut, ...] = ()


class GuardCellOut(msgspec.Struct, frozen=True, kw_only=True):
    """One cell of the guard; the indexes are those of the grid."""

    decode_sms: int = 0
    prefill_new: int = 0
    prefill_reused: int = 0
    decode_bs: int = 0
    decode_reused: int = 0
    ratio: float = 0.0
    observed_max_ratio: float | None = None
    observed_p50_ratio: float | None = None
    samples: int = 0
    raised: bool = False
    changed_at: datetime


class GuardOut(msgspec.Struct, frozen=True, kw_only=True):
    """The cells that decisions have used since the engine started."""

    cells: tuple[GuardCellOut, ...] = ()


class HistoryColumns(msgspec.Struct, frozen=True, kw_only=True):
    """A value per instant of `at` in each."""

    arrivals: tuple[int, ...] = ()
    ended: tuple[int, ...] = ()
    good: tuple[int, ...] = ()
    ttft_judged: tuple[int, ...] = ()
    ttft_missed: tuple[int, ...] = ()
    tbt_requests: tuple[int, ...] = ()
    gaps: tuple[int, ...] = ()
    gaps_missed: tuple[int, ...] = ()
    engine_ttft_judged: tuple[int, ...] = ()
    engine_ttft_missed: tuple[int, ...] = ()
    engine_gaps: tuple[int, ...] = ()
    engine_gaps_missed: tuple[int, ...] = ()
    prompt_tokens: tuple[int, ...] = ()
    cached_tokens: tuple[int, ...] = ()
    output_tokens: tuple[int, ...] = ()
    refused: tuple[int, ...] = ()
    prefill_sm_ms: tuple[int, ...] = ()
    decode_sm_ms: tuple[int, ...] = ()
    total_sm_ms: tuple[int, ...] = ()
    asked: tuple[int, ...] = ()
    unserved: tuple[int, ...] = ()
    limited: tuple[int, ...] = ()
    e2e_judged: tuple[int, ...] = ()
    e2e_missed: tuple[int, ...] = ()
    worst_wait_ms: tuple[int, ...] = ()
    worst_ttft_ms: tuple[int, ...] = ()
    worst_gap_ms: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()
    late: tuple[int, ...] = ()
    in_flight: tuple[int, ...] = ()


class MarkOut(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened at an instant."""

    at: datetime
    kind: str
    tenant: str | None = None
    text: str


class HistoryOut(msgspec.Struct, frozen=True, kw_only=True):
    """One tenant's history, or the node's."""

    tenant: str | None = None
    step_s: int = 0
    kept_from: datetime
    at: tuple[datetime, ...] = ()
    columns: HistoryColumns = HistoryColumns()
    marks: tuple[MarkOut, ...] = ()


class LogOut(msgspec.Struct, frozen=True, kw_only=True):
    """The last lines, oldest first."""

    path: str | None = None
    lines: tuple[str, ...] = ()
    truncated: bool = False


class LoadOut(msgspec.Struct, frozen=True, kw_only=True):
    """The load that a split is chosen for."""

    decode_bs: int = 0
    decode_context_tokens: int = 0
    prefill_new_tokens: int = 0
    prefill_reused_tokens: int = 0
    from_: str = msgspec.field(name="from")


class LoadOutlookOut(msgspec.Struct, frozen=True, kw_only=True):
    """What the policy in force would do at one load, under the tenant's TBT target."""

    load: LoadOut
    tbt_ms: float = 0.0
    text: str
    prefill_tokens_per_s: float | None = None
    meets: bool = False


class BindingOut(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant whose TBT target was the strictest of those that decoded."""

    tenant: str
    time_ratio: float = 0.0


class UnderTargetsOut(msgspec.Struct, frozen=True, kw_only=True):
    """What holds at the load of the last minutes, under one set of targets."""

    loads: tuple[LoadOutlookOut, ...] = ()
    binding: tuple[BindingOut, ...] = ()
    prefill_busy_ratio: float | None = None


class ObstacleOut(msgspec.Struct, frozen=True, kw_only=True):
    """A target that is infeasible."""

    field: str
    text: str
    lowest_feasible_ms: float | None = None


class OutlookMeasuredOut(msgspec.Struct, frozen=True, kw_only=True):
    """What it really got, to judge the prediction by."""

    ttft_attainment_ratio: float | None = None
    tbt_attainment_ratio: float | None = None


class TenantFiguresOut(msgspec.Struct, frozen=True, kw_only=True):
    """What a tenant's requests of the last minutes get; null where there was nothing to judge."""

    ttft_p50_ms: float | None = None
    ttft_p99_ms: float | None = None
    ttft_attainment_ratio: float | None = None
    tbt_attainment_ratio: float | None = None


class BandOut(msgspec.Struct, frozen=True, kw_only=True):
    """Where a share is likely to lie: by past forecasts' errors, and by how few requests there are."""

    low_ratio: float = 0.0
    high_ratio: float = 0.0


class TenantOutlookOut(msgspec.Struct, frozen=True, kw_only=True):
    """One tenant: measured, and predicted under the targets that hold and under the new ones."""

    tenant: str
    requests: int = 0
    attainment_ratio: float = 0.0
    measured: OutlookMeasuredOut | None = None
    before: TenantFiguresOut | None = None
    after: TenantFiguresOut | None = None
    kept: bool | None = None
    expected: str | None = None
    ttft_band: BandOut | None = None
    tbt_band: BandOut | None = None
    ttft_delivery_ms: float = 0.0
    gap_delivery_ms: float = 0.0
    e2e_attainment_ratio: float | None = None


class OutlookOut(msgspec.Struct, frozen=True, kw_only=True):
    """What new targets would give at the load of the last minutes."""

    verdict: str
    text: str
    window_ms: float = 0.0
    requests: int = 0
    checked: int = 0
    policy: str | None = None
    predictors: str | None = None
    before: UnderTargetsOut = UnderTargetsOut()
    after: UnderTargetsOut = UnderTargetsOut()
    lowest_feasible_tbt_ms: float | None = None
    obstacles: tuple[ObstacleOut, ...] = ()
    tenants: tuple[TenantOutlookOut, ...] = ()


class UseOut(msgspec.Struct, frozen=True, kw_only=True):
    """How long something was used, since the engine started."""

    time_ms: float = 0.0
    time_ratio: float | None = None


class WorkOut(UseOut, frozen=True, kw_only=True):
    """The same, with what was done."""

    decisions: int = 0
    prefill_tokens: int = 0
    decode_tokens: int = 0


class GroupOut(WorkOut, frozen=True, kw_only=True):
    """One partition group."""

    partition_id: int = 0
    prefill_sms: int = 0
    decode_sms: int = 0
    in_force: bool = False


class PartitionsOut(msgspec.Struct, frozen=True, kw_only=True):
    """Where the time went, since the engine started."""

    since: datetime | None = None
    switches: int = 0
    groups: tuple[GroupOut, ...] = ()
    fused: WorkOut = WorkOut()
    decode: WorkOut = WorkOut()
    idle: UseOut = UseOut()


class PastAlarmOut(msgspec.Struct, frozen=True, kw_only=True):
    """One alarm from its beginning to its end."""

    alarm_id: int = 0
    kind: str
    tenant: str | None = None
    severity: str
    began_at: datetime
    raised_at: datetime
    ended_at: datetime | None = None
    ended_by: str | None = None
    text: str


class PastAlarmsOut(msgspec.Struct, frozen=True, kw_only=True):
    """Alarms, newest first."""

    alarms: tuple[PastAlarmOut, ...] = ()
    next_before: int | None = None


class RequestDecisions(msgspec.Struct, frozen=True, kw_only=True):
    """The decisions between a request's arrival and its end, as far as they are kept."""

    count: int = 0
    by_reason: dict[str, int] = {}
    by_partition_id: dict[str, int] = {}
    min_slack_ms: float | None = None


class RequestOut(RequestEvent, frozen=True, kw_only=True):
    """The life of one request, with what was decided meanwhile."""

    decisions: RequestDecisions = RequestDecisions()


class RequestsOut(msgspec.Struct, frozen=True, kw_only=True):
    """The newest requests that fit, newest first."""

    requests: tuple[RequestEvent, ...] = ()
    kept: int = 0


class LimitOut(msgspec.Struct, frozen=True, kw_only=True):
    """One limit."""

    value: int = 0
    action: str


class SloOut(msgspec.Struct, frozen=True, kw_only=True):
    """One revision of a tenant's targets."""

    ttft_fixed_ms: float = 0.0
    ttft_per_1k_new_tokens_ms: float = 0.0
    tbt_ms: float = 0.0
    attainment_ratio: float = 0.0
    e2e_ms: float | None = None
    version: int = 0
    settings_version: int = 0
    in_force: bool = False
    created_at: datetime


class TenantOut(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant with its present targets."""

    name: str
    enabled: bool = False
    max_in_flight: int = 0
    cache_group: str | None = None
    priority_class: str
    weight: float = 0.0
    max_wait_ms: int | None = None
    late_action: str
    count_cached_tokens: bool = False
    max_tbt_cost_ratio: float | None = None
    model_aliases: tuple[str, ...] = ()
    limits: dict[str, LimitOut] = {}
    slo: SloOut
    created_at: datetime
    version: int = 0


class AssumedOut(msgspec.Struct, frozen=True, kw_only=True):
    """The load that the answer holds for."""

    decode_bs: int = 0
    decode_context_tokens: int = 0
    prefill_new_tokens: int = 0
    prefill_reused_tokens: int = 0
    from_: str = msgspec.field(name="from")


class FusedOut(msgspec.Struct, frozen=True, kw_only=True):
    """Fused steps on all SMs, as the policy in force sizes them."""

    meets: bool = False
    token_budget: int = 0
    worst_ms: float | None = None
    prefill_tokens_per_s: float | None = None


class WhatIfSplitOut(msgspec.Struct, frozen=True, kw_only=True):
    """One split under that load."""

    partition_id: int = 0
    prefill_sms: int = 0
    decode_sms: int = 0
    decode_ms: float = 0.0
    guard_ratio: float = 0.0
    worst_ms: float = 0.0
    slack_ms: float = 0.0
    meets: bool = False
    prefill_ms: float = 0.0
    prefill_tokens_per_s: float = 0.0


class BusyOut(msgspec.Struct, frozen=True, kw_only=True):
    """The same question for a busy moment of the last five minutes: the 90th percentile of each figure."""

    assumed: AssumedOut
    feasible: bool = False
    mode: str
    text: str
    prefill_tokens_per_s: float | None = None
    lowest_feasible_tbt_ms: float | None = None


class WhatIfOut(msgspec.Struct, frozen=True, kw_only=True):
    """What would become of the target."""

    tbt_ms: float = 0.0
    assumed: AssumedOut
    feasible: bool = False
    policy: str
    mode: str
    chosen_partition_id: int | None = None
    reason: str
    text: str
    predictors: str
    prefill_ms: float | None = None
    prefill_tokens_per_s: float | None = None
    lowest_feasible_tbt_ms: float | None = None
    fused: FusedOut = FusedOut()
    groups: tuple[WhatIfSplitOut, ...] = ()
    busy: BusyOut | None = None


EVENTS = {
    "hello": HelloEvent,
    "gap": GapEvent,
    "bye": ByeEvent,
    "stats": StatsEvent,
    "tenants": TenantsEvent,
    "decision": DecisionEvent,
    "request": RequestEvent,
    "engine": EngineEvent,
    "settings": SettingsEvent,
    "alarm": AlarmEvent,
    "incident": IncidentEvent,
}
Event = (
    HelloEvent
    | GapEvent
    | ByeEvent
    | StatsEvent
    | TenantsEvent
    | DecisionEvent
    | RequestEvent
    | EngineEvent
    | SettingsEvent
    | AlarmEvent
    | IncidentEvent
)
