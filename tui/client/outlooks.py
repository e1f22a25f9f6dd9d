"""What new targets would give, as `POST /tenants/{name}/slo/preview` answers."""

from __future__ import annotations

import msgspec


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    pass


class Load(_Answer, frozen=True, kw_only=True):
    """What decodes and what is prefilled beside it."""

    decode_bs: int = 0
    decode_context_tokens: int = 0
    prefill_new_tokens: int = 0
    prefill_reused_tokens: int = 0
    source: str = msgspec.field(name="from", default="recent")


class AtLoad(_Answer, frozen=True, kw_only=True):
    """What the policy in force would do at one load."""

    load: Load = Load()
    tbt_ms: float = 0.0
    text: str = ""
    prefill_tokens_per_s: float | None = None
    meets: bool = False


class Binding(_Answer, frozen=True, kw_only=True):
    """A tenant whose TBT target is the strictest, and for which share of the time."""

    tenant: str
    time_ratio: float = 0.0


class Under(_Answer, frozen=True, kw_only=True):
    """Under one set of targets: the usual load, then a busy one if known."""

    loads: tuple[AtLoad, ...] = ()
    binding: tuple[Binding, ...] = ()
    prefill_busy_ratio: float | None = None


class Figures(_Answer, frozen=True, kw_only=True):
    """What a tenant's requests get."""

    ttft_p50_ms: float | None = None
    ttft_p99_ms: float | None = None
    ttft_attainment_ratio: float | None = None
    tbt_attainment_ratio: float | None = None


class Band(_Answer, frozen=True, kw_only=True):
    """Where a share is likely to be measured."""

    low_ratio: float = 0.0
    high_ratio: float = 1.0


class TenantOutlook(_Answer, frozen=True, kw_only=True):
    """One tenant: what it is promised, gets, and is predicted to get."""

    tenant: str
    requests: int = 0
    attainment_ratio: float = 0.0
    measured: Figures | None = None
    before: Figures | None = None
    after: Figures | None = None
    kept: bool | None = None
    expected: str | None = None
    ttft_band: Band | None = None
    tbt_band: Band | None = None


class Obstacle(_Answer, frozen=True, kw_only=True):
    """A target that is infeasible."""

    field: str
    text: str = ""
    lowest_feasible_ms: float | None = None


class Outlook(_Answer, frozen=True, kw_only=True):
    """What new targets would give at the load of the last minutes."""

    verdict: str
    text: str = ""
    window_ms: float = 300_000.0
    requests: int = 0
    checked: int = 0
    policy: str | None = None
    before: Under = Under()
    after: Under = Under()
    lowest_feasible_tbt_ms: float | None = None
    obstacles: tuple[Obstacle, ...] = ()
    tenants: tuple[TenantOutlook, ...] = ()
