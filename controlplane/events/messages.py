"""Every event as it is sent, in JSON. Read routes answer with the same shapes.

Outside, times are milliseconds, instants ISO 8601 in UTC, and null is what is not known.
One file, though a long one: it is what clients are promised, and read beside docs/api.md.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from pdmuxd.controlplane.events.outcomes import OutcomeWord
from pdmuxd.controlplane.milliseconds import to_ms
from pdmuxd.controlplane.node.engine_status import EngineState

API_VERSION = 1

EventType = Literal["stats", "tenants", "decision", "request", "engine", "settings", "alarm", "incident"]
Verdict = Literal["met", "missed", "no_traffic"]
"""Whether a tenant's targets are kept, over the last five minutes and with what is late now."""
FRAMES: frozenset[EventType] = frozenset({"stats", "tenants", "decision"})
"""What a client that lags may miss: each is replaced by the next one."""


class EventMessage(BaseModel):
    """Base of what is sent."""

    model_config = ConfigDict(frozen=True)

    def encoded(self) -> bytes:
        """One line of JSON."""
        return self.model_dump_json().encode()


def instant(at_s: float) -> datetime:
    """A Unix time as it is shown."""
    return datetime.fromtimestamp(at_s, UTC)


def ms(seconds: float | None) -> float | None:
    """Milliseconds of a time that may be unknown."""
    return None if seconds is None else to_ms(seconds)


class Spread(EventMessage):
    """A distribution in milliseconds; percentiles are within 4%, null when `count` is 0."""

    count: int = Field(examples=[192])
    p50: float | None = Field(examples=[310.0])
    p99: float | None = Field(examples=[901.0])


class TbtTarget(EventMessage):
    """The strictest TBT target of the tenants with requests in flight, or of all if there are none."""

    tenant: str = Field(examples=["chat"])
    tbt_ms: float = Field(examples=[40.0])


class Totals(EventMessage):
    """The engine's counters since it started."""

    steps: int = Field(examples=[9100])
    switches: int
    preemptions: int
    retractions: int
    prompt_tokens: int
    reused_tokens: int
    output_tokens: int
    dropped_records: int


class EngineLoad(EventMessage):
    """What the engine last said of itself; all null while there is none."""

    engine_age_ms: float | None = None
    policy: str | None = Field(None, examples=["auto"])
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


class StatsEvent(EngineLoad):
    """The daemon and its engine at one instant, ten times a second."""

    at: datetime
    state: EngineState
    in_flight: int
    window_ms: float
    requests_per_s: float
    goodput_per_s: float
    """Requests that were good as their clients saw them."""
    good_by_steps_per_s: float | None = None
    """The same as the engine made their tokens."""
    good_forgiven_per_s: float | None = None
    """As clients saw them, with one late gap of each forgiven."""
    ttft_ms: Spread
    tbt_gap_ms: Spread
    """Of every gap between the tokens of the requests that ended, of all tenants together."""
    tbt_worst_ms: Spread
    """Of the longest gap of each request that ended."""
    strictest_tbt: TbtTarget | None
    waiting_total: int = 0
    """Requests in flight without a first token; those that are not in the engine yet included."""
    late_now: int = 0
    """Of these, past their TTFT target."""
    oldest_wait_ms: float = 0.0


class TenantLoad(EventMessage):
    """One tenant in the event `tenants`."""

    tenant: str = Field(examples=["chat"])
    in_flight: int
    waiting: int
    """In flight without a first token, at the gateway and in the engine."""
    late_now: int = 0
    """Of these, past their TTFT target: missed already, and counted so in attainment, burn and budget."""
    oldest_wait_ms: float = 0.0
    verdict: Verdict = "no_traffic"
    target_ratio: float = 0.0
    """The attainment that was promised."""
    requests_per_s: float
    goodput_per_s: float
    """Requests that were good as their clients saw them."""
    good_by_steps_per_s: float | None = None
    """The same as the engine made their tokens."""
    good_forgiven_per_s: float | None = None
    """As clients saw them, with one late gap of each forgiven."""
    output_tokens_per_s: float
    refused_per_s: float
    ttft_ms: Spread
    tbt_gap_ms: Spread
    """Of every gap between the tokens of its requests that ended."""
    tbt_worst_ms: Spread
    """Of the longest gap of each."""
    ttft_attainment_ratio: float | None
    """Requests in time, of all with a first token."""
    tbt_attainment_ratio: float | None
    """Gaps in time, of all."""
    availability_ratio: float | None = None
    """Requests that were served, of all that were asked; over the last hour, as the two before."""
    e2e_attainment_ratio: float | None = None
    """Whole answers in time, of all that have a target; over the last hour."""
    ttft_burn: float | None
    tbt_burn: float | None
    availability_burn: float | None = None
    """Over five minutes, as the two before; refusals by the tenant's own limits included."""
    e2e_burn: float | None = None
    asked: int = 0
    """Over five minutes: requests that are over, but for those that clients gave up or were not valid."""
    unserved: int = 0
    """Of these: refused, expired, lost or failed."""
    limited: int = 0
    """Of these, refused by limits of the tenant or of its key."""
    budget_left_ratio: float | None
    tbt_capped_since: datetime | None = None
    """Its TBT target costs all more than `max_tbt_cost_ratio`; null: it is not capped."""
    planned_tbt_ms: float | None = None
    """The target that steps are planned for while it is capped."""


class IncidentTarget(EventMessage):
    """One target during an incident: how much of it was missed, and how badly at worst."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    target: Literal["ttft", "tbt", "availability", "e2e"] = Field(examples=["ttft"])
    """Which."""
    judged: int
    """Requests that ended, or their gaps, since it began."""
    missed: int
    """Of these."""
    worst_ratio: float
    """The least that was kept over half a minute."""
    worst_at: datetime
    """When that was."""
    worst_by_ms: float
    """The most that one request was above its target."""


class IncidentEvent(EventMessage):
    """A time in which a tenant did not get what it is promised, from its first miss to its last."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    at: datetime
    """When this was told."""
    incident_id: str = Field(examples=["chat-19ac03b5c2e"])
    """Of its tenant and its begin."""
    tenant: str = Field(examples=["chat"])
    """Who was hurt."""
    state: Literal["open", "over"]
    """`over`: the promise has been kept again for half a minute."""
    began_at: datetime
    """When the first of the requests that began it was missed."""
    last_missed_at: datetime
    """When the last one was missed until now."""
    over_at: datetime | None = None
    """Null while it is open; then the same as `last_missed_at`."""
    ended_by: Literal["recovered", "gone", "restart"] | None = None
    """Null while it is open. `gone`: the tenant was deleted. `restart`: the daemon ended first."""
    promised_ratio: float
    """The attainment that the tenant is promised."""
    targets: tuple[IncidentTarget, ...]
    """Those that were missed, the worst first."""
    cause: str = Field(examples=["queued"])
    """The most frequent cause of its misses; `unknown` where nothing that was seen explains them."""
    cause_ratio: float | None = None
    """Its share of them; null while only requests that wait tell of it."""
    behind: str | None = None
    """The tenant whose prompts filled the queue that it waited in; itself if they were its own."""
    text: str = Field(examples=["queued behind docs: 82% of the prompt tokens, 6.1 times as many as before"])
    """The cause in words, with what was seen of it."""
    command: str | None = Field(None, examples=["pdmuxd limit set docs concurrency=32:wait"])
    """What would help, as a command; null where none is known to."""
    predicted: str | None = Field(None, examples=["chat: 91.0% to 99.2% of TTFT in time"])
    """What that is predicted to do; null where it is not predicted."""
    not_predicted: str | None = Field(None, examples=["only what limits do is predicted"])
    """Why it is not; null where it is."""


class TenantsEvent(EventMessage):
    """The busiest tenants, once a second."""

    at: datetime
    window_ms: float
    omitted: int
    tenants: tuple[TenantLoad, ...]
    incidents: tuple[IncidentEvent, ...] = ()
    """Those that are open, the worst first, then those that were over within the last five minutes."""
    incidents_omitted: int = 0
    alarm_texts: dict[str, str] = Field(default_factory=dict, examples=[{"late_now:chat": "chat: 9 of 12"}])
    """What alarms that are raised say now, by their ids; of many, the oldest."""


class DecisionEvent(EventMessage):
    """One decision, or several alike that followed each other; single values are the last one's."""

    at: datetime
    seq: int = Field(examples=[8123])
    count: int
    step: int
    mode: str
    reason: str
    order: str = Field(
        "arrival",
        description="What decided who was admitted: arrival, deadline, slack, fair_share or aged.",
    )
    partition_id: int
    prefill_sms: int
    decode_sms: int
    decode_bs: int
    decode_reused_tokens: int
    prefill_new_tokens: int
    prefill_layers: int
    decode_steps: int
    sitting_out: int = Field(
        0, description="Decoding requests that were not in the step: their TBT targets let them wait."
    )
    sitting_out_for: TbtTarget | None = Field(
        None, description="The strictest target of those in flight then, if any sat out."
    )
    predicted_ms: float | None
    measured_ms: float
    measured_max_ms: float
    stall_cause: str | None = Field(
        None,
        examples=["launch"],
        description="What the step is charged to if it took far longer than expected: what the host did "
        "while the device waited (input, results, decision, launch, collection), prefill_begins, switch, or "
        "device.",
    )
    guard_ratio: float | None
    margin_ratio: float | None = None
    stall_room_ms: float | None = None
    prefill_ratio: float | None = Field(
        None,
        description="What prefills by layers take over their prediction, where that chose between a "
        "split and fused steps.",
    )
    split_ratio: float | None = Field(
        None,
        description="What decode steps beside layers take over their prediction, where decode got more "
        "SMs for it.",
    )
    tbt_target_ms: float | None = None
    delivery_ms: float | None = None
    slack_ms: float | None
    slack_min_ms: float | None
    folded_other: int
    tbt_capped: tuple[str, ...] = Field(
        (),
        description="Tenants in flight whose TBT target was not planned for, since it costs all too much.",
    )


class PartitionOut(EventMessage):
    """The SMs of one partition group."""

    prefill_sms: int = Field(examples=[96])
    decode_sms: int = Field(examples=[36])


class EngineEvent(EventMessage):
    """The engine's state, at each change of it."""

    at: datetime
    state: EngineState
    reason: str | None
    since: datetime
    pid: int | None
    restarts: int = Field(examples=[0])
    held: bool
    wanted_version: int
    acked_version: int
    kind: str | None = None
    engine_version: str | None = None
    model: str | None = None
    device: str | None = None
    total_sms: int | None = None
    partitions: tuple[PartitionOut, ...] | None = None
    profile: str | None = None
    policy: str | None = None


class RequestViolation(EventMessage):
    """A target that a request missed."""

    target: str = Field(examples=["tbt"])
    by_ms: float
    cause: str = Field(examples=["queued"])
    text: str
    mode: str | None = Field(None, examples=["split"])
    """Of most of the decisions to blame, with the SMs of each side; null where none is known."""
    prefill_sms: int | None = Field(None, examples=[96])
    decode_sms: int | None = Field(None, examples=[36])


class TimelinePoint(EventMessage):
    """An instant in a request's life, counted from its arrival."""

    at_ms: float
    what: str = Field(examples=["first_token"])


class RequestEvent(EventMessage):
    """The life of a request; what the engine tells is null while it is in flight or if the engine died."""

    request_id: str = Field(examples=["5f0c3e0a3b8c4a0f9d5e6b7c8d9e0f1a"])
    tenant: str
    state: Literal["in_flight", "ended"]
    outcome: OutcomeWord | None = None
    """How it ended; null while it is in flight."""
    error: str | None = None
    """The code of the error that its client got in place of an answer."""
    path: str | None
    status: int | None
    arrived_at: datetime | None
    ended_at: datetime | None
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
    """From its arrival to its last token."""
    e2e_target_ms: float | None = None
    """Null: its whole answer had no target."""
    retractions: int | None = None
    slo_version: int | None = None
    delivered_ttft_ms: float | None = None
    """As the gateway wrote it to the client; of streamed answers with one choice, like the next three."""
    delivered_tbt_max_ms: float | None = None
    delivered_tbt_gaps_missed: int | None = None
    delivered_e2e_ms: float | None = None
    missed: tuple[RequestViolation, ...] = ()
    timeline: tuple[TimelinePoint, ...] = ()


class Targets(EventMessage):
    """A tenant's targets in the event `settings`."""

    tenant: str = Field(examples=["chat"])
    slo_version: int
    tbt_ms: float
    ttft_fixed_ms: float
    ttft_per_1k_new_tokens_ms: float
    attainment_ratio: float
    e2e_ms: float | None = None
    """Of whole answers; null: they have no target."""
    enabled: bool


class SettingsEvent(EventMessage):
    """A settings version was wanted, or came into force in the engine."""

    at: datetime
    kind: Literal["wanted", "in_force"]
    version: int
    changed: tuple[Targets, ...] = ()
    removed: tuple[str, ...] = ()


AlarmKind = Literal[
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
Severity = Literal["critical", "warning"]


class AlarmEvent(EventMessage):
    """An alarm was raised, or cleared."""

    at: datetime
    id: str = Field(examples=["ttft_burn:chat"])
    kind: AlarmKind
    tenant: str | None
    state: Literal["raised", "cleared"]
    severity: Severity
    since: datetime
    text: str


class HelloEvent(EventMessage):
    """The first event of every stream: who answers, and how things are now."""

    version: str
    api_version: int
    session: str
    started_at: datetime
    at: datetime
    role: str
    head: str
    engine: EngineEvent
    alarms: tuple[AlarmEvent, ...]
    incidents: tuple[IncidentEvent, ...] = ()
    """As in the event `tenants`."""
    settings_version: int
    heartbeat_ms: float
    stats_ms: float


class GapEvent(EventMessage):
    """Events that this client will not get."""

    model_config = ConfigDict(frozen=True, populate_by_name=True, serialize_by_alias=True)

    reason: Literal["expired", "slow", "restarted"]
    lost: int | None
    from_: str | None = Field(alias="from")
    to: str | None
    at: datetime


class ByeEvent(EventMessage):
    """The last event of a stream that the daemon ends."""

    reason: Literal["stopping"]
    at: datetime


EVENTS: dict[str, type[EventMessage]] = {
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
"""By the names that they are sent under; the console's values are made from them (`make client`)."""
