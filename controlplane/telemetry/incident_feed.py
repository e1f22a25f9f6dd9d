"""Tells the incidents of each request: when its first token came, how it ended, what it missed and why."""

from __future__ import annotations

from pdmuxd.controlplane.events.outcomes import ASKED, UNSERVED, Outcome
from pdmuxd.controlplane.telemetry.incidents import Incidents
from pdmuxd.controlplane.telemetry.judged import JudgedRequest
from pdmuxd.controlplane.telemetry.open_incident import Miss, Target
from pdmuxd.controlplane.telemetry.requests import RequestLifecycle
from pdmuxd.controlplane.telemetry.slo_violations import Cause, SloViolation
from pdmuxd.controlplane.telemetry.waiting import OpenRequest

_CAUSES = {
    Outcome.LIMITED: Cause.LIMITED,
    Outcome.REFUSED: Cause.REFUSED,
    Outcome.EXPIRED: Cause.EXPIRED,
    Outcome.LOST: Cause.ENGINE_LOST,
    Outcome.FAILED: Cause.FAILED,
}


class IncidentFeed:
    """Used in one thread; tenants are known."""

    def __init__(self, incidents: Incidents) -> None:
        self._incidents = incidents

    def on_first(self, request: OpenRequest, *, target_s: float, tokens: int, now_s: float) -> None:
        """A request has its first byte; its prompt has so many tokens, as far as they are known."""
        self._incidents.work.add(request.tenant, tokens, now_s)
        if request.is_streamed:
            missed = now_s - request.arrived_s > target_s
            self._incidents.on_judged(
                request.tenant, "ttft", judged=1, missed=int(missed), at_s=now_s, now_s=now_s
            )

    def on_settled(self, judged: JudgedRequest, lifecycle: RequestLifecycle | None, now_s: float) -> None:
        """Engine and gateway are done with a request."""
        tenant, incidents = judged.record.tenant, self._incidents
        ended_s = now_s if lifecycle is None or lifecycle.ended_s is None else min(now_s, lifecycle.ended_s)
        arrived_s = None if lifecycle is None else lifecycle.arrived_s
        first_s = ended_s
        if arrived_s is not None and judged.ttft_s is not None:
            first_s = min(ended_s, arrived_s + judged.ttft_s)
        if judged.ttft_missed is not None:
            incidents.on_ended(tenant, "ttft", 1)
            if not judged.is_delivered:  # of the others the first byte told
                missed = int(judged.ttft_missed)
                incidents.on_judged(tenant, "ttft", judged=1, missed=missed, at_s=first_s, now_s=now_s)
        delivered = None if lifecycle is None else lifecycle.delivered
        gap_s = ended_s - (0.0 if delivered is None else delivered.missed_ago_s)
        if judged.gaps:
            incidents.on_ended(tenant, "tbt", judged.gaps)
            # What is missed comes first: of a tenant that missed nothing, what was in time is not counted.
            if judged.gaps_missed:
                incidents.on_judged(
                    tenant, "tbt", judged=0, missed=judged.gaps_missed, at_s=gap_s, now_s=now_s
                )
            incidents.on_judged(tenant, "tbt", judged=judged.gaps, missed=0, at_s=now_s, now_s=now_s)
        violations = () if lifecycle is None else lifecycle.violations
        if judged.ttft_missed:
            incidents.on_missed(tenant, _miss(violations, "ttft", first_s, 1))
        if judged.gaps_missed:
            incidents.on_missed(tenant, _miss(violations, "tbt", gap_s, judged.gaps_missed))
        if judged.e2e_missed is not None:
            incidents.on_ended(tenant, "e2e", 1)
            missed = int(judged.e2e_missed)
            incidents.on_judged(tenant, "e2e", judged=1, missed=missed, at_s=ended_s, now_s=now_s)
            if missed:
                incidents.on_missed(tenant, _miss(violations, "e2e", ended_s, 1))

    def on_outcome(self, tenant: str, outcome: Outcome, now_s: float) -> None:
        """A request is over; told once of each."""
        if outcome not in ASKED:
            return
        missed, incidents = outcome in UNSERVED, self._incidents
        incidents.on_judged(tenant, "availability", judged=1, missed=int(missed), at_s=now_s, now_s=now_s)
        incidents.on_ended(tenant, "availability", 1)
        if missed:
            miss = Miss(target="availability", at_s=now_s, by_s=0.0, cause=_CAUSES[outcome])
            incidents.on_missed(tenant, miss)


def _miss(violations: tuple[SloViolation, ...], target: Target, at_s: float, count: int) -> Miss:
    found = next((each for each in violations if each.target == target), None)
    return Miss(
        target=target,
        at_s=at_s,
        by_s=0.0 if found is None else max(0.0, found.by_s),
        cause=Cause.UNKNOWN if found is None else found.cause,
        count=count,
    )
