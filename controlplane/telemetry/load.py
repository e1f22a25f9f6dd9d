"""The engine's last words on its load, and how fast its counters grow."""

from __future__ import annotations

from collections import deque

from pdmuxd.controlplane.events.messages import EngineLoad, Totals
from pdmuxd.controlplane.milliseconds import to_ms
from pdmuxd.controlplane.node.engine_status import EngineStatus
from pdmuxd.controlplane.telemetry.decisions import SeenDecision
from pdmuxd.engine.link.messages import EngineStats

_MINUTE_S = 60.0
_RATE_S = 1.0
_KEPT_EVERY_S = 0.09
"""Heartbeats closer together than this are not all kept: what matters is their span."""


class EngineCounters:
    """Heartbeats of the last minute, as (seconds, heartbeat); forgotten when a new engine starts."""

    def __init__(self) -> None:
        self.heard_s: float | None = None
        """When the engine last said anything."""
        self._heartbeats: deque[tuple[float, EngineStats]] = deque(maxlen=700)

    def forget(self) -> None:
        """Another engine counts from 0."""
        self._heartbeats.clear()
        self.heard_s = None

    def add(self, stats: EngineStats, now_s: float) -> None:
        if len(self._heartbeats) > 1 and now_s - self._heartbeats[-2][0] < _KEPT_EVERY_S:
            self._heartbeats.pop()
        self._heartbeats.append((now_s, stats))
        while now_s - self._heartbeats[0][0] > _MINUTE_S:
            self._heartbeats.popleft()

    def per_s(self, name: str) -> float | None:
        """How fast a counter grew over the last second."""
        if len(self._heartbeats) < 2:
            return None
        last_s, last = self._heartbeats[-1]
        first_s, first = self._heartbeats[0]
        for then_s, then in reversed(self._heartbeats):
            first_s, first = then_s, then
            if last_s - then_s >= _RATE_S:
                break
        grown: float = getattr(last, name) - getattr(first, name)
        return round(grown / (last_s - first_s), 3) if last_s > first_s else None

    def cache_hit_ratio(self) -> float | None:
        """Reused over all prompt tokens, of the last minute; None without prompts."""
        if not self._heartbeats:
            return None
        first, last = self._heartbeats[0][1], self._heartbeats[-1][1]
        prompts = last.prompt_tokens - first.prompt_tokens
        return round((last.reused_tokens - first.reused_tokens) / prompts, 4) if prompts > 0 else None

    def load(self, status: EngineStatus, latest: SeenDecision | None, now_s: float) -> EngineLoad:
        """The load as it is shown; all null while no engine serves."""
        stats = status.stats
        if stats is None or status.state not in ("serving", "draining"):
            return EngineLoad()
        # The split is of the decision whose reason is told; the heartbeat's may be of another, a step ago.
        split = latest.record if latest else stats
        return EngineLoad(
            engine_age_ms=None if self.heard_s is None else to_ms(round(max(0.0, now_s - self.heard_s), 4)),
            policy=stats.policy,
            uptime_ms=to_ms(stats.uptime_s),
            partition_id=split.partition_id,
            prefill_sms=split.prefill_sms,
            decode_sms=split.decode_sms,
            total_sms=status.hello.total_sms if status.hello else None,
            mode=latest.record.mode if latest else None,
            reason=latest.record.reason if latest else None,
            sm_busy_prefill_ratio=round(stats.sm_busy_prefill_ratio, 4),
            sm_busy_decode_ratio=round(stats.sm_busy_decode_ratio, 4),
            running=stats.running,
            waiting=stats.waiting,
            prefilling=stats.prefilling,
            kv_used_tokens=stats.kv_used_tokens,
            kv_capacity_tokens=stats.kv_capacity_tokens,
            cached_tokens=stats.cached_tokens,
            cache_hit_ratio=self.cache_hit_ratio(),
            prompt_tokens_per_s=self.per_s("prompt_tokens"),
            output_tokens_per_s=self.per_s("output_tokens"),
            steps_per_s=self.per_s("steps"),
            totals=Totals(**{name: getattr(stats, name) for name in Totals.model_fields}),
        )
