"""The engine's end of the link: settings and measurements in, telemetry out, nothing that blocks."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from pdmuxd.engine.core.errors import EngineInvariantError, LinkError
from pdmuxd.engine.link.measuring import Measure, Measured
from pdmuxd.engine.link.messages import (
    EngineSettings,
    EngineStats,
    RequestRecord,
    ToEngine,
)
from pdmuxd.engine.link.socket import EngineEnd
from pdmuxd.engine.loop.decode import Step, StepTiming
from pdmuxd.engine.loop.loop import EngineLoop
from pdmuxd.engine.loop.prefill import LayerwiseBatch
from pdmuxd.engine.loop.records import prefill_record, step_record, tenant_queues
from pdmuxd.engine.sglang.gauges import GpuGauges

STATS_EVERY_S = 0.1
LISTEN_IDLE_S = 0.005
LISTEN_BUSY_S = 0.1
"""What the daemon sent, such as an SLO edit, waits at most so long until the loop looks for it. Looking takes
a good part of the time that a turn may cost, so a busy loop looks rarely. Telemetry and the heartbeat go out
with each look."""

_log = logging.getLogger(__name__)

Measurer = Callable[[Measure], Measured]


@dataclass(slots=True)
class _Totals:
    at_s: float = 0.0
    prefill_sm_s: float = 0.0
    decode_sm_s: float = 0.0


class Reporter:
    """Talks to the daemon from inside the loop; without a link it does nothing."""

    def __init__(
        self,
        link: EngineEnd | None,
        measure: Measurer | None = None,
        gauges: GpuGauges | None = None,
        poll: Callable[[], None] | None = None,
    ) -> None:
        """`poll` is called with each heartbeat."""
        self._link = link
        self._measure = measure
        self._gauges = gauges or GpuGauges(None)
        self._poll = poll
        self._asked: deque[Measure] = deque()
        self._listened_s = 0.0
        self._reported = _Totals()

    def send_request(self, record: RequestRecord) -> None:
        if self._link is not None:
            self._link.post(record)

    def send_step(self, step: Step, timing: StepTiming, *, number: int, now_s: float) -> None:
        if self._link is not None:
            self._link.post(step_record(step, number=number, now_s=now_s, timing=timing))

    def send_prefill(self, batch: LayerwiseBatch, *, number: int, now_s: float) -> None:
        if self._link is not None:
            self._link.post(prefill_record(batch, number=number, now_s=now_s))

    def exchange(self, loop: EngineLoop) -> None:
        """Take what the daemon sent and send a heartbeat, each when it is due."""
        if self._link is None:
            return
        now_s = loop.now_s()
        if now_s - self._reported.at_s >= STATS_EVERY_S:
            self._link.post(self._stats(self._link, loop, now_s))
            if self._poll is not None:
                self._poll()
            self._link.post(tenant_queues(loop.ledger.awaiting_first_token(), now_s))
        if now_s - self._listened_s >= (LISTEN_BUSY_S if loop.is_busy else LISTEN_IDLE_S):
            self._listened_s = now_s
            self._listen(self._link, loop)

    def next_point(self, loop: EngineLoop) -> Measure | None:
        """What the daemon wants measured, if this turn can measure it; otherwise that is answered here."""
        while self._asked:
            point = self._asked.popleft()
            refusal = self._refusal(loop)
            if refusal is None:
                return point
            self._answer(Measured(point_id=point.point_id, error=refusal))
        return None

    def measure(self, point: Measure) -> None:
        """Measure on every rank; the one that asked for it answers."""
        if self._measure is None:
            raise EngineInvariantError("rank 0 wants a point measured, and this rank cannot measure")
        self._answer(self._measure(point))

    def _answer(self, measured: Measured) -> None:
        if self._link is not None:
            self._link.send(measured)

    def _listen(self, link: EngineEnd, loop: EngineLoop) -> None:
        while True:
            try:
                message: ToEngine | None = link.receive()
            except LinkError as error:
                _log.warning("link: %s", error)
                continue
            match message:
                case None:
                    return
                case EngineSettings():
                    link.send(loop.policy_runtime.apply(message, loop.ledger))
                case Measure():
                    self._asked.append(message)

    def _refusal(self, loop: EngineLoop) -> str | None:
        if self._measure is None:
            return "this engine does not measure"
        if loop.is_busy or len(loop.ledger):
            return "the engine is serving; it measures while idle"
        return None

    def _stats(self, link: EngineEnd, loop: EngineLoop, now_s: float) -> EngineStats:
        counters = loop.counters()
        last, self._reported = (
            self._reported,
            _Totals(now_s, counters.busy_prefill_sm_s, counters.busy_decode_sm_s),
        )
        sm_s = (now_s - last.at_s) * counters.total_sms

        def ratio(busy_sm_s: float) -> float:
            return min(1.0, max(0.0, busy_sm_s / sm_s)) if sm_s > 0 else 0.0

        return EngineStats(
            uptime_s=now_s,
            settings_version=loop.policy_runtime.settings_version,
            policy=loop.policy_runtime.policy.name,
            running=counters.running,
            waiting=counters.waiting,
            prefilling=counters.prefilling,
            kv_used_tokens=counters.kv_capacity_tokens - counters.kv_free_tokens,
            kv_capacity_tokens=counters.kv_capacity_tokens,
            cached_tokens=counters.cached_tokens,
            prompt_tokens=loop.ledger.prompt_tokens,
            reused_tokens=loop.ledger.reused_prompt_tokens,
            output_tokens=loop.ledger.output_tokens,
            steps=counters.steps,
            stalls=counters.stalls,
            host_delays=counters.host_delays,
            switches=counters.switches,
            preemptions=counters.preemptions,
            retractions=loop.ledger.retractions,
            partition_id=counters.partition_id,
            prefill_sms=counters.prefill_sms,
            decode_sms=counters.decode_sms,
            sm_busy_prefill_ratio=ratio(counters.busy_prefill_sm_s - last.prefill_sm_s),
            sm_busy_decode_ratio=ratio(counters.busy_decode_sm_s - last.decode_sm_s),
            dropped_records=link.dropped,
            profile_id=loop.policy_runtime.profile_id,
            gpu_clock_mhz=self._gauges.newest.clock_mhz,
            gpu_power_w=self._gauges.newest.power_w,
            shadow=loop.policy_runtime.shadow_counts(),
            hidden=loop.hidden(),
        )
