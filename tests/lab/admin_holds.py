"""How long each admin call holds the loop that serves all streams, with 10,000 tenants.

`admin-holds [PART ...]` prints a line for each call, or for those whose path has one of the parts in it: the
processor time of the longest callback of the loop, by how much a timer of the loop was late (for which worker
threads count too), the time of the call, all the least of three calls, and the size of the answer. Then it
prints the same of the telemetry's own turns.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "support"))

from admin_calls import CALLS, PROBES
from full_node import KEYS_PER_TENANT, STREAMS, TENANTS, FullNode, full_node

from pdmuxd.controlplane.telemetry.telemetry import TICK_S

TURNS = 40


async def measure(node: FullNode, parts: list[str]) -> None:
    """Print a line for each call."""
    calls = [("GET", path, b"") for path in PROBES]
    calls += [(method, f"/api/v1{path}", body) for (method, _), all_ in CALLS.items() for path, body in all_]
    for method, path, body in calls:
        if parts and not any(part in path for part in parts):
            continue
        hold = await node.hold(method, path, json=body)
        print(
            f"{method:6} {path:56} {hold.answer.status} holds {hold.cpu_s * 1e3:6.1f} ms, late "
            f"{hold.late_s * 1e3:6.1f} ms, took {hold.took_s * 1e3:7.1f} ms, {hold.answer.body_bytes:>8,} B",
            flush=True,
        )


async def turns(node: FullNode) -> None:
    """Print what the telemetry's turns take, and hold at once, with a console that follows the events."""
    telemetry, taken = node.parts.node.telemetry, []
    telemetry.events.clients = 1
    for _ in range(TURNS):
        begun = time.thread_time()
        telemetry.tick()
        taken.append(time.thread_time() - begun)
        await asyncio.sleep(TICK_S)
    shown = ", ".join(f"{each * 1e3:.1f}" for each in taken)
    print(f"turns of the telemetry, ms: {shown}; the most {max(taken) * 1e3:.1f}")
    print(f"as the daemon takes them, they hold at most {await node.turns_hold(TURNS) * 1e3:.1f} ms")


async def main(parts: list[str]) -> None:
    """See the top."""
    with tempfile.TemporaryDirectory() as folder:
        async with full_node(Path(folder)) as node:
            # As a daemon does while answers run.
            gc.collect()
            gc.freeze()
            gc.disable()
            print(f"{TENANTS:,} tenants, {TENANTS * KEYS_PER_TENANT:,} keys, {STREAMS} streams")
            await measure(node, parts)
            if not parts:
                await turns(node)
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    asyncio.run(main(sys.argv[1:]))
