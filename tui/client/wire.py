"""What the event stream carries, as docs/api.md has it. Fields that a newer daemon adds are ignored.

One file, though a long one: a message a class, and the table that tells them apart.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

API_VERSION = 1


class _Wire(msgspec.Struct, frozen=True, kw_only=True):
    pass


class Percentiles(_Wire, frozen=True, kw_only=True):
    """Milliseconds; None where `count` is 0."""

    count: int = 0
    p50: float | None = None
    p99: float | None = None


class Partition(_Wire, frozen=True, kw_only=True):
    """The SMs of one partition group."""

    prefill_sms: int
    decode_sms: int


class Engine(_Wire, frozen=True, kw_only=True):
    """The engine's state and what it said of itself; None until it has said hello."""

    at: datetime
    state: str
    reason: str | None = None
    since: datetime | None = None
    pid: int | None = None
    restarts: int = 0
    kind: str | None = None
    engine_version: str | None = None
    model: str | None = None
    device: str | None = None
    total_sms: int | None = None
    partitions: tuple[Partition, ...] | None = None
    profile: str | None = None
    policy: str | None = None
    wanted_version: int | None = None
    acked_version: int | None = None
    held: bool = False


class Alarm(_Wire, frozen=True, kw_only=True):
    """Raised once, cleared once."""

    at: datetime
    id: str
    kind: str
    state: str
    severity: str = "warning"
    tenant: str | None = None
    since: datetime | None = None
    text: str = ""

    def saying(self, text: str) -> Alarm:
        """The same with another text."""
        return msgspec.structs.replace(self, text=text)


class Hello(_Wire, frozen=True, kw_only=True):
    """The first event of every connection."""

    version: str
    api_version: int
    session: str
    at: datetime
    role: str = "admin"
    started_at: datetime | None = None
    engine: Engine | None = None
    alarms: tuple[Alarm, ...] = ()
    settings_version: int = 0


class Gap(_Wire, frozen=True, kw_only=True):
    """Events that this client will not see: `expired`, `slow` or `restarted`."""

    reason: str
    lost: int | None = None


class Bye(_Wire, frozen=True, kw_only=True):
    """The daemon stops."""

    reason: str = "stopping"


class StrictestTbt(_Wire, frozen=True, kw_only=True):
    """Whose target sets the split."""

    tenant: str
    tbt_ms: float


class Stats(_Wire, frozen=True, kw_only=True):
    """Ten times a second; the engine's fields are None while there is none."""

    at: datetime
    state: str
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
    in_flight: int | None = None
    kv_used_tokens: int | None = None
    kv_capacity_tokens: int | None = None
    cached_tokens: int | None = None
    cache_hit_ratio: float | None = None
    prompt_tokens_per_s: float | None = None
    output_tokens_per_s: float | None = None
    steps_per_s: float | None = None
    window_ms: float = 60_000
    requests_per_s: float | None = None
    goodput_per_s: float | None = None
    good_by_steps_per_s: float | None = None
    good_forgiven_per_s: float | None = None
    ttft_ms: Percentiles = Percentiles()
    tbt_gap_ms: Percentiles = Percentiles()
    tbt_worst_ms: Percentiles = Percentiles()
    strictest_tbt: StrictestTbt | None = None
    waiting_total: int | None = None
    late_now: int | None = None
    oldest_wait_ms: float | None = None
    totals: dict[str, int] | None = None


class TenantLoad(_Wire, frozen=True, kw_only=True):
    """One tenant in the event `tenants`."""

    tenant: str
    in_flight: int = 0
    waiting: int | None = None
    late_now: int = 0
    oldest_wait_ms: float = 0.0
    verdict: str | None = None
    target_ratio: float | None = None
    requests_per_s: float = 0.0
    goodput_per_s: float = 0.0
    good_by_steps_per_s: float | None = None
    good_forgiven_per_s: float | None = None
    output_tokens_per_s: float = 0.0
    refused_per_s: float = 0.0
    ttft_ms: Percentiles = Percentiles()
    tbt_gap_ms: Percentiles = Percentiles()
    tbt_worst_ms: Percentiles = Percentiles()
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


class IncidentTarget(_Wire, frozen=True, kw_only=True):
    """One target during an incident."""

    target: str
    judged: int = 0
    missed: int = 0
    worst_ratio: float = 1.0
    worst_by_ms: float = 0.0


class Incident(_Wire, frozen=True, kw_only=True):
    """A time in which a tenant did not get what it is promised."""

    incident_id: str
    tenant: str
    state: str
    began_at: datetime
    last_missed_at: datetime
    over_at: datetime | None = None
    promised_ratio: float = 0.0
    targets: tuple[IncidentTarget, ...] = ()
    cause: str = "unknown"
    behind: str | None = None
    text: str = ""
    command: str | None = None
    predicted: str | None = None


class Tenants(_Wire, frozen=True, kw_only=True):
    """Once a second."""

    at: datetime
    omitted: int = 0
    tenants: tuple[TenantLoad, ...] = ()
    incidents: tuple[Incident, ...] = ()
    incidents_omitted: int = 0
    alarm_texts: dict[str, str] = {}
    """What alarms that are raised say now, by their ids."""


class Decision(_Wire, frozen=True, kw_only=True):
    """`count` decisions of the same mode, reason and group; the numbers are the last one's."""

    at: datetime
    mode: str
    reason: str
    partition_id: int = 0
    seq: int = 0
    count: int = 1
    step: int = 0
    prefill_sms: int = 0
    decode_sms: int = 0
    decode_bs: int = 0
    decode_reused_tokens: int = 0
    prefill_new_tokens: int = 0
    prefill_layers: int = 0
    decode_steps: int = 0
    sitting_out: int = 0
    sitting_out_for: StrictestTbt | None = None
    predicted_ms: float | None = None
    measured_ms: float | None = None
    measured_max_ms: float | None = None
    guard_ratio: float | None = None
    slack_ms: float | None = None
    slack_min_ms: float | None = None
    folded_other: int = 0


class Miss(_Wire, frozen=True, kw_only=True):
    """A target that a request missed."""

    target: str
    text: str = ""
    by_ms: float | None = None
    cause: str = "unknown"
    mode: str | None = None
    prefill_sms: int | None = None
    decode_sms: int | None = None


class Moment(_Wire, frozen=True, kw_only=True):
    """One instant of a request's life."""

    at_ms: float
    what: str


class RequestLifecycle(_Wire, frozen=True, kw_only=True):
    """A request; the engine's fields are None while it is in flight."""

    request_id: str
    tenant: str
    state: str = "ended"
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
    missed: tuple[Miss, ...] = ()
    timeline: tuple[Moment, ...] = ()
    decisions: dict[str, Any] | None = None

    @property
    def seen_ttft_ms(self) -> float | None:
        """The TTFT that is judged: the client's if it is known, else the engine's."""
        return self.ttft_ms if self.delivered_ttft_ms is None else self.delivered_ttft_ms

    @property
    def seen_tbt_max_ms(self) -> float | None:
        """The longest gap that is judged, likewise."""
        return self.tbt_max_ms if self.delivered_ttft_ms is None else self.delivered_tbt_max_ms

    @property
    def seen_e2e_ms(self) -> float | None:
        """The time to its last token that is judged, likewise."""
        return self.e2e_ms if self.delivered_e2e_ms is None else self.delivered_e2e_ms

    @property
    def late_gaps(self) -> int:
        """How many gaps were too long, likewise."""
        if self.delivered_ttft_ms is not None and self.delivered_tbt_gaps_missed is not None:
            return self.delivered_tbt_gaps_missed
        return (self.tbt_gaps or 0) - (self.tbt_gaps_met or 0)


class ChangedTenant(_Wire, frozen=True, kw_only=True):
    """A tenant whose targets were edited."""

    tenant: str
    slo_version: int = 0
    tbt_ms: float | None = None


class Settings(_Wire, frozen=True, kw_only=True):
    """A settings version was wanted, or came into force."""

    at: datetime
    kind: str
    version: int
    changed: tuple[ChangedTenant, ...] = ()
    removed: tuple[str, ...] = ()


Event = Hello | Gap | Bye | Stats | Tenants | Decision | RequestLifecycle | Engine | Settings | Alarm
_KINDS: dict[str, type[Event]] = {
    "hello": Hello,
    "gap": Gap,
    "bye": Bye,
    "stats": Stats,
    "tenants": Tenants,
    "decision": Decision,
    "request": RequestLifecycle,
    "engine": Engine,
    "settings": Settings,
    "alarm": Alarm,
}
_DECODERS: dict[str, msgspec.json.Decoder[Any]] = {
    name: msgspec.json.Decoder(kind) for name, kind in _KINDS.items()
}


def decode(kind: str, data: bytes) -> Event | None:
    """The event, or None for a type that is newer than this console. Raises: msgspec.MsgspecError."""
    decoder = _DECODERS.get(kind)
    event: Event | None = decoder.decode(data) if decoder is not None else None
    return event
