"""What the latest changes did, as `/effects` answers."""

from __future__ import annotations

from datetime import datetime

import msgspec


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    pass


class SmUse(_Answer, frozen=True, kw_only=True):
    """Who had the SMs; None where there was nothing to average."""

    split_ratio: float | None = None
    fused_ratio: float | None = None
    prefill_sms: float | None = None
    decode_sms: float | None = None
    prefill_busy_ratio: float | None = None
    decode_busy_ratio: float | None = None


class Standing(_Answer, frozen=True, kw_only=True):
    """How one tenant's targets were met."""

    tenant: str
    requests: int = 0
    ttft_attainment_ratio: float | None = None
    ttft_p99_ms: float | None = None
    gaps: int = 0
    tbt_attainment_ratio: float | None = None
    tbt_p99_ms: float | None = None


class Measured(_Answer, frozen=True, kw_only=True):
    """The minute before a change, or the time since."""

    length_ms: float = 0.0
    sms: SmUse = SmUse()
    tenants: tuple[Standing, ...] = ()

    def of(self, tenant: str) -> Standing:
        """The standing of one tenant; an empty one if it had no traffic."""
        return next((one for one in self.tenants if one.tenant == tenant), Standing(tenant=tenant))


class ReplayedTenant(_Answer, frozen=True, kw_only=True):
    """One tenant's requests since the change, forecast with what was in force, and with what is."""

    tenant: str
    requests: int = 0
    ttft_before_ratio: float | None = None
    ttft_after_ratio: float | None = None
    tbt_before_ratio: float | None = None
    tbt_after_ratio: float | None = None


class Replay(_Answer, frozen=True, kw_only=True):
    """The same requests under both settings, or why not."""

    requests: int = 0
    why_not: str | None = None
    tenants: tuple[ReplayedTenant, ...] = ()

    def of(self, tenant: str) -> ReplayedTenant | None:
        """What is forecast of one tenant."""
        return next((one for one in self.tenants if one.tenant == tenant), None)


class Effect(_Answer, frozen=True, kw_only=True):
    """One change."""

    at: datetime
    kind: str
    tenant: str | None = None
    text: str = ""
    state: str = "too_early"
    mixed: bool = False
    before: Measured = Measured()
    after: Measured | None = None
    replay: Replay | None = None


class Effects(_Answer, frozen=True, kw_only=True):
    """Newest first."""

    effects: tuple[Effect, ...] = ()
