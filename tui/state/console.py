"""All that the console knows of the daemon: events go in, screens read.

Events come hundreds of times a second, so this is one changing object with bounded memory, not a value
that is replaced; everything in it is one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from pdmuxd.tui.client.connection import Connection, Link
from pdmuxd.tui.client.wire import (
    AlarmEvent,
    ByeEvent,
    DecisionEvent,
    EngineEvent,
    Event,
    GapEvent,
    HelloEvent,
    RequestEvent,
    SettingsEvent,
    StatsEvent,
    TenantsEvent,
)
from pdmuxd.tui.state.answers import Answers
from pdmuxd.tui.state.lag import Delay
from pdmuxd.tui.state.marks import Marks
from pdmuxd.tui.state.series import Series
from pdmuxd.tui.state.steps import Steps
from pdmuxd.tui.state.tenants import TenantPasts

DECISIONS_KEPT = 2000
REQUESTS_KEPT = 1000
STALE_S = 2.0
"""Stats come ten times a second; older than this they are marked with their age."""


class ConsoleState:
    """The newest of everything, and the last of what is a log. Times are of the console's clock."""

    def __init__(self) -> None:
        self.connection = Connection()
        self.hello: HelloEvent | None = None
        self.engine: EngineEvent | None = None
        self.stats: StatsEvent | None = None
        self.stats_s: float | None = None
        self.tenants: TenantsEvent | None = None
        self.alarms: dict[str, AlarmEvent] = {}
        self.decisions: deque[DecisionEvent] = deque(maxlen=DECISIONS_KEPT)
        self.decisions_seen = 0
        self.decisions_total: int | None = None
        """Since the daemon's start, when the console last asked."""
        self.requests: deque[RequestEvent] = deque(maxlen=REQUESTS_KEPT)
        self.settings: SettingsEvent | None = None
        self.answers = Answers()
        self.series = Series()
        self.day = Series()
        """The last day as the daemon has kept it; empty until a chart asks for it."""
        self.pasts = TenantPasts()
        self.marks = Marks()
        self.steps = Steps()
        self.delay = Delay()
        self.lost = 0
        """Events that the daemon says this console did not get."""
        self.events = 0
        self.revision = 0
        """Grows with every change, so that a painter knows whether there is anything to paint."""

    def connected(self, connection: Connection) -> None:
        self.connection = connection
        self.revision += 1

    def apply(self, event: Event, now_s: float) -> None:
        self.events += 1
        self.revision += 1
        self._take(event, now_s)

    @property
    def role(self) -> str | None:
        """`admin` or `reader`; None before the daemon said."""
        return self.hello.role if self.hello else None

    @property
    def policy(self) -> str | None:
        """The policy in force. An engine that has just started tells it with its first figures."""
        named = self.stats.policy if self.stats is not None else None
        return named or (self.engine.policy if self.engine is not None else None)

    def age_s(self, now_s: float) -> float | None:
        """The age of the newest figures; None before the first."""
        return None if self.stats_s is None else max(0.0, now_s - self.stats_s)

    def stale_s(self, now_s: float) -> float | None:
        """The age of the figures if they are stale, else None."""
        age_s = self.age_s(now_s)
        if age_s is None or (self.connection.link is Link.LIVE and age_s < STALE_S):
            return None
        return age_s

    def add_earlier_decisions(self, newest_first: Iterable[DecisionEvent], total: int | None) -> None:
        """Take in decisions that the daemon had kept before this console started."""
        first = self.decisions[0].seq if self.decisions else None
        for one in newest_first:
            if (first is None or one.seq < first) and len(self.decisions) < DECISIONS_KEPT:
                self.decisions.appendleft(one)
        self.decisions_total = total
        self.revision += 1

    def newest_decisions(self) -> Iterable[DecisionEvent]:
        """Newest first."""
        return reversed(self.decisions)

    def _take(self, event: Event, now_s: float) -> None:
        match event:
            case StatsEvent():
                self.stats, self.stats_s = event, now_s
                self.delay.event(event.at, now_s)
                self.series.add(event, now_s)
                self.marks.on_stats(event)
                self.steps.tick(now_s)
            case DecisionEvent():
                self.decisions.append(event)
                self.decisions_seen += event.count + event.folded_other
            case RequestEvent():
                self.requests.append(event)
                self.pasts.add_request(event)
            case TenantsEvent():
                self.tenants = event
                self._renew_alarms(event.alarm_texts)
                self.pasts.add_tenants(event)
            case EngineEvent():
                self.engine = event
                self.marks.on_engine(event)
                self.steps.on_engine(event, now_s)
            case SettingsEvent():
                self.settings = event
                self.marks.on_settings(event)
            case AlarmEvent():
                self._alarm(event)
            case GapEvent():
                self.lost += event.lost or 0
            case HelloEvent():
                self._greet(event, now_s)
            case ByeEvent():
                pass  # the stream says the same of the connection

    def _alarm(self, event: AlarmEvent) -> None:
        if event.state == "raised":
            self.alarms[event.id] = event
        else:
            self.alarms.pop(event.id, None)
        self.marks.on_alarm(event)

    def _renew_alarms(self, texts: Mapping[str, str]) -> None:
        for name in texts.keys() & self.alarms.keys():
            told = self.alarms[name]
            fields = {field: getattr(told, field) for field in told.__struct_fields__}
            self.alarms[name] = AlarmEvent(**fields | {"text": texts[name]})

    def _greet(self, hello: HelloEvent, now_s: float) -> None:
        self.hello = hello
        self.alarms = {alarm.id: alarm for alarm in hello.alarms}
        self.delay.forget()
        if hello.engine is not None:
            self.engine = hello.engine
            self.marks.on_engine(hello.engine)
            self.steps.on_engine(hello.engine, now_s)
