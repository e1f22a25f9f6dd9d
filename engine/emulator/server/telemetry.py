"""What the engine process tells the daemon: who it is, how it fares, and how each request and step went."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable

import msgspec
import numpy as np

from pdmuxd.engine.core.quantiles import nearest_rank
from pdmuxd.engine.emulator.engine import EmulatedEngine
from pdmuxd.engine.emulator.graphs import captured_sizes
from pdmuxd.engine.emulator.requests import EmulatedRequest, Phase
from pdmuxd.engine.link.durations import counted
from pdmuxd.engine.link.messages import LINK_PROTOCOL, EngineStats, Hello, RequestRecord
from pdmuxd.engine.link.socket import EngineEnd
from pdmuxd.engine.loop.records import tenant_queues

STATS_EVERY_S = 0.1
RECORDS_EVERY_S = 0.05
MAX_RECORDS_AT_ONCE = 500
"""Per RECORDS_EVERY_S: ten steps per millisecond, far more than a real engine takes."""

_ROUNDING_S = 1e-9
"""Sums of step times may exceed a target by rounding alone."""


class Reporter:
    """Sends telemetry; whatever is lost on the way is counted in the next `EngineStats`."""

    def __init__(self, engine: EmulatedEngine, link: EngineEnd, catch_up: Callable[[], None]) -> None:
        self._engine = engine
        self._catch_up = catch_up
        self._link = link
        self._skipped_records = 0
        self._last = engine.counters()

    @property
    def dropped_records(self) -> int:
        """Records lost since the start, because the queue was full or too many came at once."""
        return self._link.dropped + self._engine.dropped_records + self._skipped_records

    async def run(self) -> None:
        while True:
            for _ in range(round(STATS_EVERY_S / RECORDS_EVERY_S)):
                self.send_steps()
                await asyncio.sleep(RECORDS_EVERY_S)
            self.send_stats()

    def send_request(self, request: EmulatedRequest) -> None:
        self._link.send(request_record(self._engine, request))

    def send_steps(self) -> None:
        """Report the steps since the last call; of too many, the latest."""
        records = self._engine.drain_records()
        self._skipped_records += max(0, len(records) - MAX_RECORDS_AT_ONCE)
        for record in records[-MAX_RECORDS_AT_ONCE:]:
            self._link.send(record)

    def send_stats(self) -> None:
        self._catch_up()
        now, last = self._engine.counters(), self._last
        self._last = now
        sm_s = (now.elapsed_s - last.elapsed_s) * self._engine.profile.device.total_sms

        def busy(now_sm_s: float, last_sm_s: float) -> float:
            return min(1.0, max(0.0, (now_sm_s - last_sm_s) / sm_s)) if sm_s > 0 else 0.0

        self._link.send(
            EngineStats(
                uptime_s=now.elapsed_s,
                settings_version=now.settings_version,
                policy=now.policy,
                running=now.running,
                waiting=now.waiting,
                prefilling=now.prefilling,
                kv_used_tokens=now.kv_used_tokens,
                kv_capacity_tokens=now.kv_capacity_tokens,
                cached_tokens=now.cached_tokens,
                prompt_tokens=now.prompt_tokens,
                reused_tokens=now.reused_tokens,
                output_tokens=now.output_tokens,
                steps=now.steps,
                stalls=now.stalls,
                host_delays=now.host_delays,
                switches=now.switches,
                preemptions=now.preemptions,
                retractions=now.retractions,
                partition_id=now.partition_id,
                prefill_sms=now.prefill_sms,
                decode_sms=now.decode_sms,
                sm_busy_prefill_ratio=busy(now.busy_prefill_sm_s, last.busy_prefill_sm_s),
                sm_busy_decode_ratio=busy(now.busy_decode_sm_s, last.busy_decode_sm_s),
                dropped_records=self.dropped_records,
                profile_id=self._engine.profile_id,
                shadow=self._engine.shadow_counts(),
                hidden=self._engine.hidden(),
            )
        )
        self._link.send(tenant_queues(self._engine.awaiting_first_token(), now.elapsed_s))


def hello(engine: EmulatedEngine, *, model: str, version: str) -> Hello:
    """How the engine introduces itself."""
    profile = engine.profile
    return Hello(
        protocol=LINK_PROTOCOL,
        engine="emulator",
        engine_version=version,
        pid=os.getpid(),
        model=model,
        device=profile.device.name,
        total_sms=profile.device.total_sms,
        partitions=partitions(engine),
        profile=profile.name,
        profile_provenance=profile.provenance,
        settings_version=0,
        model_shape=profile.model,
        model_hash=hashlib.sha256(msgspec.json.encode(profile.model)).hexdigest(),
        device_shape=profile.device,
        overheads=profile.overheads,
        tensor_parallel=profile.tensor_parallel,
        kv_capacity_tokens=profile.kv_capacity_tokens,
        vocab_size=profile.model.vocab,
        max_context_tokens=profile.model.max_context_tokens,
        max_prefill_tokens=engine.max_prefill_tokens,
        max_decode_bs=engine.max_decode_bs,
        max_whole_tokens=engine.limits.max_whole_tokens,
        waiting_window=engine.limits.waiting_window,
        max_set_aside=engine.limits.max_set_aside,
        least_slice_tokens=engine.limits.least_slice_tokens,
        captured_decode_bs=captured_sizes(engine.max_decode_bs),
        fused_tile_rows=profile.fused_tile_rows,
        can_measure=True,
    )


def partitions(engine: EmulatedEngine) -> tuple[tuple[int, int], ...]:
    """(prefill SMs, decode SMs) of each group."""
    return tuple((group.prefill_sms, group.decode_sms) for group in engine.table.groups)


def request_record(engine: EmulatedEngine, request: EmulatedRequest) -> RequestRecord:
    """The record of an ended request. Targets are those in force at its end; one token has no gaps."""
    gaps_s = np.diff(engine.step_times(request))
    has_gaps = len(gaps_s) > 0
    return RequestRecord(
        request_id=request.request_id,
        tenant=request.tenant,
        outcome=request.phase.value,
        cause=request.refusal_cause or "",
        new_tokens=request.input_tokens - request.reused_tokens,
        reused_tokens=request.reused_tokens,
        output_tokens=request.produced_tokens,
        queue_s=_since_arrival(request, request.prefill_start_s),
        ttft_s=_since_arrival(request, request.first_token_s),
        ttft_target_s=request.ttft_target_s,
        tbt_target_s=request.tbt_target_s,
        tbt_max_s=float(gaps_s.max()) if has_gaps else None,
        tbt_p99_s=nearest_rank(gaps_s.tolist(), 0.99),
        tbt_gaps=len(gaps_s),
        tbt_gaps_met=int(np.count_nonzero(gaps_s <= request.tbt_target_s + _ROUNDING_S)),
        retractions=request.retractions,
        slo_version=request.slo_version,
        tbt_counts=counted(np.sort(gaps_s).tolist()),
        decode_s=float(gaps_s.sum()),
        e2e_s=_since_arrival(request, request.end_s) if request.phase is Phase.FINISHED else None,
        e2e_target_s=request.e2e_target_s,
    )


def _since_arrival(request: EmulatedRequest, instant_s: float | None) -> float | None:
    return None if instant_s is None else instant_s - request.arrival_s
