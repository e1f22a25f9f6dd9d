"""What each step was predicted to take and really took, from the device's own events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pdmuxd.engine.core.types import Decision, DecodeShape, Feedback, Mode, PrefillShape
from pdmuxd.engine.link.messages import IterationRecord
from pdmuxd.engine.sglang.port import LaunchedStep
from pdmuxd.engine.sglang.prefill import LayerwiseBatch
from pdmuxd.engine.sglang.streams.base import DeviceStreams


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """What the heartbeat says of the loop; counts and SM-seconds since the start, the rest of this moment."""

    total_sms: int
    running: int
    waiting: int
    prefilling: int
    kv_capacity_tokens: int
    kv_free_tokens: int
    cached_tokens: int
    steps: int
    switches: int
    preemptions: int
    group: int
    prefill_sms: int
    decode_sms: int
    busy_prefill_sm_s: float
    busy_decode_sm_s: float


@dataclass(slots=True, eq=False)
class PendingStep:
    """A step on the decode stream whose result has not been read."""

    launched: LaunchedStep
    decision: Decision
    prefill_sms: int
    decode_sms: int
    decode: DecodeShape
    prefill: PrefillShape | None
    """The prefill beside it, or the prompt tokens in it."""
    previous_end: Any
    """End event of the step before it, if that was still in flight: the gap is counted from there."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A step that was read: its record, and what the policy may learn from it."""

    record: IterationRecord
    feedback: Feedback | None


class StepMeter:
    """Counts steps and measures them."""

    def __init__(self, streams: DeviceStreams) -> None:
        self._streams = streams
        self._in_flight_end: Any = None
        self.steps = 0
        self.switches = 0
        self.preemptions = 0
        self.busy_decode_sm_s = 0.0
        self.busy_fused_prefill_sm_s = 0.0

    def launched(
        self,
        launched: LaunchedStep,
        decision: Decision,
        sms: tuple[int, int],
        decode: DecodeShape,
        prefill: PrefillShape | None,
    ) -> PendingStep:
        """Note a launch; `decode` and `prefill` are what it was launched with and beside."""
        step = PendingStep(
            launched=launched,
            decision=decision,
            prefill_sms=sms[0],
            decode_sms=sms[1],
            decode=decode,
            prefill=prefill,
            previous_end=self._in_flight_end,
        )
        self._in_flight_end = launched.end
        return step

    def read(self, step: PendingStep, now_s: float) -> Reading:
        """Measure a step that the device has passed."""
        streams, launched = self._streams, step.launched
        busy_s = streams.elapsed_s(launched.start, launched.end)
        gap_s = busy_s
        if step.previous_end is not None:
            gap_s = streams.elapsed_s(step.previous_end, launched.end)
        if self._in_flight_end is launched.end:
            self._in_flight_end = None
        self.steps += 1
        self._account(step, busy_s)
        return Reading(record=self._record(step, now_s, gap_s), feedback=_feedback(step, gap_s))

    def prefilled(self, batch: LayerwiseBatch, now_s: float, layers: int) -> IterationRecord:
        """The record of a finished layer-wise prefill."""
        self.steps += 1
        shape = batch.shape
        return IterationRecord(
            step=self.steps,
            now_s=now_s,
            mode=Mode.SPLIT.value,
            reason="prefill_alone" if batch.ran_alone else "prefill_finished",
            group=0,
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
            prefill_layers=layers,
            predicted_decode_s=None,
            predicted_prefill_s=batch.predicted_s,
            measured_prefill_s=batch.device_s if batch.ran_alone else None,
            measured_step_s=batch.device_s,
            guard_ratio=None,
            tbt_slack_s=None,
        )

    def _account(self, step: PendingStep, busy_s: float) -> None:
        sms = step.decode_sms
        prefill_tokens = step.prefill.new_tokens if step.prefill is not None else 0
        if step.decision.mode is Mode.FUSED and prefill_tokens:
            share = prefill_tokens / (prefill_tokens + step.decode.bs)
            self.busy_fused_prefill_sm_s += busy_s * sms * share
            self.busy_decode_sm_s += busy_s * sms * (1.0 - share)
        else:
            self.busy_decode_sm_s += busy_s * sms

    def _record(self, step: PendingStep, now_s: float, gap_s: float) -> IterationRecord:
        decision, numbers, shape = step.decision, step.decision.numbers, step.prefill
        is_split = decision.mode is Mode.SPLIT
        return IterationRecord(
            step=self.steps,
            now_s=now_s,
            mode=decision.mode.value,
            reason=decision.reason.value,
            group=decision.group,
            prefill_sms=step.prefill_sms if is_split else step.decode_sms,
            decode_sms=step.decode_sms,
            decode_bs=step.decode.bs,
            decode_reused_tokens=step.decode.reused_tokens,
            decode_steps=1,
            prefill_new_tokens=shape.new_tokens if shape is not None else 0,
            prefill_reused_tokens=shape.reused_tokens if shape is not None else 0,
            prefill_sum_new_squared=shape.sum_new_squared if shape is not None else 0,
            prefill_sum_new_times_reused=shape.sum_new_times_reused if shape is not None else 0,
            prefill_bs=shape.bs if shape is not None else 0,
            prefill_layers=decision.prefill_layers,
            predicted_decode_s=numbers.predicted_decode_s,
            predicted_prefill_s=numbers.predicted_prefill_s,
            predicted_fused_s=numbers.predicted_fused_s,
            measured_decode_s=gap_s if is_split else None,
            measured_step_s=gap_s,
            guard_ratio=numbers.guard_ratio,
            tbt_slack_s=numbers.tbt_slack_s,
        )


def _feedback(step: PendingStep, measured_s: float) -> Feedback | None:
    numbers = step.decision.numbers
    fused = step.decision.mode is Mode.FUSED
    predicted_s = numbers.predicted_fused_s if fused else numbers.predicted_decode_s
    if step.prefill is None or predicted_s is None:
        return None
    return Feedback(
        mode=step.decision.mode,
        group=step.decision.group,
        prefill=step.prefill,
        decode=step.decode,
        predicted_s=predicted_s,
        measured_s=measured_s,
    )
