"""What it costs the daemon to keep and tell what the engine does: make bench-telemetry.

Feeds one second of an engine's reports after the other, as fast as they are taken, and prints the share of
one core that this would be in real time: 100 steps, 10 heartbeats, 5 ended requests a second, 20 tenants.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "support"))

from telemetry_feeds import HandClock, directory, heartbeat, request_record, step

from pdmuxd.controlplane.events.follow import Subscription, follow
from pdmuxd.controlplane.node.engine_status import NO_ENGINE
from pdmuxd.controlplane.telemetry.telemetry import RESUMED_WITHIN_S, TICK_S, TICKS_PER_SECOND, Telemetry

STEPS_PER_S = 100
REQUESTS_PER_S = 5
TENANTS = 20
COUNTS = tuple((bucket, 10) for bucket in range(65, 85))
"""A request's gaps: 200 over 20 buckets."""
GROUPS_FOR = 7
"""Steps in a row that use the same group: what is folded into one event."""


def second(telemetry: Telemetry, clock: HandClock, number: int) -> None:
    """One second of an engine that serves."""
    for tick in range(TICKS_PER_SECOND):
        at = number * STEPS_PER_S + tick * STEPS_PER_S // TICKS_PER_SECOND
        for index in range(at, at + STEPS_PER_S // TICKS_PER_SECOND):
            group = 1 + index // GROUPS_FOR % 6
            telemetry.on_message(
                step(step=index, now_s=clock() - 1e9, partition_id=group, measured_decode_s=0.024)
            )
        stats = heartbeat(uptime_s=float(number), steps=at, output_tokens=10 * at)
        telemetry.status = lambda stats=stats: replace(NO_ENGINE, state="serving", stats=stats)
        telemetry.on_message(stats)
        telemetry.tick()
        clock.turn(TICK_S)
    for index in range(REQUESTS_PER_S):
        tenant = f"tenant-{(number * REQUESTS_PER_S + index) % TENANTS}"
        rid = f"{number}-{index}"
        telemetry.on_begin(rid, tenant=tenant, path="/v1/completions")
        gaps = {"tbt_gaps": 200, "tbt_gaps_met": 199, "tbt_max_s": 0.05, "tbt_counts": COUNTS}
        telemetry.on_request(request_record(request_id=rid, tenant=tenant, **gaps))
        telemetry.on_answered(rid, status=200)


async def share(seconds: int, clients: int, feed: Callable[[Telemetry, HandClock, int], None]) -> float:
    """Processor seconds per second of the engine."""
    clock = HandClock()
    telemetry = Telemetry(clock=clock)
    telemetry.on_directory(directory(**{f"tenant-{index}": 0.04 for index in range(TENANTS)}))
    streams = [
        follow(telemetry.events, Subscription(hello=lambda: telemetry.hello("admin")), clock=clock)
        for _ in range(clients)
    ]
    for stream in streams:
        await anext(stream)
    spent_s = 0.0
    for number in range(int(RESUMED_WITHIN_S) + 1):
        feed(telemetry, clock, number)
        for stream in streams:
            await anext(stream)
    for number in range(int(RESUMED_WITHIN_S) + 1, int(RESUMED_WITHIN_S) + 1 + seconds):
        started_s = time.process_time()
        feed(telemetry, clock, number)
        for stream in streams:
            await anext(stream)
        spent_s += time.process_time() - started_s
    return spent_s / seconds


def main() -> None:
    """Print one line per number of clients."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=120)
    seconds = parser.parse_args().seconds
    for clients in (0, 1, 10):
        cost = asyncio.run(share(seconds, clients, second))
        print(f"{clients:2d} clients: {100 * cost:.2f}% of a core")


if __name__ == "__main__":
    main()
