"""What the emulated engine reports of itself: running totals, and one record per step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pdmuxd.engine.core.partitions import Partition
from pdmuxd.engine.core.types import Decision, DecodeShape, PrefillShape
from pdmuxd.engine.link.messages import IterationRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCounters:
    """A snapshot. Token and event counts are totals since the start, the rest is of this moment."""

    elapsed_s: float
    policy: str
    settings_version: int
    running: int
    waiting: int
    prefilling: int
    kv_used_tokens: int
    kv_capacity_tokens: int
    cached_tokens: int
    prompt_tokens: int
    reused_tokens: int
    output_tokens: int
    steps: int
    switches: int
    preemptions: int
    retractions: int
    partition_id: int
    prefill_sms: int
    decode_sms: int
    busy_prefill_sm_s: float
    busy_decode_sm_s: float


SUMMED = (
    "running",
    "waiting",
    "prefilling",
    "kv_used_tokens",
    "kv_capacity_tokens",
    "cached_tokens",
    "prompt_tokens",
    "reused_tokens",
    "output_tokens",
    "steps",
    "switches",
    "preemptions",
    "retractions",
    "prefill_sms",
    "decode_sms",
    "busy_prefill_sm_s",
    "busy_decode_sm_s",
)


def summed(parts: Sequence[EngineCounters], *, policy: str, elapsed_s: float) -> EngineCounters:
    """The counters of several engines as if they were one; `group` is without meaning."""
    sums = {name: sum(getattr(part, name) for part in parts) for name in SUMMED}
    return replace(parts[0], policy=policy, elapsed_s=elapsed_s, partition_id=0, **sums)


@dataclass(slots=True)
class Totals:
    """The counters that only grow."""

    prompt_tokens: int = 0
    reused_tokens: int = 0
    output_tokens: int = 0
    steps: int = 0
    switches: int = 0
    preemptions: int = 0
    retractions: int = 0
    fused_prefill_sm_s: float = 0.0
    """SM-seconds of fused batches that their prefill tokens account for."""


@dataclass(slots=True, kw_only=True)
class Step:
    """A decision being carried out."""

    decision: Decision
    start_s: float
    partition: Partition
    decode: DecodeShape
    prefill_new_tokens: int
    decode_steps_left: int = 0
    prefill_shape: PrefillShape | None = None
    """The prefill beside which decode was launched, or that ran alone."""
    measured_decode_s: float | None = None
    """One decode step of a split, host work included."""
    prefill_only_s: float | None = None
    """Launched layers of a prefill that ran alone, from the first to the last."""


def step_record(step: Step, number: int, end_s: float) -> IterationRecord:
    """The record of a step that ended at `end_s`."""
    decision = step.decision
    numbers = decision.numbers
    shape = step.prefill_shape
    return IterationRecord(
        step=number,
        now_s=end_s,
        mode=decision.mode.value,
        reason=decision.reason.value,
        partition_id=decision.partition_id,
        prefill_sms=step.partition.prefill_sms,
        decode_sms=step.partition.decode_sms,
        decode_bs=step.decode.bs,
        decode_reused_tokens=step.decode.reused_tokens,
        prefill_new_tokens=step.prefill_new_tokens,
        prefill_layers=decision.prefill_layers,
        predicted_decode_s=numbers.predicted_decode_s,
        measured_step_s=end_s - step.start_s,
        guard_ratio=numbers.guard_ratio,
        tbt_slack_s=numbers.tbt_slack_s,
        decode_steps=decision.decode_steps,
        measured_decode_s=step.measured_decode_s,
        measured_prefill_s=step.prefill_only_s,
        predicted_prefill_s=numbers.predicted_prefill_s,
        predicted_fused_s=numbers.predicted_fused_s,
        prefill_bs=shape.bs if shape is not None else 0,
        prefill_reused_tokens=shape.reused_tokens if shape is not None else 0,
        prefill_sum_new_squared=shape.sum_new_squared if shape is not None else 0,
        prefill_sum_new_times_reused=shape.sum_new_times_reused if shape is not None else 0,
    )
