"""Instants that charts mark: what somebody changed, what broke and what came back."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from pdmuxd.tui.client.wire import (
    AlarmEvent,
    EngineEvent,
    HistoryOut,
    PastAlarmsOut,
    SettingsEvent,
    StatsEvent,
)

KEPT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One instant, in words."""

    at: datetime
    text: str
    kind: str
    """`change`, `engine` or `alarm`."""


class Marks:
    """The last ones, oldest first."""

    def __init__(self) -> None:
        self.kept: deque[Mark] = deque(maxlen=KEPT)
        self._engine: EngineEvent | None = None
        self._policy: str | None = None
        self._first: datetime | None = None
        """The first mark that this console has seen itself."""

    def on_settings(self, event: SettingsEvent) -> None:
        """Mark edits of targets and removed tenants. That an engine confirms them is no mark."""
        if event.kind != "wanted":
            return
        for one in event.changed[:3]:
            tbt = f", TBT {one.tbt_ms:g} ms" if one.tbt_ms is not None else ""
            self._add(event.at, f"targets of {one.tenant}: version {one.slo_version}{tbt}", "change")
        if len(event.changed) > 3:
            self._add(event.at, f"and of {len(event.changed) - 3} more tenants", "change")
        for name in event.removed[:3]:
            self._add(event.at, f"tenant {name} removed", "change")

    def on_engine(self, event: EngineEvent) -> None:
        """The engine's state, or its policy or profile, is another one."""
        before, self._engine = self._engine, event
        if before is None:
            return
        if event.restarts > before.restarts:
            self._add(event.at, f"engine restarted ({event.restarts} in all)", "engine")
        elif event.state != before.state:
            self._add(event.at, f"engine {event.state}", "engine")
        if before.profile and event.profile and before.profile != event.profile:
            self._add(event.at, f"profile {before.profile} → {event.profile}", "change")

    def on_stats(self, event: StatsEvent) -> None:
        """The policy in force is another one."""
        if event.policy is None:
            return
        if self._policy is not None and self._policy != event.policy:
            self._add(event.at, f"policy {self._policy} → {event.policy}", "change")
        self._policy = event.policy

    def on_alarm(self, event: AlarmEvent) -> None:
        what = "ALARM" if event.state == "raised" else "ended:"
        self._add(event.at, _alarm_text(what, event.kind, event.tenant), "alarm")

    def fill(self, kept: HistoryOut) -> None:
        """Take in marks from before this console started."""
        self._fill(
            Mark(at=one.at, text=one.text, kind="engine" if one.kind == "engine" else "change")
            for one in kept.marks
        )

    def fill_alarms(self, past: PastAlarmsOut) -> None:
        """Take in alarms that began before this console started."""
        self._fill(
            Mark(at=one.began_at, text=_alarm_text("ALARM", one.kind, one.tenant), kind="alarm")
            for one in past.alarms
        )

    def _fill(self, earlier: Iterable[Mark]) -> None:
        found = {mark for mark in earlier if self._first is None or mark.at < self._first}
        every = sorted({*self.kept, *found}, key=lambda mark: (mark.at, mark.text))
        self.kept = deque(every, maxlen=KEPT)

    def _add(self, at: datetime, text: str, kind: str) -> None:
        self._first = self._first or at
        self.kept.append(Mark(at=at, text=text, kind=kind))


def _alarm_text(what: str, kind: str, tenant: str | None) -> str:
    return f"{what} {kind}{f' of {tenant}' if tenant else ''}"
