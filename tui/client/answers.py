"""What the read routes and actions answer, as docs/api.md has it."""

from __future__ import annotations

from datetime import datetime

import msgspec

from pdmuxd.tui.client.wire import Decision, RequestLifecycle


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    pass


class Slo(_Answer, frozen=True, kw_only=True):
    """A tenant's targets, with their version."""

    ttft_fixed_ms: float
    ttft_per_1k_new_tokens_ms: float
    tbt_ms: float
    attainment_ratio: float
    e2e_ms: float | None = None
    version: int = 0
    settings_version: int = 0
    in_force: bool = False
    created_at: datetime | None = None


class Limit(_Answer, frozen=True, kw_only=True):
    """What a tenant may use, and what is done with a request above it."""

    value: int
    action: str = ""


class Tenant(_Answer, frozen=True, kw_only=True):
    """A tenant as the control plane knows it."""

    name: str
    slo: Slo
    enabled: bool = True
    max_in_flight: int = 0
    priority_class: str | None = None
    weight: float | None = None
    max_wait_ms: int | None = None
    late_action: str | None = None
    max_tbt_cost_ratio: float | None = None
    limits: dict[str, Limit] = {}


class Window(_Answer, frozen=True, kw_only=True):
    """Attainment over the last `window_ms`."""

    window_ms: float
    requests: int = 0
    missed: int = 0
    attainment_ratio: float | None = None
    burn: float | None = None


class TenantAttainment(_Answer, frozen=True, kw_only=True):
    """One tenant's error budget."""

    tenant: str
    target_ratio: float
    budget_left_ratio: float | None = None
    ttft: tuple[Window, ...] = ()
    tbt: tuple[Window, ...] = ()
    requests: int = 0
    refused: int = 0
    in_flight: int = 0


class Attainment(_Answer, frozen=True, kw_only=True):
    """All tenants' error budgets."""

    tenants: tuple[TenantAttainment, ...] = ()


class Requests(_Answer, frozen=True, kw_only=True):
    """Lives, newest first."""

    requests: tuple[RequestLifecycle, ...] = ()


class Decisions(_Answer, frozen=True, kw_only=True):
    """Decisions, newest first."""

    decisions: tuple[Decision, ...] = ()
    total_seen: int | None = None


class Use(_Answer, frozen=True, kw_only=True):
    """Time in a mode or group, and what was done in it."""

    time_ms: float = 0.0
    time_ratio: float | None = None
    decisions: int = 0
    prefill_tokens: int = 0
    decode_tokens: int = 0


class GroupUse(Use, frozen=True, kw_only=True):
    """The same of a partition group."""

    partition_id: int
    prefill_sms: int
    decode_sms: int
    in_force: bool = False


class Partitions(_Answer, frozen=True, kw_only=True):
    """Since the engine's start."""

    groups: tuple[GroupUse, ...] = ()
    fused: Use = Use()
    decode: Use = Use()
    idle: Use = Use()
    switches: int = 0
    since: datetime | None = None


class GuardCell(_Answer, frozen=True, kw_only=True):
    """One cell of the contention guard; indexes as the engine counts them."""

    decode_sms: int
    prefill_new: int
    prefill_reused: int
    decode_bs: int
    decode_reused: int
    ratio: float
    observed_max_ratio: float | None = None
    observed_p50_ratio: float | None = None
    samples: int = 0
    raised: bool = False
    changed_at: datetime | None = None


class Guard(_Answer, frozen=True, kw_only=True):
    """The guard as the engine holds it."""

    default_ratio: float | None = None
    frozen: bool = False
    cells: tuple[GuardCell, ...] = ()


class DriftPair(_Answer, frozen=True, kw_only=True):
    """Measured against predicted, of one kind of work on so many SMs."""

    work: str
    sms: int
    samples: int = 0
    p50_ratio: float | None = None
    p90_ratio: float | None = None
    error_p50_ratio: float | None = None
    error_p90_ratio: float | None = None


class Drift(_Answer, frozen=True, kw_only=True):
    """How far the predictors are off."""

    pairs: tuple[DriftPair, ...] = ()
    alarm: bool = False


class EngineLog(_Answer, frozen=True, kw_only=True):
    """The end of the engine's log."""

    path: str | None = None
    lines: tuple[str, ...] = ()
    truncated: bool = False


class WhatIfGroup(_Answer, frozen=True, kw_only=True):
    """What one split would do."""

    partition_id: int
    prefill_sms: int
    decode_sms: int
    decode_ms: float
    worst_ms: float
    slack_ms: float
    meets: bool
    guard_ratio: float = 1.0
    prefill_ms: float | None = None
    prefill_tokens_per_s: float | None = None


class Assumed(_Answer, frozen=True, kw_only=True):
    """The load that a what-if was asked for."""

    decode_bs: int = 0
    decode_context_tokens: int = 0
    prefill_new_tokens: int = 0
    prefill_reused_tokens: int = 0
    source: str = msgspec.field(name="from", default="recent")


class WhatIfFused(_Answer, frozen=True, kw_only=True):
    """What fused steps would do; no prompt tokens if there are none."""

    meets: bool = False
    token_budget: int = 0
    worst_ms: float | None = None
    prefill_tokens_per_s: float | None = None


class WhatIf(_Answer, frozen=True, kw_only=True):
    """What the policy in force would do for a TBT target."""

    tbt_ms: float
    feasible: bool
    assumed: Assumed = Assumed()
    policy: str | None = None
    mode: str | None = None
    chosen_partition_id: int | None = None
    reason: str | None = None
    text: str = ""
    predictors: str | None = None
    prefill_tokens_per_s: float | None = None
    prefill_ms: float | None = None
    lowest_feasible_tbt_ms: float | None = None
    fused: WhatIfFused = WhatIfFused()
    groups: tuple[WhatIfGroup, ...] = ()


class Done(_Answer, frozen=True, kw_only=True):
    """An action was taken, or was not needed."""

    action: str
    changed: bool
    state: str
    text: str = ""
