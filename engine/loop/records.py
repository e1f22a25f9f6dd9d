"""What the daemon and the policy are told: of steps and prefills, and of the requests that wait."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields

from pdmuxd.engine.core.roofline import NO_PREFILL
from pdmuxd.engine.core.types import DecisionNumbers, Feedback, Mode, PrefillFeedback, PrefillSample, Reason
from pdmuxd.engine.link.messages import IterationRecord, TenantQueue, TenantQueues
from pdmuxd.engine.loop.decode import Step, StepTiming
from pdmuxd.engine.loop.prefill import LayerwiseBatch

_NUMBERS = tuple(
    field.name for field in fields(DecisionNumbers) if field.name in IterationRecord.__struct_fields__
)
"""The numbers behind a decision that the daemon is told, too."""


def step_record(step: Step, *, number: int, now_s: float, timing: StepTiming) -> IterationRecord:
    """The record of a decode or fused step that was read."""
    decision, numbers, shape = step.decision, step.decision.numbers, step.prefill or NO_PREFILL
    is_split = decision.mode is Mode.SPLIT
    return IterationRecord(
        step=number,
        now_s=now_s,
        mode=decision.mode.value,
        reason=decision.reason.value,
        order=decision.order.value,
        partition_id=decision.partition_id,
        prefill_sms=step.prefill_sms if is_split else step.decode_sms,
        decode_sms=step.decode_sms,
        decode_bs=step.decode.bs,
        decode_reused_tokens=step.decode.reused_tokens,
        decode_steps=1,
        sitting_out=len(decision.sits_out),
        prefill_new_tokens=shape.new_tokens,
        prefill_reused_tokens=shape.reused_tokens,
        prefill_sum_new_squared=shape.sum_new_squared,
        prefill_sum_new_times_reused=shape.sum_new_times_reused,
        prefill_bs=shape.bs,
        prefill_layers=step.prefill_layers,
        measured_decode_s=timing.busy_s if is_split else None,
        measured_step_s=timing.gap_s,
        host_late_s=timing.host_late_s,
        stall_s=timing.stall_s,
        stall_cause=timing.stall_cause,
        **{name: getattr(numbers, name) for name in _NUMBERS},
    )


def prefill_record(batch: LayerwiseBatch, *, number: int, now_s: float) -> IterationRecord:
    """The record of a finished layer-wise prefill."""
    shape = batch.shape
    return IterationRecord(
        step=number,
        now_s=now_s,
        mode=Mode.SPLIT.value,
        reason=(Reason.PREFILL_ALONE if batch.ran_alone else Reason.PREFILL_FINISHED).value,
        partition_id=0,
        prefill_sms=batch.sms,
        decode_sms=0,
        decode_bs=0,
        decode_reused_tokens=0,
        decode_steps=0,
        prefill_new_tokens=shape.new_tokens,
        prefill_reused_tokens=shape.reused_tokens,
        prefill_sum_new_squared=shape.sum_new_squared,
        prefill_sum_new_times_reused=shape.sum_new_times_reused,
        prefill_bs=shape.bs,
        prefill_layers=batch.layers_launched // batch.slices,
        predicted_decode_s=None,
        predicted_prefill_s=batch.predicted_s,
        measured_prefill_s=batch.device_s if batch.ran_alone else None,
        measured_step_s=batch.device_s,
        guard_ratio=None,
        tbt_slack_s=None,
    )


def feedback(
    step: Step, timing: StepTiming, attainment_ratio: float, *, follows_split: bool = False
) -> Feedback | None:
    """What the policy may learn from a step; None if nothing was predicted, or no prefill was beside it.

    A split's guard is of what decode suffers from the prefill, not from a host that launched late; what a
    fused step takes is often launching.
    """
    numbers = step.decision.numbers
    fused = step.decision.mode is Mode.FUSED
    predicted_s = numbers.predicted_fused_s if fused else numbers.predicted_decode_s
    if step.prefill is None or predicted_s is None:
        return None
    return Feedback(
        mode=step.decision.mode,
        partition_id=step.decision.partition_id,
        prefill=step.prefill,
        decode=step.decode,
        predicted_s=predicted_s,
        measured_s=timing.gap_s if fused else timing.busy_s,
        attainment_ratio=attainment_ratio,
        follows_split=follows_split,
    )


def prefill_feedback(batch: LayerwiseBatch, sample: PrefillSample | None) -> PrefillFeedback | None:
    """What the policy may learn from a finished prefill; None if it had several numbers of SMs, or was
    neither predicted nor taken as a `sample`."""
    predicted_s = batch.predicted_s if batch.has_one_size and batch.device_s else None
    if predicted_s is None and sample is None:
        return None
    return PrefillFeedback(
        sms=batch.sms,
        was_alone=batch.ran_alone,
        predicted_s=predicted_s,
        measured_s=batch.device_s,
        sample=sample,
    )


def tenant_queues(waiting: Iterable[tuple[str, float, float]], now_s: float) -> TenantQueues:
    """How long each tenant's requests without a first token have waited: (tenant, arrival, TTFT target)."""
    found: dict[str, tuple[int, int, float]] = {}
    for tenant, arrival_s, target_s in waiting:
        count, late, oldest_s = found.get(tenant, (0, 0, 0.0))
        waited_s = now_s - arrival_s
        found[tenant] = count + 1, late + (waited_s > target_s), max(oldest_s, waited_s)
    return TenantQueues(
        queues=tuple(
            TenantQueue(tenant=tenant, waiting=count, late=late, oldest_wait_s=oldest_s)
            for tenant, (count, late, oldest_s) in found.items()
        )
    )
