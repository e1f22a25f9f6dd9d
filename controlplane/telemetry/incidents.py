"""Incidents: when a tenant did not get what it is promised, from its first miss to its last.

One begins when the promise is broken over five minutes and over the last half minute, by ENOUGH_MISSED misses
or by all there was. It is over when the last half minute kept the promise, or had nothing to judge: at the
latest some 35 s after the last miss. Misses that begin again within five minutes belong to the same one, so a
tenant near its limit has one incident and not ten (docs/decisions/0064).
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Literal

from pdmuxd.controlplane.events.messages import IncidentEvent
from pdmuxd.controlplane.telemetry.counts import CountWindow
from pdmuxd.controlplane.telemetry.incident_causes import explain, limited_to, steady
from pdmuxd.controlplane.telemetry.open_incident import (
    TARGETS,
    Hurt,
    Limiting,
    Miss,
    OpenIncident,
    Predicted,
    Target,
    cause_of,
    count_miss,
    event_of,
    limiting_of,
)
from pdmuxd.controlplane.telemetry.prompt_work import PromptWork
from pdmuxd.controlplane.telemetry.slo_violations import Cause
from pdmuxd.controlplane.telemetry.waiting import NOTHING_OPEN, OpenCounts

OVER_WINDOW_S = 30.0
REOPEN_S = 300.0
ENOUGH_MISSED = 3
"""Fewer in half a minute may be one client's own bad luck, unless nothing else was judged."""
MOST_OPEN = 200
"""With more, the last to begin are counted and not named."""
MOST_OVER = 500
"""Kept in memory; the database keeps the others."""
TOLD = 20
"""In the event `tenants`, which is sent each second to each client."""
_SLOT_S = 5.0
_MISSES_KEPT = 200


class _Tenant:
    """What is counted of a tenant since a miss."""

    def __init__(self) -> None:
        slots = round(OVER_WINDOW_S / _SLOT_S)
        self.lately = CountWindow(2 * len(TARGETS), slots=slots, slot_s=_SLOT_S)
        self.misses: deque[Miss] = deque(maxlen=_MISSES_KEPT)
        self.incident: OpenIncident | None = None


class Incidents:
    """Fed and asked in one thread. `now_s` must not go back."""

    def __init__(self, *, in_flight: Callable[[], Mapping[str, int]] = dict) -> None:
        self.work = PromptWork()
        self.over_total: Counter[str] = Counter()
        """That were over, by the cause that they were found to have."""
        self.omitted = 0
        """That are not named, since MOST_OPEN are open."""
        self._in_flight = in_flight
        self._tenants: dict[str, _Tenant] = {}
        self._over: OrderedDict[str, IncidentEvent] = OrderedDict()
        self._open: dict[str, None] = {}

    # What happened

    def on_judged(
        self, tenant: str, target: Target, *, judged: int, missed: int, at_s: float, now_s: float
    ) -> None:
        """Requests (or gaps) of a tenant were judged; `at_s` is when they were in time, or missed."""
        found = self._tenants.get(tenant)
        if found is None:
            if not missed:
                return
            found = self._tenants[tenant] = _Tenant()
        column = 2 * TARGETS.index(target)
        found.lately.restore(column, judged, at_s=at_s, now_s=now_s)
        found.lately.restore(column + 1, missed, at_s=at_s, now_s=now_s)

    def on_ended(self, tenant: str, target: Target, judged: int) -> None:
        """So many of a request were judged when it ended: what an incident counts."""
        incident = self._incident(tenant)
        if incident is not None and incident.over_s is None and judged:
            incident.hurt.setdefault(target, Hurt()).judged += judged

    def on_missed(self, tenant: str, miss: Miss) -> None:
        """A request that ended has missed a target, for a cause."""
        found = self._tenants.get(tenant)
        if found is None:
            found = self._tenants[tenant] = _Tenant()
        incident = found.incident
        if incident is None or incident.over_s is not None:
            found.misses.append(miss)
        if incident is not None and miss.at_s >= incident.began_s - OVER_WINDOW_S:
            count_miss(incident, miss)

    def drop(self, tenant: str, now_s: float) -> IncidentEvent | None:
        """The tenant is gone; returns the incident that is over with it."""
        self.work.drop(tenant)
        found = self._tenants.pop(tenant, None)
        if found is None or found.incident is None or found.incident.over_s is not None:
            return None
        self._end(tenant, found.incident, now_s, ended_by="gone")
        return event_of(tenant, found.incident, now_s)

    # How it is

    def names(self) -> Iterator[str]:
        """Tenants that have to be looked at again."""
        return iter(tuple(self._open))

    def look(
        self,
        tenant: str,
        *,
        is_missed: bool,
        promised_ratio: float,
        waiting: Mapping[str, OpenCounts],
        now_s: float,
    ) -> IncidentEvent | None:
        """See how a tenant stands; `is_missed`: its promise is broken over five minutes.

        Returns its incident if that has begun, goes on again or is over since the last look.
        """
        still = waiting.get(tenant, NOTHING_OPEN)
        found = self._tenants.get(tenant)
        if found is None:
            if not (is_missed and still.late):
                return None
            found = self._tenants[tenant] = _Tenant()
        lately = _shares(found, still, now_s)
        broken = {
            target: (judged, missed)
            for target, (judged, missed) in lately.items()
            if missed > (1.0 - promised_ratio) * judged + 1e-9
        }
        incident, has_changed = found.incident, False
        is_enough = any(missed >= ENOUGH_MISSED or missed == judged for judged, missed in broken.values())
        if incident is None or incident.over_s is not None:
            if is_missed and is_enough:
                has_changed = self._begin(tenant, found, promised_ratio, broken, now_s)
            elif not any(missed for _, missed in lately.values()) and self._is_forgotten(found, now_s):
                del self._tenants[tenant]
                return None
            incident = found.incident
        if incident is None or incident.over_s is not None:
            return None
        incident.promised_ratio = promised_ratio
        if still.late:
            incident.last_missed_s = now_s
        for target, (judged, missed) in broken.items():
            hurt = incident.hurt.setdefault(target, Hurt())
            if (kept := 1.0 - missed / judged) < hurt.worst_ratio:
                hurt.worst_ratio, hurt.worst_at_s = kept, now_s
        self._explain(tenant, incident, waiting, now_s)
        if not broken:
            self._end(tenant, incident, now_s, ended_by="recovered")
        return self._told(tenant, now_s) if has_changed or not broken else None

    def open(
        self, now_s: float, *, most: int | None = None, tenant: str | None = None, cause: str | None = None
    ) -> list[IncidentEvent]:
        """Incidents that are open, the worst first."""
        return list(self.each_open(now_s, most=most, tenant=tenant, cause=cause))

    def each_open(
        self, now_s: float, *, most: int | None = None, tenant: str | None = None, cause: str | None = None
    ) -> Iterator[IncidentEvent]:
        """The same one by one, each made when it is asked for: all take some 10 ms."""
        found = [
            (name, incident)
            for name, incident in self._worst_first()
            if tenant in (None, name) and cause in (None, cause_of(incident))
        ]
        for name, incident in found[:most]:
            yield event_of(name, incident, now_s)

    def find(self, incident_id: str, now_s: float) -> IncidentEvent | None:
        """One that is open, or among the last that were over."""
        found = self.of(incident_id.rpartition("-")[0], now_s)
        if found is not None and found.incident_id == incident_id:
            return found
        return self._over.get(incident_id)

    def causes(self) -> dict[str, str]:
        """The likely cause of each that is open, by tenant. May be asked in any thread."""
        found = {name: self._incident(name) for name in tuple(self._open)}
        return {name: cause_of(incident) for name, incident in found.items() if incident is not None}

    def over(self) -> list[IncidentEvent]:
        """The last that were over, newest first."""
        return list(reversed(self._over.values()))

    def told(self, now_s: float) -> tuple[tuple[IncidentEvent, ...], int]:
        """Incidents for the event `tenants`, and how many of these are left out."""
        lately = [one for one in self.over() if now_s - one.last_missed_at.timestamp() <= REOPEN_S]
        worst = self._worst_first()
        open_ = [event_of(name, incident, now_s) for name, incident in worst[:TOLD]]
        left = max(0, len(worst) + len(lately) - TOLD)
        return (*open_, *lately)[:TOLD], left + self.omitted

    def of(self, tenant: str, now_s: float) -> IncidentEvent | None:
        return self._told(tenant, now_s) if tenant in self._open else None

    def limiting(self) -> list[Limiting]:
        """The commands of open ones that limit another tenant, those first of which nothing is predicted."""
        found = []
        for name in self._open:
            incident = self._incident(name)
            if incident is not None and (one := limiting_of(name, incident)) is not None:
                found.append((incident.predicted is not None, one))
        return [one for _, one in sorted(found, key=lambda each: each[0])]

    def predict(self, predicted: Predicted) -> None:
        """Tell what a command is predicted to do, if it is still that incident's."""
        incident = self._incident(predicted.of.tenant)
        if incident is not None and limiting_of(predicted.of.tenant, incident) == predicted.of:
            incident.predicted = predicted
            if predicted.concurrency is not None and incident.explained is not None:
                incident.explained = limited_to(incident.explained, predicted.concurrency)
                of = replace(predicted.of, concurrency=predicted.concurrency)
                incident.predicted = replace(predicted, of=of)

    def restore(self, past: Iterable[IncidentEvent], now_s: float) -> None:
        """Know those that were over lately, before the daemon started."""
        for one in past:
            if one.over_at is not None and now_s - one.last_missed_at.timestamp() <= REOPEN_S:
                self._over[one.incident_id] = one

    def _incident(self, tenant: str) -> OpenIncident | None:
        found = self._tenants.get(tenant)
        return None if found is None else found.incident

    def _worst_first(self) -> list[tuple[str, OpenIncident]]:
        found = [(name, incident) for name in self._open if (incident := self._incident(name)) is not None]
        return sorted(found, key=lambda each: (round(each[1].worst_ratio, 4), each[1].began_s))

    def _is_forgotten(self, found: _Tenant, now_s: float) -> bool:
        incident = found.incident
        return incident is None or now_s - incident.last_missed_s > REOPEN_S

    def _begin(
        self,
        tenant: str,
        found: _Tenant,
        promised_ratio: float,
        broken: Mapping[Target, tuple[int, int]],
        now_s: float,
    ) -> bool:
        """Begin one, or go on with the last; whether that was done."""
        earlier = found.incident
        if earlier is not None and now_s - earlier.last_missed_s <= REOPEN_S:
            self._over.pop(earlier.incident_id, None)
            earlier.over_s = earlier.ended_by = None
            self._open[tenant] = None
            found.misses.clear()
        elif len(self._open) >= MOST_OPEN:
            self.omitted += 1
            return False
        else:
            recent = [miss for miss in found.misses if now_s - miss.at_s <= OVER_WINDOW_S]
            began_s = min((miss.at_s for miss in recent), default=now_s)
            made = OpenIncident(
                incident_id=f"{tenant}-{int(began_s * 1000):x}",
                began_s=began_s,
                last_missed_s=max((miss.at_s for miss in recent), default=now_s),
                promised_ratio=promised_ratio,
            )
            for target, (judged, _) in broken.items():
                # Of first tokens those that were in time are counted when their requests end.
                made.hurt[target] = Hurt(judged=0 if target == "ttft" else judged)
            for miss in recent:
                count_miss(made, miss)
            found.misses.clear()
            found.incident = made
            self._open[tenant] = None
        return True

    def _explain(
        self, tenant: str, incident: OpenIncident, waiting: Mapping[str, OpenCounts], now_s: float
    ) -> None:
        still = waiting.get(tenant, NOTHING_OPEN)
        is_tbt = incident.worst == "tbt"
        ahead = None if is_tbt else self.work.ahead(waiting, now_s)
        before = incident.explained
        found = explain(
            tenant,
            sum(incident.causes.values(), Counter()),
            late_now=0 if is_tbt else still.late,
            ahead=ahead,
            in_flight_ahead=0 if ahead is None else self._in_flight().get(ahead.tenant, 0),
        )
        # Who stands before it is seen best while it waits; later the queue is another's.
        is_less = found.cause in (Cause.UNKNOWN, None if before is None else before.cause)
        if before is not None and before.behind and is_less and not still.late:
            return
        found = steady(before, found)
        if before is None or before.command != found.command:
            incident.predicted = None
        incident.explained = found

    def _end(
        self, tenant: str, incident: OpenIncident, now_s: float, *, ended_by: Literal["recovered", "gone"]
    ) -> None:
        incident.over_s, incident.ended_by = incident.last_missed_s, ended_by
        self.over_total[cause_of(incident)] += 1
        self._open.pop(tenant, None)
        self._over[incident.incident_id] = event_of(tenant, incident, now_s)
        while len(self._over) > MOST_OVER:
            self._over.popitem(last=False)

    def _told(self, tenant: str, now_s: float) -> IncidentEvent | None:
        incident = self._incident(tenant)
        return None if incident is None else event_of(tenant, incident, now_s)


def _shares(found: _Tenant, still: OpenCounts, now_s: float) -> dict[Target, tuple[int, int]]:
    """What the last half minute judged and missed, by target, the late that wait included."""
    sums = found.lately.sums(now_s)
    lately = {target: (sums[2 * at], sums[2 * at + 1]) for at, target in enumerate(TARGETS)}
    judged, missed = lately["ttft"]
    lately["ttft"] = judged + still.late, missed + still.late
    return {target: each for target, each in lately.items() if each[0]}
