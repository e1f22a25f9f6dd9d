"""How things went over some time: each tenant's targets, and who had the SMs."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pdmuxd.controlplane.events.messages import Spread
from pdmuxd.controlplane.telemetry.attainment import MINUTE_S, Attainment, ViolationCounts
from pdmuxd.controlplane.telemetry.histogram import spread_of
from pdmuxd.controlplane.telemetry.judged import JudgedRequest
from pdmuxd.controlplane.telemetry.waiting import NOTHING_OPEN, OpenCounts
from pdmuxd.engine.core.types import Mode, Reason
from pdmuxd.engine.link.durations import BUCKETS, bucket_of
from pdmuxd.engine.link.messages import IterationRecord

MAX_TENANTS = 200
"""Of each change, the busiest the minute before."""
Counts = Mapping[int, int]
"""By column of SM use, in microseconds, or microseconds times SMs."""

_STEP_US, _SPLIT_US, _FUSED_US, _PREFILL_SM_US, _DECODE_SM_US, _SPAN_US, _PREFILL_US, _DECODE_US = range(8)
COLUMNS = 8
PASSED_AT_ONCE = 1000
"""Tenants of which only the time of their last request is looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SmUse:
    """Use of the SMs over some time; None where there was nothing to average."""

    split_ratio: float | None
    """Of the time of steps, in splits; `fused_ratio` in fused steps."""
    fused_ratio: float | None
    prefill_sms: float | None
    """Means over the time in splits."""
    decode_sms: float | None
    prefill_busy_ratio: float | None
    """Of all SM time, idle included."""
    decode_busy_ratio: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How one tenant's targets were met over some time."""

    ttft: ViolationCounts
    tbt: ViolationCounts
    ttft_ms: Spread
    tbt_gap_ms: Spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Some time before a change, or since."""

    length_s: float
    sms: SmUse
    tenants: Mapping[str, Standing]


class Tally:
    """One tenant's requests that ended since."""

    def __init__(self) -> None:
        self.ttft = [0, 0]
        self.tbt = [0, 0, 0]
        self.ttft_counts: array[int] = array("L", bytes(8 * BUCKETS))
        self.gap_counts: array[int] = array("L", bytes(8 * BUCKETS))

    def add(self, judged: JudgedRequest) -> None:
        if judged.ttft_s is not None:
            self.ttft_counts[bucket_of(judged.ttft_s)] += 1
        if judged.ttft_missed is not None:
            self.ttft[0] += 1
            self.ttft[1] += judged.ttft_missed
        if judged.gap_max_s is not None:
            for bucket, count in judged.gap_counts:
                self.gap_counts[min(max(bucket, 0), BUCKETS - 1)] += count
            self.tbt[0] += 1
            self.tbt[1] += judged.gaps
            self.tbt[2] += judged.gaps_missed

    def standing(self, waiting: OpenCounts) -> Standing:
        """The standing with what is open now."""
        judged, missed = self.ttft[0] + waiting.judged, self.ttft[1] + waiting.missed
        return Standing(
            ttft=ViolationCounts(requests=judged, judged=judged, missed=missed),
            tbt=ViolationCounts(requests=self.tbt[0], judged=self.tbt[1], missed=self.tbt[2]),
            ttft_ms=spread_of(self.ttft_counts),
            tbt_gap_ms=spread_of(self.gap_counts),
        )


def of_iteration(record: IterationRecord) -> Counts:
    """What a step adds."""
    if record.reason == Reason.PREFILL_FINISHED:
        return {}  # counted with the steps that it ran beside
    us = round(1e6 * max(0.0, record.measured_step_s))
    if record.mode == Mode.FUSED:
        return {_STEP_US: us, _FUSED_US: us}
    if record.prefill_sms and record.decode_sms and record.mode != Mode.DECODE:
        sms = {_PREFILL_SM_US: us * record.prefill_sms, _DECODE_SM_US: us * record.decode_sms}
        return {_STEP_US: us, _SPLIT_US: us} | sms
    return {_STEP_US: us}


def of_busy(span_s: float, *, prefill_ratio: float, decode_ratio: float) -> Counts:
    """What the SMs were busy with over the last `span_s` seconds."""
    us = round(1e6 * span_s)
    prefill_us, decode_us = (round(us * max(0.0, ratio)) for ratio in (prefill_ratio, decode_ratio))
    return {_SPAN_US: us, _PREFILL_US: prefill_us, _DECODE_US: decode_us}


def sm_use(sums: Sequence[int]) -> SmUse:
    """The use from sums by column."""

    def share(column: int, of: int) -> float | None:
        return round(sums[column] / sums[of], 6) if sums[of] else None

    return SmUse(
        split_ratio=share(_SPLIT_US, _STEP_US),
        fused_ratio=share(_FUSED_US, _STEP_US),
        prefill_sms=share(_PREFILL_SM_US, _SPLIT_US),
        decode_sms=share(_DECODE_SM_US, _SPLIT_US),
        prefill_busy_ratio=share(_PREFILL_US, _SPAN_US),
        decode_busy_ratio=share(_DECODE_US, _SPAN_US),
    )


def of_last_minute(
    tenants: Mapping[str, Attainment],
    waiting: Mapping[str, OpenCounts],
    now_s: float,
    found: dict[str, Standing],
) -> Iterator[None]:
    """Put those of the tenants that had traffic into `found`, the busiest first.

    Pauses after each tenant that it has looked at, which took some 30 us, and after many that it passed over.
    """
    active = []
    for number, (name, attainment) in enumerate(tuple(tenants.items()), start=1):
        if now_s - attainment.last_s <= MINUTE_S or name in waiting:
            active.append(name)
        if number % PASSED_AT_ONCE == 0:
            yield
    counted = []
    for name in active:
        if (known := tenants.get(name)) is not None:  # not deleted since
            ttft, tbt, *_ = known.violations(now_s, MINUTE_S, waiting.get(name, NOTHING_OPEN))
            if ttft.judged or tbt.judged:
                counted.append((ttft.judged, name, ttft, tbt, known))
        yield
    counted.sort(key=lambda each: each[:2], reverse=True)
    for _, name, ttft, tbt, known in counted[:MAX_TENANTS]:
        found[name] = Standing(
            ttft=ttft, tbt=tbt, ttft_ms=known.ttft(now_s), tbt_gap_ms=known.tbt_gaps(now_s)
        )
        yield
