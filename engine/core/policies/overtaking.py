"""Who may go ahead of a prefill that is under way: invariants 3 and 4 are kept here.

Each overtaking saves a deadline that would else be missed, and leaves the prefill under way time for its
own, however often it is overtaken. One whose target is unreachable anyway is overtaken once if it runs by
layers, and sits out every second step at most if it runs in chunks. Source: MuxWise section 3.4
(preemption); `overload.py` says whose turn it is in overload.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from pdmuxd.engine.core.latency import LatencyModel
from pdmuxd.engine.core.policies.base import Plan
from pdmuxd.engine.core.queueing import OrderedQueue
from pdmuxd.engine.core.types import Observation, PrefillView, WaitingRequest


def earliest_deadline_s(obs: Observation) -> float:
    """Of those who wait; ValueError if none does."""
    return min(request.deadline_s for request in obs.waiting)


def urgent_beside_layers(
    obs: Observation, queue: OrderedQueue, latency: LatencyModel, *, sms: int, left_s: float
) -> tuple[WaitingRequest, ...]:
    """Who could not wait for the `left_s` seconds of the running prefill and is in time now, as many as
    it has time for. Predictions are for `sms` SMs beside decode."""
    running = obs.prefill
    if running is None:
        return ()
    colocated_ratio = latency.colocated_ratio(sms)
    spare_s = running.earliest_deadline_s - obs.now_s - left_s
    most_s = min(left_s, spare_s) if spare_s >= 0.0 else left_s
    must_go_on = spare_s < 0.0 and running.was_preempted
    unreachable = frozenset(queue.unreachable)
    urgent: list[WaitingRequest] = []
    taken_s = 0.0
    for request, is_free in _overtakers(queue, running):
        if request.request_id in unreachable or (must_go_on and not is_free):
            continue
        own_s = colocated_ratio * latency.request_s(request.new_tokens, request.reused_tokens, sms)
        left_to_it_s = request.deadline_s - obs.now_s - own_s
        if left_to_it_s < left_s and taken_s <= left_to_it_s and (is_free or taken_s + own_s < most_s):
            urgent.append(request)
            taken_s += own_s
    return tuple(urgent)


def urgent_beside_chunks(
    obs: Observation, queue: OrderedQueue, plan: Plan, *, has_chunk_waited: bool
) -> tuple[WaitingRequest, ...]:
    """Who would miss their targets behind the chunks that are left, and fits into a step of `plan`'s tokens.

    `has_chunk_waited`: the prompt in chunks sat the last step out.
    """
    running, tokens = obs.prefill, plan.prompt_tokens
    if running is None or not queue.order or not plan.meets:
        return ()
    step_s = plan.numbers.predicted_fused_s or 0.0
    steps_left = -(-(running.shape.new_tokens - running.done_tokens) // tokens)
    left_s = step_s * steps_left
    if steps_left < 2 or earliest_deadline_s(obs) >= obs.now_s + left_s + step_s:
        return ()
    spare_s = running.earliest_deadline_s - obs.now_s - left_s
    has_time = spare_s >= step_s or (spare_s < 0.0 and not has_chunk_waited)
    unreachable = frozenset(queue.unreachable)
    urgent: list[WaitingRequest] = []
    for request, is_free in _overtakers(queue, running):
        left_to_it_s = request.deadline_s - obs.now_s - step_s
        if request.request_id in unreachable or not 0.0 <= left_to_it_s < left_s:
            continue
        if (has_time or is_free) and request.new_tokens <= tokens:
            tokens -= request.new_tokens
            urgent.append(request)
    return tuple(urgent)


def _overtakers(queue: OrderedQueue, running: PrefillView) -> Iterator[tuple[WaitingRequest, bool]]:
    """Who may overtake a running prefill, in order, and whether whatever that does to its deadline.

    The batch class has time for the others. In overload a tenant that has had less than its share is
    overtaken by such tenants alone, and overtakes the others as it needs.
    """
    is_batch_class = all(request.priority_class == "batch" for request in running.requests)
    overload = queue.state.overload
    behind: Collection[str] = ()
    if overload.is_on:
        behind = overload.behind((*queue.order, *running.requests))
    is_behind = any(request.tenant in behind for request in running.requests)
    for request in queue.order:
        if is_behind and request.tenant not in behind:
            continue
        is_owed = request.tenant in behind and not is_behind
        yield request, is_owed or (is_batch_class and request.priority_class != "batch")
