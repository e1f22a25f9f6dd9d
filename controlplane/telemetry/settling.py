"""Brings together what engine and gateway say of a request, in whichever order they are done with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pdmuxd.controlplane.events.outcomes import Outcome, outcome_of_record
from pdmuxd.controlplane.telemetry.batches import parent_of, together
from pdmuxd.controlplane.telemetry.judged import Delivered, JudgedRequest, judge
from pdmuxd.controlplane.telemetry.waiting import OpenRequests
from pdmuxd.controlplane.tenants.records import TenantRecord
from pdmuxd.engine.core.slo import Slo
from pdmuxd.engine.link.messages import RequestRecord

RECORD_WITHIN_S = 5.0
"""After its answer a request's record takes milliseconds; later there was no engine to send one."""
_LOST = frozenset({499, 502, 504})
"""The client left, the engine was lost, or no answer began in time: whoever waited was not served."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answered:
    at_s: float
    delivered: Delivered | None
    waited_s: float
    instead: RequestRecord | None
    """What is judged if no record comes; None if there is nothing to judge."""
    answers: int
    outcome: Outcome | None
    """What the gateway said; None if the engine's record tells."""

    def judged(self, record: RequestRecord) -> JudgedRequest:
        """The request, with the engine's word on it."""
        outcome = outcome_of_record(record) if self.outcome is None else None
        return judge(record, self.delivered, waited_s=self.waited_s, outcome=outcome)


class Settling:
    """Requests that one of the two is done with. Bounded by those in flight, and those of some seconds."""

    def __init__(self, open_requests: OpenRequests) -> None:
        self._open = open_requests
        self._records: dict[str, RequestRecord] = {}
        self._answered: dict[str, _Answered] = {}
        self._parts: dict[str, list[RequestRecord]] = {}
        """By request of several answers, the records that came."""

    def on_record(self, record: RequestRecord) -> Iterator[JudgedRequest]:
        """The engine is done; yields the request if the gateway is too, or never knew of it."""
        answers = self._answers_of(parent := parent_of(record.request_id))
        if answers > 1:
            parts = self._parts.setdefault(parent, [])
            parts.append(record)
            if len(parts) < answers:
                return
            record = together(parent, self._parts.pop(parent))
        if self._open.find(record.request_id) is not None:
            self._records[record.request_id] = record
            return
        answered = self._answered.pop(record.request_id, None)
        if answered is None:
            yield judge(record, outcome=outcome_of_record(record))
        else:
            yield answered.judged(record)

    def on_answered(
        self,
        request_id: str,
        *,
        status: int,
        delivered: Delivered | None,
        outcome: Outcome | None,
        tenants: Mapping[str, TenantRecord],
        now_s: float,
    ) -> Iterator[JudgedRequest]:
        """The gateway is done; yields the request if the engine is as well. With `outcome` the gateway knows
        how it ended, and has counted that."""
        request = self._open.end(request_id)
        if request is None:
            return
        waited_s = now_s - request.arrived_s
        record = self._records.pop(request_id, None)
        if record is not None:
            told = outcome_of_record(record) if outcome is None else None
            yield judge(record, delivered, waited_s=waited_s, outcome=told)
            return
        tenant, instead = tenants.get(request.tenant), None
        # Records of several choices have ids of their own in SGLang, and are judged by themselves.
        is_told = request.answers > 1 and request_id not in self._parts
        if tenant is not None and (status in _LOST or (status < 400 and not is_told)):
            target_s = self._open.target_s(request, tenant)
            slo = self._open.slo_of(request, tenant)
            instead = _without_record(request_id, tenant, slo, ttft_target_s=target_s)
        self._answered[request_id] = _Answered(
            at_s=now_s,
            delivered=delivered,
            waited_s=waited_s,
            instead=instead,
            answers=request.answers,
            outcome=outcome,
        )

    def _answers_of(self, request_id: str) -> int:
        found = self._open.find(request_id) or self._answered.get(request_id)
        return 0 if found is None else found.answers

    def overdue(self, now_s: float) -> Iterator[JudgedRequest]:
        """Requests for which no record came."""
        for request_id, answered in list(self._answered.items()):
            if now_s - answered.at_s < RECORD_WITHIN_S:
                return  # they stand in the order in which they were answered
            del self._answered[request_id]
            parts = self._parts.pop(request_id, None)
            if parts:
                yield answered.judged(together(request_id, parts))
            elif answered.instead is not None:
                # The gateway passed a whole answer on, whatever became of the engine's record.
                outcome = Outcome.FINISHED if answered.outcome is None else None
                waited_s = answered.waited_s
                yield judge(answered.instead, answered.delivered, waited_s=waited_s, outcome=outcome)


def _without_record(
    request_id: str, tenant: TenantRecord, slo: Slo, *, ttft_target_s: float
) -> RequestRecord:
    """The end of a request that no engine reports: nothing was made, as far as is known."""
    return RequestRecord(
        request_id=request_id,
        tenant=tenant.name,
        outcome="failed",
        new_tokens=0,
        reused_tokens=0,
        output_tokens=0,
        queue_s=None,
        ttft_s=None,
        ttft_target_s=ttft_target_s,
        tbt_target_s=slo.tbt_s,
        e2e_target_s=slo.e2e_s,
        tbt_max_s=None,
        tbt_p99_s=None,
        tbt_gaps=0,
        tbt_gaps_met=0,
        retractions=0,
        slo_version=tenant.slo_version,
    )
