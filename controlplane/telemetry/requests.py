"""Requests in flight and the latest that ended: what the gateway saw, what the engine says of them."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from pdmuxd.controlplane.events.outcomes import Outcome, outcome_of_record
from pdmuxd.controlplane.telemetry.decisions import Decisions, SeenDecision
from pdmuxd.controlplane.telemetry.judged import Delivered
from pdmuxd.controlplane.telemetry.slo_violations import (
    SloViolation,
    find_late_delivery,
    find_not_served,
    find_silence,
    find_unserved,
    find_violations,
    is_prefill_slow,
)
from pdmuxd.engine.link.messages import RequestRecord

KEPT = 2000
REFUSED_KEPT = 500
"""Of requests that were refused before they were let in: a flood of them is not to push out the others."""
_LOOKED_AT = 2000
"""Decisions that are searched for the cause of a miss: those of the last 20 s or so of its decode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLifecycle:
    """One request; instants are Unix time. `path` and `status` are the gateway's, `record` the engine's."""

    request_id: str
    tenant: str
    path: str | None = None
    key_id: str = ""
    status: int | None = None
    arrived_s: float | None = None
    ended_s: float | None = None
    record: RequestRecord | None = None
    delivered: Delivered | None = None
    """What its client saw, of a streamed answer with one choice."""
    violations: tuple[SloViolation, ...] = ()
    told: Outcome | None = None
    """How it ended, where the gateway knows that without the engine's record."""
    error: str = ""
    """The code of the error that the gateway answered with; empty if it did not."""

    @property
    def outcome(self) -> Outcome | None:
        """How it ended; None while it is in flight."""
        if self.told is not None:
            return self.told
        if self.record is not None:
            return outcome_of_record(self.record)
        return None if self.ended_s is None else Outcome.FINISHED


class RequestHistory:
    """Bounded: those in flight are as many as admission allows, of the ended the last 2,000 are kept.

    Written in one thread; `ended`, `in_flight` and `find` may be called in any.
    """

    def __init__(
        self,
        decisions: Decisions,
        *,
        kept: int = KEPT,
        silent_s: Callable[[float, float], float] = lambda *_: 0.0,
    ) -> None:
        self._decisions = decisions
        self._silent_s = silent_s
        self.kept = kept
        self._open: dict[str, RequestLifecycle] = {}
        self._ended: OrderedDict[str, RequestLifecycle] = OrderedDict()
        self._refused: deque[RequestLifecycle] = deque(maxlen=REFUSED_KEPT)

    def on_begin(self, request_id: str, *, tenant: str, path: str, now_s: float, key_id: str = "") -> None:
        lifecycle = RequestLifecycle(
            request_id=request_id, tenant=tenant, path=path, key_id=key_id, arrived_s=now_s
        )
        self._open[request_id] = lifecycle

    def on_answered(
        self,
        request_id: str,
        *,
        status: int,
        now_s: float,
        delivered: Delivered | None = None,
        told: Outcome | None = None,
        error: str = "",
    ) -> None:
        lifecycle = self._open.pop(request_id, None) or self._ended.get(request_id)
        if lifecycle is not None:
            ended_s = lifecycle.ended_s or now_s
            lifecycle = replace(
                lifecycle, status=status, ended_s=ended_s, delivered=delivered, told=told, error=error
            )
            self._keep(self._explained(_with_gateways_word(lifecycle)))

    def on_refused(
        self, request_id: str, *, tenant: str, path: str, status: int, told: Outcome, error: str, now_s: float
    ) -> None:
        """The gateway did not let a request in."""
        lifecycle = RequestLifecycle(
            request_id=request_id,
            tenant=tenant,
            path=path,
            status=status,
            arrived_s=now_s,
            ended_s=now_s,
            told=told,
            error=error,
        )
        self._refused.append(_with_gateways_word(lifecycle))

    def on_record(self, record: RequestRecord, now_s: float) -> RequestLifecycle:
        """The engine has reported its end; that may come before the answer or after it."""
        lifecycle = self._open.get(record.request_id) or self._ended.get(record.request_id)
        if lifecycle is None:
            lifecycle = RequestLifecycle(request_id=record.request_id, tenant=record.tenant)
        lifecycle = replace(lifecycle, record=record, ended_s=now_s)
        prefilling = self._while_prefilling(lifecycle)
        violations = find_violations(record, prefilling, self._while_decoding(lifecycle, now_s))
        lifecycle = self._explained(_with_gateways_word(replace(lifecycle, violations=violations)))
        if record.request_id in self._open:
            self._open[record.request_id] = lifecycle
        self._keep(lifecycle)
        return lifecycle

    def ended(self) -> tuple[RequestLifecycle, ...]:
        """The latest that ended of those that were let in, oldest first."""
        return tuple(self._ended.values())

    def over(self) -> list[RequestLifecycle]:
        """The same with the latest that were not let in, oldest first."""
        both = (*self._ended.values(), *tuple(self._refused))
        return sorted(both, key=lambda one: one.ended_s or 0.0)

    def in_flight(self) -> tuple[RequestLifecycle, ...]:
        """Requests that are not answered yet, oldest first."""
        return tuple(lifecycle for lifecycle in tuple(self._open.values()) if lifecycle.record is None)

    def find(self, request_id: str) -> RequestLifecycle | None:
        found = self._ended.get(request_id) or self._open.get(request_id)
        return found or next((one for one in tuple(self._refused) if one.request_id == request_id), None)

    def knows(self, request_id: str) -> bool:
        return request_id in self._open or request_id in self._ended

    def _explained(self, lifecycle: RequestLifecycle) -> RequestLifecycle:
        """Add what an engine that stood still explains."""
        arrived_s, ended_s, record = lifecycle.arrived_s, lifecycle.ended_s, lifecycle.record
        if not lifecycle.violations or arrived_s is None or ended_s is None:
            return lifecycle
        seen = [each.ttft_s for each in (record, lifecycle.delivered) if each is not None]
        first_s = max((each for each in seen if each is not None), default=None)
        found = find_silence(
            lifecycle.violations,
            self._silent_s,
            arrived_s=arrived_s,
            first_s=None if first_s is None else arrived_s + first_s,
            ended_s=ended_s,
        )
        return lifecycle if found == lifecycle.violations else replace(lifecycle, violations=found)

    def _while_prefilling(self, lifecycle: RequestLifecycle) -> tuple[SeenDecision, ...]:
        record, arrived_s = lifecycle.record, lifecycle.arrived_s
        if record is None or arrived_s is None or record.ttft_s is None or not is_prefill_slow(record):
            return ()
        start_s, end_s = arrived_s + (record.queue_s or 0.0), arrived_s + record.ttft_s
        return tuple(self._decisions.between(start_s, end_s, limit=_LOOKED_AT))

    def _while_decoding(self, lifecycle: RequestLifecycle, now_s: float) -> tuple[SeenDecision, ...]:
        record = lifecycle.record
        if record is None or record.ttft_s is None or record.tbt_gaps_met >= record.tbt_gaps:
            return ()
        # Without the gateway's word on its arrival: all that were looked at.
        start_s = 0.0 if lifecycle.arrived_s is None else lifecycle.arrived_s + record.ttft_s
        return tuple(self._decisions.between(start_s, now_s, limit=_LOOKED_AT))

    def _keep(self, lifecycle: RequestLifecycle) -> None:
        self._ended[lifecycle.request_id] = lifecycle
        self._ended.move_to_end(lifecycle.request_id)
        while len(self._ended) > self.kept:
            self._ended.popitem(last=False)


def _with_gateways_word(lifecycle: RequestLifecycle) -> RequestLifecycle:
    """Add what the gateway's word tells, whether it or the engine's came first."""
    violations = tuple(each for each in lifecycle.violations if each.target != "availability")
    record, waited_s = lifecycle.record, 0.0
    if lifecycle.arrived_s is not None and lifecycle.ended_s is not None:
        waited_s = lifecycle.ended_s - lifecycle.arrived_s
    if record is not None:
        violations += find_late_delivery(record, lifecycle.delivered, violations)
        violations += find_unserved(record, waited_s, violations)
    if lifecycle.outcome is not None:
        violations += find_not_served(
            lifecycle.outcome,
            error=lifecycle.error or ("" if record is None else record.cause),
            waited_s=waited_s,
            has_begun=lifecycle.delivered is not None and lifecycle.delivered.ttft_s is not None,
        )
    return lifecycle if violations == lifecycle.violations else replace(lifecycle, violations=violations)
