"""Requests in flight and the latest that ended: what the gateway saw, what the engine says of them."""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, replace

from pdmuxd.controlplane.telemetry.decisions import Decisions, SeenDecision
from pdmuxd.controlplane.telemetry.misses import Miss, find_misses
from pdmuxd.engine.link.messages import RequestRecord

KEPT = 2000
_LOOKED_AT = 2000
"""Decisions that are searched for the cause of a miss: those of the last 20 s or so of its decode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLife:
    """One request; instants are Unix time. `path` and `status` are the gateway's, `record` the engine's."""

    request_id: str
    tenant: str
    path: str | None = None
    status: int | None = None
    arrived_s: float | None = None
    ended_s: float | None = None
    record: RequestRecord | None = None
    misses: tuple[Miss, ...] = ()


class RequestLives:
    """Bounded: those in flight are as many as admission allows, of the ended the last 2,000 are kept.

    Written in one thread; `ended`, `in_flight` and `find` may be called in any.
    """

    def __init__(self, decisions: Decisions, *, kept: int = KEPT) -> None:
        self._decisions = decisions
        self.kept = kept
        self._silent: dict[str, str] = {}
        """Tenants of the requests in flight that have had no byte of an answer, by request."""
        self._open: dict[str, RequestLife] = {}
        self._ended: OrderedDict[str, RequestLife] = OrderedDict()

    def on_begin(self, request_id: str, *, tenant: str, path: str, now_s: float) -> None:
        """The gateway has let a request in."""
        life = RequestLife(request_id=request_id, tenant=tenant, path=path, arrived_s=now_s)
        self._open[request_id] = life
        self._silent[request_id] = tenant

    def on_first_byte(self, request_id: str) -> None:
        """The engine's answer began to arrive."""
        self._silent.pop(request_id, None)

    def waiting(self) -> Counter[str]:
        """Per tenant, requests in flight that have had no byte of an answer."""
        return Counter(self._silent.values())

    def on_answered(self, request_id: str, *, status: int, now_s: float) -> None:
        """The gateway has answered it, or given it up."""
        self._silent.pop(request_id, None)
        life = self._open.pop(request_id, None) or self._ended.get(request_id)
        if life is not None:
            self._keep(replace(life, status=status, ended_s=life.ended_s or now_s))

    def on_record(self, record: RequestRecord, now_s: float) -> RequestLife:
        """The engine has reported its end; that may come before the answer or after it."""
        life = self._open.get(record.request_id) or self._ended.get(record.request_id)
        if life is None:
            life = RequestLife(request_id=record.request_id, tenant=record.tenant)
        life = replace(life, record=record, ended_s=now_s)
        life = replace(life, misses=find_misses(record, self._while_decoding(life, now_s)))
        if record.request_id in self._open:
            self._open[record.request_id] = life
        self._keep(life)
        return life

    def ended(self) -> tuple[RequestLife, ...]:
        """The latest that ended, oldest first."""
        return tuple(self._ended.values())

    def in_flight(self) -> tuple[RequestLife, ...]:
        """Those that are not answered yet, oldest first."""
        return tuple(life for life in tuple(self._open.values()) if life.record is None)

    def find(self, request_id: str) -> RequestLife | None:
        """One by its id."""
        return self._ended.get(request_id) or self._open.get(request_id)

    def _while_decoding(self, life: RequestLife, now_s: float) -> tuple[SeenDecision, ...]:
        record = life.record
        if record is None or record.ttft_s is None or record.tbt_gaps_met >= record.tbt_gaps:
            return ()
        # Without the gateway's word on its arrival: all that were looked at.
        start_s = 0.0 if life.arrived_s is None else life.arrived_s + record.ttft_s
        return tuple(self._decisions.between(start_s, now_s, limit=_LOOKED_AT))

    def _keep(self, life: RequestLife) -> None:
        self._ended[life.request_id] = life
        self._ended.move_to_end(life.request_id)
        while len(self._ended) > self.kept:
            self._ended.popitem(last=False)
