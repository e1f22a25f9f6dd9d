"""The next prefill batch: the order of waiting requests, and how many of them go together.

The order is of arrival, or least slack first among those that can still make it.
Slack is what is left until a request's deadline after its own predicted prefill. Serving a request that has
no slack left costs the next one its target, so those wait behind, oldest first. So that no tenant starves,
one that has waited for `AGEING_BOUND_S` is paid for from a credit that grows with what the others get.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pdmuxd.engine.core.latency import LatencyModel
from pdmuxd.engine.core.types import Observation, PrefillShape, WaitingRequest

AGEING_BOUND_S = 60.0
"""A request with an unreachable deadline waits at most so long without a claim on the credit."""

MARGIN_SHARE = 0.08
"""Of its target that a request which has waited for long must have left: at overload everybody is served at
the last moment, and a prediction that is a little short would make near misses of them all."""

AGED_SHARE = 0.08
"""Prompt tokens that aged requests are credited per prompt token of the others."""

DECODE_HEADROOM_TOKENS = 128
"""KV kept free per decoding request, so that an admission does not force a retraction at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderedQueue:
    """The waiting requests in the order to serve them, and whose deadlines cannot be reached any more."""

    order: tuple[WaitingRequest, ...]
    unreachable: tuple[str, ...]
    """Oldest first: a set would order them by hash, differently on every rank (invariant 6)."""


def order_by_slack(
    waiting: Sequence[WaitingRequest],
    *,
    now_s: float,
    latency: LatencyModel,
    sms: int,
    slowdown_ratio: float = 1.0,
    aged_credit_tokens: float = 0.0,
) -> OrderedQueue:
    """Sort by (aged and paid for, can still make it, slack); ties keep arrival order.

    `sms` are the SMs that the prefill would get, `slowdown_ratio` what it loses to others there.
    Source: least-laxity scheduling, cut off at lateness.
    """
    live: list[tuple[float, int, WaitingRequest]] = []
    late: list[WaitingRequest] = []
    request_s = latency.request_s
    for index, request in enumerate(waiting):
        deadline_s, arrival_s = request.deadline_s, request.arrival_s
        service_s = slowdown_ratio * request_s(request.new_tokens, request.reused_tokens, sms)
        slack_s = deadline_s - now_s - service_s
        target_s = deadline_s - arrival_s
        if slack_s >= MARGIN_SHARE * target_s or (slack_s >= 0.0 and now_s - arrival_s <= 0.5 * target_s):
            live.append((slack_s, index, request))
        else:
            late.append(request)
    live.sort()
    late.sort(key=_arrival_s)
    ordered = tuple(request for _, _, request in live)
    unreachable = tuple(request.request_id for request in late)
    oldest = late[0] if late else None
    has_aged = oldest is not None and now_s - oldest.arrival_s > AGEING_BOUND_S
    if oldest is not None and has_aged and oldest.new_tokens <= aged_credit_tokens:
        return OrderedQueue(order=(oldest, *ordered, *late[1:]), unreachable=unreachable)
    return OrderedQueue(order=(*ordered, *late), unreachable=unreachable)


def next_credit(batch: Sequence[WaitingRequest], unreachable: Collection[str], credit_tokens: float) -> float:
    """The credit after `batch` was admitted: the aged spend it, the others earn it."""
    for request in batch:
        if request.request_id in unreachable:
            credit_tokens = max(0.0, credit_tokens - request.new_tokens)
        else:
            credit_tokens += AGED_SHARE * request.new_tokens
    return credit_tokens


def form_prefill_batch(
    obs: Observation,
    *,
    queue: Sequence[WaitingRequest] | None = None,
    max_tokens: int | None = None,
) -> tuple[WaitingRequest, ...]:
    """The first waiting requests that fit into one prefill batch; empty if none does.

    `queue` is the order to take them in (default: arrival). The first request is taken whatever its
    length; more join while the batch stays within `max_tokens` and the engine's limit. Nobody overtakes:
    the first that does not fit ends the batch.
    """
    limits = obs.limits
    if max_tokens is None or max_tokens > limits.max_prefill_tokens:
        max_tokens = limits.max_prefill_tokens
    slots = limits.max_decode_bs - obs.decode.bs
    if obs.preempted is not None:
        slots -= obs.preempted.shape.bs
    kv_tokens = obs.kv_free_tokens - DECODE_HEADROOM_TOKENS * obs.decode.bs
    idle = obs.decode.bs == 0 and obs.prefill is None and obs.preempted is None
    chosen: list[WaitingRequest] = []
    new_tokens = 0
    for request in obs.waiting if queue is None else queue:
        new_tokens += request.new_tokens
        kv_tokens -= request.new_tokens
        if len(chosen) >= slots or (kv_tokens < 0 and not (idle and not chosen)):
            break
        if chosen and new_tokens > max_tokens:
            break
        chosen.append(request)
    return tuple(chosen)


def shape_of(requests: tuple[WaitingRequest, ...]) -> PrefillShape:
    """The sums over a batch that latency depends on."""
    return PrefillShape.of((r.new_tokens, r.reused_tokens) for r in requests)


def _arrival_s(request: WaitingRequest) -> float:
    return request.arrival_s
