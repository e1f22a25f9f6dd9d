"""One incident while it may change, and what is said of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from pdmuxd.controlplane.events.messages import IncidentEvent, IncidentTarget, instant
from pdmuxd.controlplane.milliseconds import to_ms
from pdmuxd.controlplane.telemetry.incident_causes import Explained
from pdmuxd.controlplane.telemetry.slo_violations import Cause

Target = Literal["ttft", "tbt", "availability", "e2e"]


TARGETS: tuple[Target, ...] = ("ttft", "tbt", "availability", "e2e")


_NOTHING_SEEN = "not explained"


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """A request that missed a target."""

    target: Target
    at_s: float
    by_s: float
    cause: Cause
    count: int = 1
    """Of requests, or of gaps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limiting:
    """The command of an open incident: limit `behind` to `concurrency`, so that `tenant` is served."""

    incident_id: str
    tenant: str
    began_s: float
    behind: str
    concurrency: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """What a limit is predicted to do, or why that cannot be told; one of both."""

    of: Limiting
    concurrency: int | None = None
    """Less than the command says, where that would not do."""
    text: str | None = None
    why_not: str | None = None


@dataclass(slots=True)
class Hurt:
    """What an incident cost one target."""

    judged: int = 0
    missed: int = 0
    worst_ratio: float = 1.0
    worst_at_s: float = 0.0
    worst_by_s: float = 0.0


@dataclass(slots=True)
class OpenIncident:
    """An incident while it may change."""

    incident_id: str
    began_s: float
    last_missed_s: float
    promised_ratio: float
    over_s: float | None = None
    hurt: dict[Target, Hurt] = field(default_factory=dict)
    causes: dict[Target, Counter[Cause]] = field(default_factory=dict)
    explained: Explained | None = None
    predicted: Predicted | None = None
    ended_by: Literal["recovered", "gone"] | None = None

    @property
    def worst_ratio(self) -> float:
        """The least that was kept of any target."""
        return min((each.worst_ratio for each in self.hurt.values()), default=1.0)

    @property
    def worst(self) -> Target:
        """The target that was kept least."""
        return min(self.hurt, key=lambda target: (self.hurt[target].worst_ratio, target))


def limiting_of(tenant: str, incident: OpenIncident) -> Limiting | None:
    """The limit that its cause asks for; None where the cause asks for none."""
    explained = incident.explained
    if explained is None or explained.behind is None or explained.concurrency is None:
        return None
    return Limiting(
        incident_id=incident.incident_id,
        tenant=tenant,
        began_s=incident.began_s,
        behind=explained.behind,
        concurrency=explained.concurrency,
    )


def _not_predicted(incident: OpenIncident) -> str | None:
    """Why nothing is predicted of the command; None where something is."""
    explained = incident.explained
    if explained is None or explained.command is None:
        return "no command is known to help"
    if explained.concurrency is None:
        return "only what limits do is predicted"
    return "nothing is predicted yet" if incident.predicted is None else incident.predicted.why_not


def cause_of(incident: OpenIncident) -> str:
    """The cause as it was explained last."""
    return str(Cause.UNKNOWN if incident.explained is None else incident.explained.cause)


def count_miss(incident: OpenIncident, miss: Miss) -> None:
    """Add a miss to what the incident cost its target."""
    hurt = incident.hurt.setdefault(miss.target, Hurt())
    hurt.missed += miss.count
    hurt.worst_by_s = max(hurt.worst_by_s, miss.by_s)
    incident.causes.setdefault(miss.target, Counter())[miss.cause] += 1
    if incident.over_s is None:
        incident.last_missed_s = max(incident.last_missed_s, miss.at_s)


def event_of(tenant: str, incident: OpenIncident, now_s: float) -> IncidentEvent:
    """What is told of an incident at an instant, its worst target first."""
    # What ended in time is counted of every target, since any may be missed later.
    missed = (each for each in incident.hurt.items() if each[1].missed or each[1].worst_ratio < 1.0)
    worst_first = sorted(missed, key=lambda each: (each[1].worst_ratio, each[0]))
    explained = incident.explained
    return IncidentEvent(
        at=instant(now_s),
        incident_id=incident.incident_id,
        tenant=tenant,
        state="open" if incident.over_s is None else "over",
        began_at=instant(incident.began_s),
        last_missed_at=instant(incident.last_missed_s),
        over_at=None if incident.over_s is None else instant(incident.over_s),
        ended_by=incident.ended_by,
        promised_ratio=incident.promised_ratio,
        targets=tuple(
            IncidentTarget(
                target=target,
                judged=max(hurt.judged, hurt.missed),
                missed=hurt.missed,
                worst_ratio=round(hurt.worst_ratio, 4),
                worst_at=instant(hurt.worst_at_s or incident.began_s),
                worst_by_ms=to_ms(round(hurt.worst_by_s, 4)),
            )
            for target, hurt in worst_first
        ),
        cause=cause_of(incident),
        cause_ratio=None if explained is None or explained.ratio is None else round(explained.ratio, 4),
        behind=None if explained is None else explained.behind,
        text=_NOTHING_SEEN if explained is None else explained.text,
        command=None if explained is None else explained.command,
        predicted=None if incident.predicted is None else incident.predicted.text,
        not_predicted=_not_predicted(incident),
    )
