"""Observations to decide on, built with the fewest words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pdmuxd.engine.core.estimates.latency_margin import LatencyMargin
from pdmuxd.engine.core.guard import ContentionGuard
from pdmuxd.engine.core.partitions import SmRules
from pdmuxd.engine.core.policies.autostate import AutoState
from pdmuxd.engine.core.policies.base import PolicyContext
from pdmuxd.engine.core.types import (
    NO_DECODE,
    DecodeShape,
    EngineLimits,
    Feedback,
    Mode,
    Observation,
    PrefillFeedback,
    PrefillMode,
    PrefillSample,
    PrefillShape,
    PrefillView,
    WaitingRequest,
)

TEN = DecodeShape(bs=10, reused_tokens=0)


class LinearLatency:
    """Seconds to work out by hand: on all 132 SMs 1 ms per prefill token, 1 ms per decoding request."""

    def prefill_s(self, shape: PrefillShape, sms: int) -> float:
        return shape.new_tokens * 0.001 * 132 / sms

    def request_s(self, new_tokens: int, reused_tokens: int, sms: int) -> float:
        return new_tokens * 0.001 * 132 / sms

    def requests_s(self, requests: Sequence[WaitingRequest], sms: int) -> list[float]:
        return [self.request_s(r.new_tokens, r.reused_tokens, sms) for r in requests]

    def decode_s(self, shape: DecodeShape, sms: int) -> float:
        return shape.bs * 0.001 * 132 / sms

    def fused_s(self, prefill: PrefillShape, decode: DecodeShape, sms: int) -> float:
        return self.prefill_s(prefill, sms) + self.decode_s(decode, sms)

    def colocated_ratio(self, sms: int) -> float:
        return 1.15


def linear_context() -> PolicyContext:
    return PolicyContext(
        rules=SmRules(total_sms=132),
        layers=32,
        latency=LinearLatency(),
        guard=ContentionGuard(default_ratio=1.25),
    )


def with_margin(state: AutoState, margin: LatencyMargin) -> AutoState:
    """The state, with fused steps as off what is expected of them as `margin` says."""
    fused = replace(state.estimates.fused, margin=margin)
    return replace(state, estimates=replace(state.estimates, fused=fused))


def took(
    mode: Mode,
    *,
    predicted_s: float,
    measured_s: float,
    partition_id: int = 0,
    new_tokens: int = 100,
    decode: DecodeShape = TEN,
) -> Feedback:
    """A step of a prompt and a decode batch, predicted and measured."""
    return Feedback(
        mode=mode,
        partition_id=partition_id,
        prefill=PrefillShape.of([(new_tokens, 0)]),
        decode=decode,
        predicted_s=predicted_s,
        measured_s=measured_s,
    )


def sampled(sample: PrefillSample) -> PrefillFeedback:
    """A prefill whose parts are known, and that nobody predicted."""
    return PrefillFeedback(sms=132, was_alone=True, predicted_s=None, measured_s=1.0, sample=sample)


def waiting(
    number: int, new_tokens: int, *, deadline_s: float = 100.0, reused_tokens: int = 0
) -> WaitingRequest:
    return WaitingRequest(
        request_id=f"r{number}",
        tenant="t",
        arrival_s=0.0,
        deadline_s=deadline_s,
        new_tokens=new_tokens,
        reused_tokens=reused_tokens,
        tbt_target_s=0.05,
    )


def running_prefill(
    new_tokens: int,
    *,
    launched: int = 0,
    done: int = 0,
    deadline_s: float = 100.0,
    was_preempted: bool = False,
    mode: PrefillMode = PrefillMode.LAYERWISE,
) -> PrefillView:
    request = waiting(0, new_tokens, deadline_s=deadline_s)
    return PrefillView(
        batch_id=1,
        mode=mode,
        requests=(request,),
        shape=PrefillShape.of([(new_tokens, 0)]),
        earliest_deadline_s=deadline_s,
        layers_launched=launched,
        layers_done=done,
        was_preempted=was_preempted,
    )


def observe(
    *,
    partition_id: int = 0,
    decode_bs: int = 0,
    decode_reused_tokens: int = 0,
    tbt_target_s: float | None = None,
    prefill: PrefillView | None = None,
    preempted: PrefillView | None = None,
    set_aside: tuple[PrefillView, ...] = (),
    queue: tuple[WaitingRequest, ...] = (),
    kv_free_tokens: int = 1_000_000,
    limits: EngineLimits | None = None,
    now_s: float = 0.0,
) -> Observation:
    decode = DecodeShape(bs=decode_bs, reused_tokens=decode_reused_tokens) if decode_bs else NO_DECODE
    return Observation(
        now_s=now_s,
        partition_id=partition_id,
        decode=decode,
        tbt_target_s=tbt_target_s if tbt_target_s is not None else (0.05 if decode_bs else None),
        last_token_s=now_s,
        prefill=prefill,
        set_aside=set_aside if preempted is None else (preempted,),
        waiting=queue,
        waiting_count=len(queue),
        kv_free_tokens=kv_free_tokens,
        limits=limits or EngineLimits(),
        settings_version=1,
    )
