"""Room for stalls in a step, while the queue has time for it.

A long step that stalls breaks the target of every request in it, and a smaller step stalls as often. So
there are two plans. While the next request in line has time to spare, steps are shorter by what a stall
takes: nobody misses anything for it. When it has none, steps use the whole target, and a stall costs what it
costs, because a queue that is too late costs more.
"""

from __future__ import annotations

from collections.abc import Sequence

from pdmuxd.engine.core.latency import LatencyModel
from pdmuxd.engine.core.types import Observation, WaitingRequest

SPARE_STEPS = 14.0
"""Steps of the TBT target that the next in line has to spare. Shorter steps prefill a sixth less: what that
leaves undone in its TTFT target of a second has to be made good in these."""
SPARE_PREFILLS = 4.0
"""And so many times its own prefill, for others as long that are before it."""
MOST_OF_TARGET = 0.5
"""A stall of more than this share of the target is not planned for: the rest reads mostly weights."""


def stall_room_s(
    obs: Observation,
    queue: Sequence[WaitingRequest],
    stall_s: float,
    latency: LatencyModel,
    sms: int,
) -> float:
    """Seconds by which steps are planned shorter, so that one that stalls for `stall_s` meets the target. 0
    where no stall is expected, or where the next request or the one in prefill has no time to spare."""
    if not stall_s or obs.tbt_target_s is None or stall_s > MOST_OF_TARGET * obs.tbt_target_s:
        return 0.0
    spare_s, running = SPARE_STEPS * obs.tbt_target_s, obs.prefill
    for request in (*queue[:1], *(running.requests[:1] if running is not None else ())):
        own_s = latency.request_s(request.new_tokens, request.reused_tokens, sms)
        if request.deadline_s - obs.now_s < max(spare_s + own_s, SPARE_PREFILLS * own_s):
            return 0.0
    return stall_s
