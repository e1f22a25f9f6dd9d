"""Forming the next prefill batch from the waiting requests, within the engine's limits."""

from __future__ import annotations

from collections.abc import Sequence

from pdmuxd.engine.core.types import Observation, PrefillShape, WaitingRequest

DECODE_HEADROOM_TOKENS = 128
"""KV kept free per decoding request, so that an admission does not force a retraction at once."""


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
