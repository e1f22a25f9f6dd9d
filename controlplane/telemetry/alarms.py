"""Alarms: each is raised once and cleared once, when its condition has lasted; its text is of now."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pdmuxd.controlplane.events.messages import AlarmEvent, AlarmKind, Severity, instant

RECENT = 200
TAKEN_AT_ONCE = 50
"""Conditions, which take some 10 us each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """How long a condition must last before its alarm is raised, and be gone before it is cleared."""

    severity: Severity
    raise_after_s: float
    clear_after_s: float


RULES: dict[AlarmKind, Rule] = {
    "engine_down": Rule(severity="critical", raise_after_s=0.0, clear_after_s=0.0),
    "link_lost": Rule(severity="critical", raise_after_s=0.0, clear_after_s=1.0),
    "ttft_burn": Rule(severity="warning", raise_after_s=3.0, clear_after_s=30.0),
    "tbt_burn": Rule(severity="warning", raise_after_s=3.0, clear_after_s=30.0),
    "e2e_burn": Rule(severity="warning", raise_after_s=3.0, clear_after_s=30.0),
    "availability_burn": Rule(severity="warning", raise_after_s=3.0, clear_after_s=30.0),
    "late_now": Rule(severity="warning", raise_after_s=5.0, clear_after_s=10.0),
    "telemetry_dropped": Rule(severity="warning", raise_after_s=0.0, clear_after_s=60.0),
    "predictor_drift": Rule(severity="warning", raise_after_s=10.0, clear_after_s=60.0),
    "database_lost": Rule(severity="critical", raise_after_s=0.0, clear_after_s=0.0),
    "database_unwritable": Rule(severity="critical", raise_after_s=0.0, clear_after_s=0.0),
    "disk_low": Rule(severity="warning", raise_after_s=0.0, clear_after_s=10.0),
    "usage_unsaved": Rule(severity="warning", raise_after_s=0.0, clear_after_s=0.0),
    "clock_jumped": Rule(severity="warning", raise_after_s=0.0, clear_after_s=0.0),
    "loop_late": Rule(severity="warning", raise_after_s=0.0, clear_after_s=10.0),
    "quarantined": Rule(severity="warning", raise_after_s=0.0, clear_after_s=0.0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """Something that is wrong now."""

    kind: AlarmKind
    text: str
    tenant: str | None = None

    @property
    def id(self) -> str:
        """Tells alarms apart."""
        return self.kind if self.tenant is None else f"{self.kind}:{self.tenant}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Watched:
    condition: Condition
    began_s: float
    last_s: float
    raised: AlarmEvent | None = None


class Alarms:
    """The state of every alarm. Written in one thread; `active` and `recent` may be called in any."""

    def __init__(self) -> None:
        self.raised_total: Counter[AlarmKind] = Counter()
        self._watched: dict[str, _Watched] = {}
        self._recent: deque[AlarmEvent] = deque(maxlen=RECENT)

    def update(self, conditions: Iterable[Condition], now_s: float) -> Iterator[AlarmEvent | None]:
        """Take in what is wrong now, all of it: the alarms that are raised and cleared by it, one with each
        step, and None where it may be paused."""
        present: dict[str, Condition] = {}
        for condition in conditions:
            present[condition.id] = condition
            if len(present) % TAKEN_AT_ONCE == 0:
                yield None
        for number, condition in enumerate(present.values(), start=1):
            if (changed := self._present(condition, now_s)) is not None:
                self._recent.append(changed)
                yield changed
            elif number % TAKEN_AT_ONCE == 0:
                yield None
        for id_ in [id_ for id_ in self._watched if id_ not in present]:
            if (changed := self._absent(id_, now_s)) is not None:
                self._recent.append(changed)
                yield changed

    def active(self) -> tuple[AlarmEvent, ...]:
        """Alarms that are raised, oldest first."""
        raised = (watched.raised for watched in tuple(self._watched.values()))
        return tuple(sorted((each for each in raised if each is not None), key=lambda each: each.since))

    def recent(self) -> tuple[AlarmEvent, ...]:
        """The latest that were raised or cleared, newest first."""
        return tuple(reversed(tuple(self._recent)))

    def _present(self, condition: Condition, now_s: float) -> AlarmEvent | None:
        rule = RULES[condition.kind]
        watched = self._watched.get(condition.id)
        began_s = now_s if watched is None else watched.began_s
        raised = None if watched is None else watched.raised
        changed: AlarmEvent | None = None
        if raised is None and now_s - began_s >= rule.raise_after_s:
            raised = changed = AlarmEvent(
                at=instant(now_s),
                id=condition.id,
                kind=condition.kind,
                tenant=condition.tenant,
                state="raised",
                severity=rule.severity,
                since=instant(began_s),
                text=condition.text,
            )
            self.raised_total[condition.kind] += 1
        elif raised is not None and raised.text != condition.text:
            raised = raised.model_copy(update={"text": condition.text})
        self._watched[condition.id] = _Watched(
            condition=condition, began_s=began_s, last_s=now_s, raised=raised
        )
        return changed

    def _absent(self, id_: str, now_s: float) -> AlarmEvent | None:
        watched = self._watched[id_]
        if watched.raised is None:
            del self._watched[id_]
            return None
        if now_s - watched.last_s < RULES[watched.condition.kind].clear_after_s:
            return None
        del self._watched[id_]
        return watched.raised.model_copy(update={"at": instant(now_s), "state": "cleared"})
