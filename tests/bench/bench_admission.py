"""What it costs the gateway to let one request in, with 1,000 tenants active (`make bench-admission`)."""

from __future__ import annotations

import asyncio
import statistics
import time

from pdmuxd.controlplane.directory import Identity, KeyRecord, TenantRecord
from pdmuxd.controlplane.limit_values import Limit
from pdmuxd.daemon.gateway.admission import Admission
from pdmuxd.daemon.gateway.forecast import FirstTokens
from pdmuxd.daemon.gateway.limits.limiter import Limiter
from pdmuxd.engine.core.slo import DEFAULT_SLO

TENANTS, ROUNDS = 1000, 20
LIMITS = (
    Limit(name="concurrency", value=1000, action="wait"),
    Limit(name="requests_per_min", value=10**6),
    Limit(name="input_tokens_per_min", value=10**9),
    Limit(name="output_tokens_per_min", value=10**9),
    Limit(name="tokens_per_day", value=10**12),
    Limit(name="tokens_per_month", value=10**12),
)


async def main() -> None:
    """Print the median and the 99th percentile of places, limits and forecast, each and together."""
    tenants = [
        TenantRecord(
            name=f"t{number}",
            enabled=True,
            slo=DEFAULT_SLO,
            slo_version=1,
            max_in_flight=256,
            late_action="refuse",
            limits=LIMITS,
        )
        for number in range(TENANTS)
    ]
    keys = [
        KeyRecord(
            key_id=f"key_{one.name}", tenant=one.name, scopes=frozenset(), expires_at_s=None, limits=LIMITS
        )
        for one in tenants
    ]
    admission, limiter = Admission(100_000), Limiter()
    admission.expect(TENANTS)
    limiter.use_tenants({one.name: one for one in tenants})
    first_tokens = FirstTokens(speed=lambda tokens: 1e-9 * tokens)
    first_tokens.use_tenants(tenants)
    taken: dict[str, list[float]] = {"places": [], "limits": [], "forecast": [], "together": []}
    for turn in range(ROUNDS):
        for tenant, key in zip(tenants, keys, strict=True):
            rid, identity = f"{tenant.name}-{turn}", Identity(tenant=tenant, key=key)
            begun = time.perf_counter()
            admission.enter(tenant.name, tenant.max_in_flight, weight=tenant.weight)
            placed = time.perf_counter()
            assert limiter.enter_now(rid, identity, body_bytes=4000, answers=1)
            limited = time.perf_counter()
            first_tokens.admit(rid, tenant, 1000)
            ended = time.perf_counter()
            taken["places"].append(placed - begun)
            taken["limits"].append(limited - placed)
            taken["forecast"].append(ended - limited)
            taken["together"].append(ended - begun)
    for name, seconds in taken.items():
        percentiles = statistics.quantiles(seconds, n=100)
        print(f"{name:10} p50 {percentiles[49] * 1e6:6.1f} us   p99 {percentiles[98] * 1e6:6.1f} us")


if __name__ == "__main__":
    asyncio.run(main())
