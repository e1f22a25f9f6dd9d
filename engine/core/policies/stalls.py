"""Stalls: room for them in a step while the queue has time for it, and what a split step tells of them.

A long step that stalls breaks the target of every request in it, and a smaller step stalls as often. So
there are two plans. While the next request in line has time to spare, steps are shorter by what a stall
takes: nobody misses anything for it. When it has none, steps use the whole target, and a stall costs what it
costs, because a queue that is too late costs more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pdmuxd.engine.core.guard import ContentionGuard
from pdmuxd.engine.core.latency import LatencyModel
from pdmuxd.engine.core.latency_margin import LatencyMargin
from pdmuxd.engine.core.types import Feedback, Observation, WaitingRequest

SPARE_STEPS = 14.0
"""Steps of the TBT target that the next in line has to spare. Shorter steps prefill a sixth less: what that
leaves undone in its TTFT target of a second has to be made good in these."""
SPARE_PREFILLS = 4.0
"""And so many times its own prefill, for others as long that are before it."""
MOST_OF_TARGET = 0.5
"""A stall of more than this share of the target is not planned for: the rest reads mostly weights."""

GUARD_RISE = 0.1
"""By this share a step raises its cell of the guard at most; what it took beyond is a stall."""
ASSUMED_RISE = 0.6
"""The same where the ratio was assumed and not seen: decode on 16 SMs took 1.4 times what a roofline and the
assumed ratio said (one H200, Llama-8B, 2026-11-23). A stall can be no shorter than that either, so that none
is expected for it."""


def stall_room_s(
    obs: Observation,
    queue: Sequence[WaitingRequest],
    margin: LatencyMargin,
    latency: LatencyModel,
    sms: int,
) -> float:
    """Seconds by which steps are planned shorter, so that a step that stalls still meets the target. 0 where
    no stall is expected, or where the next request or the one in prefill has no time to spare."""
    stall_s = margin.expected_stall_s
    if not stall_s or obs.tbt_target_s is None or stall_s > MOST_OF_TARGET * obs.tbt_target_s:
        return 0.0
    spare_s, running = SPARE_STEPS * obs.tbt_target_s, obs.prefill
    for request in (*queue[:1], *(running.requests[:1] if running is not None else ())):
        own_s = latency.request_s(request.new_tokens, request.reused_tokens, sms)
        if request.deadline_s - obs.now_s < max(spare_s + own_s, SPARE_PREFILLS * own_s):
            return 0.0
    return stall_s


def split_learned(
    feedback: Feedback, guard: ContentionGuard, decode_sms: int, margin: LatencyMargin
) -> tuple[Feedback, LatencyMargin]:
    """What the guard may learn of a decode step in a split, and the margin after it."""
    bound_s = feedback.predicted_s * guard.ratio(decode_sms, feedback.prefill, feedback.decode)
    is_known = guard.is_known(decode_sms, feedback.prefill, feedback.decode)
    most_s = bound_s * (1.0 + (GUARD_RISE if is_known else ASSUMED_RISE))
    if feedback.measured_s <= most_s:
        return feedback, margin
    stalled = margin.stalled(feedback.measured_s - bound_s) if is_known else margin
    return replace(feedback, measured_s=most_s), stalled
