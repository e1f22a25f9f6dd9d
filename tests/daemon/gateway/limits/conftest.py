from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from limited_tenant import Clock, limits, record

from pdmuxd.controlplane.tenants.records import Identity, KeyRecord, TenantRecord
from pdmuxd.daemon.gateway.limits.limiter import Limiter
from pdmuxd.daemon.gateway.limits.meter import Need
from pdmuxd.engine.core.slo import DEFAULT_SLO


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

    def enter(
        self, rid: str | None = None, identity: Identity | None = None, *, size=100, most=128, answers=1
    ) -> str:
        """Let one request in, or raise: `size` input tokens at most, and each answer `most`."""
        rid = rid or self.next_id()
        need = Need(places=answers, input_tokens=size, output_tokens=most * answers)
        entered = self.limiter.enter_now(rid, identity or self.identity(), need)
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


@pytest.fixture
def rig() -> Rig:
    return Rig()
