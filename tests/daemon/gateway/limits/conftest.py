from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from telemetry_feeds import request_record

from pdmuxd.controlplane.tenants.limit_values import Limit
from pdmuxd.controlplane.tenants.records import Identity, KeyRecord, TenantRecord
from pdmuxd.daemon.gateway.limits.limiter import Limiter
from pdmuxd.engine.core.slo import DEFAULT_SLO
from pdmuxd.engine.link.messages import RequestRecord

START = datetime(2026, 1, 31, 12, tzinfo=UTC)


@dataclass
class Clock:
    now_s: float = 1000.0

    def __call__(self) -> float:
        return self.now_s

    def wall(self) -> datetime:
        return START + timedelta(seconds=self.now_s - 1000.0)


@dataclass
class Rig:
    """A limiter with one tenant and two of its keys, and a clock that stands still."""

    clock: Clock = field(default_factory=Clock)
    tenant: TenantRecord = field(
        default_factory=lambda: TenantRecord(
            name="chat", enabled=True, slo=DEFAULT_SLO, slo_version=1, max_in_flight=100
        )
    )

    def __post_init__(self) -> None:
        self.limiter = Limiter(clock=self.clock, wall=self.clock.wall)
        self.use()
        self._ids = 0

    def use(self, **fields) -> None:
        """Change the tenant; limits as NAME=VALUE or NAME=(VALUE, ACTION)."""
        plain = {name: fields.pop(name) for name in ("count_cached_tokens", "max_wait_ms") if name in fields}
        self.tenant = TenantRecord(
            name="chat",
            enabled=True,
            slo=DEFAULT_SLO,
            slo_version=1,
            max_in_flight=100,
            limits=limits(**fields),
            **plain,
        )
        self.limiter.use_tenants({"chat": self.tenant})

    def identity(self, key: str = "key_a", **of_key) -> Identity:
        record = KeyRecord(
            key_id=key, tenant="chat", scopes=frozenset(), expires_at_s=None, limits=limits(**of_key)
        )
        return Identity(tenant=self.tenant, key=record)

    def enter(self, rid: str | None = None, identity: Identity | None = None, *, size=400, answers=1) -> str:
        """Let one request in, or raise; 400 bytes are 100 tokens unless it was learned otherwise."""
        rid = rid or self.next_id()
        entered = self.limiter.enter_now(rid, identity or self.identity(), body_bytes=size, answers=answers)
        assert entered, "it has to wait"
        return rid

    def next_id(self) -> str:
        self._ids += 1
        return f"r{self._ids}"

    def end(self, rid: str, new=100, cached=0, output=50) -> None:
        self.told(rid, new=new, cached=cached, output=output)
        self.limiter.leave(rid, was_served=True)

    def told(self, rid: str, **tokens) -> None:
        self.limiter.on_request(record(rid, **tokens))


def limits(**given) -> tuple[Limit, ...]:
    return tuple(
        Limit(name=name, value=value[0], action=value[1])
        if isinstance(value, tuple)
        else Limit(name=name, value=value)
        for name, value in given.items()
    )


def record(rid: str, *, new=100, cached=0, output=50, tenant="chat") -> RequestRecord:
    return request_record(
        request_id=rid, tenant=tenant, new_tokens=new, reused_tokens=cached, output_tokens=output
    )


@pytest.fixture
def rig() -> Rig:
    return Rig()
