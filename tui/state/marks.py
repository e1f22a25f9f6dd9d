"""What somebody changed and what broke or came back: instants to be marked beside figures."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from datetime import datetime

from pdmuxd.tui.client.history import History
from pdmuxd.tui.client.wire import Alarm, Engine, Settings, Stats

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
        self._engine: Engine | None = None
        self._policy: str | None = None

    def on_settings(self, event: Settings) -> None:
        """Targets were edited, or tenants removed; that an engine has them is no news."""
        if event.kind != "wanted":
            return
        for one in event.changed[:3]:
            tbt = f", TBT {one.tbt_ms:g} ms" if one.tbt_ms is not None else ""
            self._add(event.at, f"targets of {one.tenant}: version {one.slo_version}{tbt}", "change")
        if len(event.changed) > 3:
            self._add(event.at, f"and of {len(event.changed) - 3} more tenants", "change")
        for name in event.removed[:3]:
            self._add(event.at, f"tenant {name} removed", "change")

    def on_engine(self, event: Engine) -> None:
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

    def on_stats(self, event: Stats) -> None:
        """The policy in force is another one."""
        if event.policy is None:
            return
        if self._policy is not None and self._policy != event.policy:
            self._add(event.at, f"policy {self._policy} → {event.policy}", "change")
        self._policy = event.policy

    def on_alarm(self, event: Alarm) -> None:
        """An alarm began or ended."""
        whose = f" of {event.tenant}" if event.tenant else ""
        what = "ALARM" if event.state == "raised" else "ended:"
        self._add(event.at, f"{what} {event.kind}{whose}", "alarm")

    def fill(self, kept: History) -> None:
        """What happened before this console."""
        first = self.kept[0].at if self.kept else None
        for one in reversed(kept.marks):
            if (first is None or one.at < first) and len(self.kept) < KEPT:
                kind = "engine" if one.kind == "engine" else "change"
                self.kept.appendleft(Mark(at=one.at, text=one.text, kind=kind))

    def _add(self, at: datetime, text: str, kind: str) -> None:
        self.kept.append(Mark(at=at, text=text, kind=kind))
