"""A clock that stands still, limits as keywords, and what an engine says of a request."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from telemetry_feeds import request_record

from pdmuxd.controlplane.tenants.limit_values import Limit
from pdmuxd.controlplane.tenants.prices import Price, PriceList
from pdmuxd.engine.link.messages import RequestRecord

START = datetime(2026, 1, 31, 12, tzinfo=UTC)


@dataclass
class Clock:
    now_s: float = 1000.0

    def __call__(self) -> float:
        return self.now_s

    def wall(self) -> datetime:
        return START + timedelta(seconds=self.now_s - 1000.0)


def limits(**given) -> tuple[Limit, ...]:
    return tuple(
        Limit(name=name, value=value[0], action=value[1])
        if isinstance(value, tuple)
        else Limit(name=name, value=value)
        for name, value in given.items()
    )


DEAR = PriceList(
    currency="EUR", prices=(Price(input=Decimal(500), cached=Decimal(50), output=Decimal(1000)),)
)
"""A hundredth for twenty prompt tokens, for two hundred cached ones, and for ten that are produced."""


def record(rid: str, *, new=100, cached=0, output=50, tenant="chat") -> RequestRecord:
    return request_record(
        request_id=rid, tenant=tenant, new_tokens=new, reused_tokens=cached, output_tokens=output
    )
