"""What it costs the gateway to let one request in, with 10,000 tenants and 100,000 keys
(`make bench-admission`).

Each request is of another tenant and another key, 1,000 are in flight at once. Wall-clock time holds what
other processes took from this one; CPU time is its own.
"""

from __future__ import annotations

import asyncio
import gc
import os
import statistics
import time
from collections import deque

from pdmuxd.controlplane.services.directory import DirectorySnapshot
from pdmuxd.controlplane.tenants.credentials import digest
from pdmuxd.controlplane.tenants.limit_values import Limit
from pdmuxd.controlplane.tenants.records import KeyRecord, TenantRecord
from pdmuxd.daemon.gateway.admission import Admission
from pdmuxd.daemon.gateway.forecast import FirstTokens
from pdmuxd.daemon.gateway.limits.limiter import Limiter
from pdmuxd.daemon.gateway.limits.meter import Need
from pdmuxd.engine.core.slo import DEFAULT_SLO
from pdmuxd.engine.link.garbage import GarbageHolder
from pdmuxd.engine.link.messages import RequestRecord

TENANTS, KEYS_PER_TENANT, REQUESTS, IN_FLIGHT = 10_000, 10, 50_000, 1000
LIMITS = (
    Limit(name="concurrency", value=1000, action="wait"),
    Limit(name="requests_per_min", value=10**6),
    Limit(name="input_tokens_per_min", value=10**9),
    Limit(name="output_tokens_per_min", value=10**9),
    Limit(name="tokens_per_day", value=10**12),
    Limit(name="tokens_per_month", value=10**12),
)
PARTS = ("key", "places", "limits", "forecast", "together", "together, CPU", "yardstick", "yardstick, CPU")
YARDSTICK = range(1400)
"""Adding these takes about as long as letting a request in, and touches nothing: what its high percentiles
are over its median, the machine makes and not the gateway."""


def directory() -> DirectorySnapshot:
    """All tenants and keys, each with all limits."""
    tenants = {
        name: TenantRecord(
            name=name,
            enabled=True,
            slo=DEFAULT_SLO,
            slo_version=1,
            max_in_flight=256,
            late_action="refuse",
            limits=LIMITS,
        )
        for name in (f"t{number}" for number in range(TENANTS))
    }
    keys = {
        digest(f"{name}-{number}"): KeyRecord(
            key_id=f"{name}-{number}",
            tenant=name,
            scopes=frozenset(("serve",)),
            expires_at_s=None,
            limits=LIMITS,
        )
        for name in tenants
        for number in range(KEYS_PER_TENANT)
    }
    return DirectorySnapshot(version=1, tenants=tenants, keys=keys)


def record(rid: str, tenant: str) -> RequestRecord:
    """What the engine says at a request's end."""
    return RequestRecord(
        request_id=rid,
        tenant=tenant,
        outcome="finished",
        new_tokens=1000,
        reused_tokens=0,
        output_tokens=100,
        queue_s=0.0,
        ttft_s=0.1,
        ttft_target_s=1.0,
        tbt_target_s=0.05,
        tbt_max_s=0.01,
        tbt_p99_s=0.01,
        tbt_gaps=99,
        tbt_gaps_met=99,
        retractions=0,
        slo_version=1,
    )


async def main() -> None:
    """Print the median and high percentiles of each part, and of all together."""
    known = directory()
    names = list(known.tenants)
    admission, limiter = Admission(100_000), Limiter()
    admission.expect(TENANTS)
    limiter.use_tenants(known.tenants)
    first_tokens = FirstTokens(speed=lambda tokens: 1e-9 * tokens)
    first_tokens.use_tenants(known.tenants.values())
    GarbageHolder("gateway", is_idle=lambda: False).hold()
    pauses: list[float] = []
    begun_s = 0.0

    def collected(phase: str, _: object) -> None:
        nonlocal begun_s
        if phase == "start":
            begun_s = time.perf_counter()
        else:
            pauses.append(time.perf_counter() - begun_s)

    gc.callbacks.append(collected)
    taken: dict[str, list[float]] = {part: [] for part in PARTS}
    open_: deque[tuple[str, str]] = deque()
    for number in range(REQUESTS):
        name = names[number * 7919 % TENANTS]
        rid, secret = f"r{number}", f"{name}-{number // TENANTS}"
        cpu, begun = time.thread_time(), time.perf_counter()
        identity = known.authenticate(secret)
        found = time.perf_counter()
        admission.enter(name, identity.tenant.max_in_flight, weight=identity.tenant.weight)
        placed = time.perf_counter()
        assert limiter.enter_now(rid, identity, Need(input_tokens=4000, output_tokens=500))
        limited = time.perf_counter()
        first_tokens.admit(rid, identity.tenant, 1000)
        ended = time.perf_counter()
        seconds = (found - begun, placed - found, limited - placed, ended - limited, ended - begun)
        cpu = time.thread_time() - cpu
        yardstick_cpu, begun = time.thread_time(), time.perf_counter()
        sum(each for each in YARDSTICK)
        yardstick = time.perf_counter() - begun
        yardstick_cpu = time.thread_time() - yardstick_cpu
        for part, each in zip(PARTS, (*seconds, cpu, yardstick, yardstick_cpu), strict=True):
            taken[part].append(each)
        open_.append((rid, name))
        if len(open_) > IN_FLIGHT:
            rid, name = open_.popleft()
            told = record(rid, name)
            limiter.on_request(told)
            first_tokens.on_request(told)
            first_tokens.ended(rid)
            limiter.leave(rid, was_served=True)
            admission.leave(name)
    for part, values in taken.items():
        per_mille = statistics.quantiles(values, n=1000)
        shown = ((50, 499), (99, 989), (99.9, 998))
        told = "   ".join(f"p{share} {per_mille[index] * 1e6:8.1f} us" for share, index in shown)
        print(f"{part:14} {told}")
    print(f"garbage collections: {len(pauses)}, the longest {max(pauses, default=0.0) * 1e3:.1f} ms")
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    asyncio.run(main())
