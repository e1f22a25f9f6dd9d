"""What the control plane takes with 10,000 tenants and 100,000 keys (`make bench-control-plane`).

Reading all of it at a start, key look-ups, pages of the lists over REST, and 1,000 edits of targets by four
editors at once that all expect the version which they have read: none may be lost.
"""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "support"))

from full_node import KEYS_PER_TENANT, TENANTS, fill, name_of
from stores import SLO_BODY, AdminCalls, new_database, opened

from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.engine.link.garbage import GarbageHolder

LOOK_UPS, EDITS, EDITORS, EDITED = 50_000, 1000, 4, 5


def show(what: str, seconds: Sequence[float]) -> None:
    """Its median, 99th percentile and maximum."""
    p99 = statistics.quantiles(seconds, n=100)[98]
    told = f"p50 {statistics.median(seconds) * 1e3:9.3f} ms   p99 {p99 * 1e3:9.3f} ms"
    print(f"{what:34} {told}   most {max(seconds) * 1e3:9.3f} ms", flush=True)


def look_up(control_plane: ControlPlane) -> list[float]:
    """Each of another key."""
    rng, directory, taken = random.Random(1), control_plane.directory, []
    secrets = [f"{rng.randrange(1, TENANTS + 1)}-{rng.randrange(KEYS_PER_TENANT)}" for _ in range(LOOK_UPS)]
    for secret in secrets:
        begun = time.perf_counter()
        directory.authenticate(secret)
        taken.append(time.perf_counter() - begun)
    return taken


async def timed(call: AdminCalls, path: str) -> tuple[float, float, int]:
    """Seconds of one call, those of the processor, and how many it listed."""
    cpu, begun = time.process_time(), time.perf_counter()
    answer = await call("GET", path)
    ended = time.perf_counter() - begun, time.process_time() - cpu
    assert answer.status_code == 200, answer.text
    return *ended, len(answer.json())


async def pages(call: AdminCalls) -> list[tuple[float, float]]:
    """All tenants, a hundred at a time."""
    taken, seen = [], 0
    for start in range(0, TENANTS, 100):
        after = f"&after={name_of(start)}" if start else ""
        seconds, cpu, count = await timed(call, f"/api/v1/tenants?limit=100{after}")
        taken.append((seconds, cpu))
        seen += count
    assert seen == TENANTS, seen
    return taken


async def edits(call: AdminCalls) -> tuple[list[float], int]:
    """Seconds of each that was accepted, and how many were too late for the version that they expected."""
    taken: list[float] = []
    stale = 0

    async def edit(editor: int) -> None:
        nonlocal stale
        rng = random.Random(editor)
        while len(taken) < EDITS:
            path = f"/api/v1/tenants/{name_of(1 + rng.randrange(EDITED))}/slo"
            version = (await call("GET", path)).json()["version"]
            body = SLO_BODY | {"tbt_ms": rng.randrange(10, 100)}
            begun = time.perf_counter()
            answer = await call("PUT", path, json=body, headers={"If-Match": f'"{version}"'})
            if answer.status_code == 200:
                taken.append(time.perf_counter() - begun)
            else:
                assert answer.status_code == 412, answer.text
                stale += 1

    await asyncio.gather(*map(edit, range(EDITORS)))
    return taken, stale


async def measure(control_plane: ControlPlane) -> None:
    """Print a line for each."""
    call = AdminCalls(control_plane)
    show("key look-up", look_up(control_plane))
    await timed(call, "/api/v1/tenants?limit=100")
    for what, found in {
        "a page of 100 tenants": await pages(call),
        "a tenant's keys": [
            (await timed(call, f"/api/v1/tenants/{name_of(n)}/keys"))[:2] for n in range(1, 101)
        ],
    }.items():
        show(what, [seconds for seconds, _ in found])
        show(f"{what}, CPU", [cpu for _, cpu in found])
    begun = time.perf_counter()
    taken, stale = await edits(call)
    per_min = 60 * len(taken) / (time.perf_counter() - begun)
    show(f"edit of targets, {EDITORS} editors", taken)
    versions = [control_plane.get_slo(name_of(n)).version - 1 for n in range(1, EDITED + 1)]
    assert sum(versions) == len(taken), "an edit was lost"
    assert control_plane.directory.version == control_plane.snapshot().version == len(taken)
    print(f"{len(taken)} edits, {per_min:,.0f} a minute; {stale} expected a version that was past; none lost")


def main() -> None:
    """See the top."""
    with tempfile.TemporaryDirectory() as folder:
        url = new_database(Path(folder))
        fill(url)
        begun = time.perf_counter()
        with opened(url) as control_plane:
            print(
                f"reading {TENANTS:,} tenants and {TENANTS * KEYS_PER_TENANT:,} keys: "
                f"{time.perf_counter() - begun:.1f} s"
            )
            GarbageHolder("gateway", is_idle=lambda: False).hold()
            cpu_s = time.process_time()
            begun = time.perf_counter()
            asyncio.run(measure(control_plane))
            share = (time.process_time() - cpu_s) / (time.perf_counter() - begun)
            print(f"of that time this process had the processor for {share:.0%} of one core")
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
