"""Everything that is known of the engine's and the gateway's doings, and the events that tell of it."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version as installed_version

from pdmuxd.controlplane.events.buffer import EventBuffer
from pdmuxd.controlplane.events.follow import HEARTBEAT_S
from pdmuxd.controlplane.events.messages import (
    API_VERSION,
    EventMessage,
    EventType,
    HelloEvent,
    IncidentEvent,
    StatsEvent,
    TenantsEvent,
    instant,
)
from pdmuxd.controlplane.events.outcomes import Outcome, outcome_at_gateway
from pdmuxd.controlplane.history.columns import Column
from pdmuxd.controlplane.history.reading import Judged
from pdmuxd.controlplane.history.recorder import Recorder
from pdmuxd.controlplane.milliseconds import to_ms
from pdmuxd.controlplane.node.engine_status import NO_ENGINE, EngineState, EngineStatus
from pdmuxd.controlplane.services.directory import DirectorySnapshot
from pdmuxd.controlplane.telemetry import serializers
from pdmuxd.controlplane.telemetry.alarm_watch import AlarmWatch
from pdmuxd.controlplane.telemetry.alarms import Condition
from pdmuxd.controlplane.telemetry.attainment import FIVE_MINUTES_S, HOUR_S, Attainment
from pdmuxd.controlplane.telemetry.chronicle import Chronicle
from pdmuxd.controlplane.telemetry.decisions import Decisions
from pdmuxd.controlplane.telemetry.delivery import DeliveryLateness
from pdmuxd.controlplane.telemetry.delivery_delays import DeliveryDelays
from pdmuxd.controlplane.telemetry.directory_change import DirectoryChange
from pdmuxd.controlplane.telemetry.drift import DriftWatch
from pdmuxd.controlplane.telemetry.effects import READ_AT_ONCE, Effects
from pdmuxd.controlplane.telemetry.expected_tokens import ExpectedTokens
from pdmuxd.controlplane.telemetry.forecast_record import ForecastRecord
from pdmuxd.controlplane.telemetry.frames import TOLD_AT_ONCE, Frames, StrictestTarget
from pdmuxd.controlplane.telemetry.guard import GuardView
from pdmuxd.controlplane.telemetry.incident_feed import IncidentFeed
from pdmuxd.controlplane.telemetry.incidents import TOLD, Incidents
from pdmuxd.controlplane.telemetry.judged import Delivered, JudgedRequest
from pdmuxd.controlplane.telemetry.learned_steps import LearnedSteps
from pdmuxd.controlplane.telemetry.load import EngineCounters
from pdmuxd.controlplane.telemetry.partitions import PartitionUse
from pdmuxd.controlplane.telemetry.recent import RecentLoad
from pdmuxd.controlplane.telemetry.regimes import Regimes
from pdmuxd.controlplane.telemetry.requests import RequestHistory
from pdmuxd.controlplane.telemetry.settling import Settling
from pdmuxd.controlplane.telemetry.silences import Silences
from pdmuxd.controlplane.telemetry.tbt_cap import TbtCaps
from pdmuxd.controlplane.telemetry.tenant_states import TenantStates
from pdmuxd.controlplane.telemetry.waiting import NOTHING_OPEN, OpenCounts, OpenRequests, gauges
from pdmuxd.controlplane.tenants.records import TenantRecord
from pdmuxd.engine.core.slo import RequestTargets
from pdmuxd.engine.link.messages import (
    Ack,
    EngineStats,
    Hello,
    IterationRecord,
    RequestRecord,
    TenantQueues,
    ToDaemon,
)

TICK_S = 0.1
TICKS_PER_SECOND = 10
RESUMED_WITHIN_S = 60.0
"""After this long without a client events are told once a second: nobody will miss the frames between."""
_COUNTED_EVERY_S = 0.45
"""Open requests are looked at one by one, so not with each of the stats."""
_INCIDENTS_STORED_EVERY_S = 10
"""While they are open; the ends are stored when they come."""
_EMPTY = DirectorySnapshot(version=0, tenants={}, keys={})


PromptNames = tuple[int, tuple[int, ...]]
"""A prompt's bytes, and names of its leading parts: see `daemon/traffic/prefixes.py`."""
OnEnded = Callable[[RequestRecord, float | None, PromptNames, float], None]
_NO_PROMPT: PromptNames = (0, ())
_KEPT_PROMPTS = 4096
"""Of requests that have not ended; with more in flight, the oldest count as not alike."""


def _untold(_record: RequestRecord, _arrived_s: float | None, _prompt: PromptNames, _now_s: float) -> None:
    """Nobody wants to know."""


class Telemetry:
    """Fed in the daemon's event loop; what it holds may be read in any thread.

    `clock` is Unix time in seconds and must not go back. `status`, `in_flight` (requests at the gateway,
    per tenant) are asked whenever they are to be told. `wall_clock` (`clock` unless given) dates the history.
    `on_ended` is told of each request that ended in the engine, with its arrival and its prompt; `on_settled`
    of each when both the engine and the gateway are done with it; `on_outcome` how a tenant's request ended.
    `own_conditions` says each second what the daemon finds wrong with itself.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        status: Callable[[], EngineStatus] = lambda: NO_ENGINE,
        in_flight: Callable[[], Mapping[str, int]] = dict,
        wall_clock: Callable[[], float] | None = None,
        on_ended: OnEnded = _untold,
        on_settled: Callable[[JudgedRequest], None] = lambda _: None,
        on_outcome: Callable[[str, Outcome], None] = lambda *_: None,
        own_conditions: Callable[[], Iterable[Condition]] = tuple,
    ) -> None:
        self.clock = clock
        self.recorder = Recorder(wall_clock or clock)
        self.started_s = clock()
        self.events = EventBuffer(str(int(self.started_s * 1000)))
        self.published: Counter[EventType] = Counter()
        self.told: dict[EventType, EventMessage] = {}
        self.status = status
        self.in_flight = in_flight
        self.directory = _EMPTY
        self.decisions = Decisions(
            strictest=lambda: self._strictest(self.directory, self.in_flight(), self.tbt_caps)
        )
        self._strictest = StrictestTarget()
        self._silences = Silences()
        self.requests = RequestHistory(self.decisions, silent_s=self._silences.seconds)
        self.recent = RecentLoad()
        self._on_ended = on_ended
        self._prompts: OrderedDict[str, PromptNames] = OrderedDict()
        self.expected = ExpectedTokens()
        self.open = OpenRequests(self.expected)
        self._on_settled, self._on_outcome = on_settled, on_outcome
        self._settling = Settling(self.open)
        self.partitions = PartitionUse()
        self.guard = GuardView()
        self.learned = LearnedSteps(self.decisions)
        self.drift = DriftWatch()
        self.counters = EngineCounters()
        self.delivery = DeliveryLateness()
        self.delays = DeliveryDelays()
        self.forecasts = ForecastRecord()
        self.everyone = Attainment()
        self.tenants: dict[str, Attainment] = {}
        self.incidents = Incidents(in_flight=lambda: self.in_flight())
        self._incident_feed = IncidentFeed(self.incidents)
        self.states = TenantStates(self.tenants, self.incidents)
        self.alarm_watch = AlarmWatch(
            states=self.states, counters=self.counters, drift=self.drift, own=own_conditions
        )
        self.alarms = self.alarm_watch.alarms
        self.frames = Frames(
            self.tenants, self.everyone, self.states, self.counters, self.decisions, lambda: self.in_flight()
        )
        self._offset_s: float | None = None
        self._ticks = 0
        self._followed_s = self.started_s
        self._counted: tuple[float, Mapping[str, OpenCounts]] = 0.0, {}
        self.effects = Effects(clock=clock, tenants=self.tenants, waiting=self.open_lately)
        self.regimes = Regimes()
        self._chronicle = Chronicle(self.recorder, self.effects, self.regimes)
        self.tbt_caps: TbtCaps = {}
        """Tenants whose TBT target costs the others too much at present."""

    # What the engine reports

    def on_message(self, message: ToDaemon) -> None:
        """The engine said something that is not the end of a request."""
        now_s = self.clock()
        self.counters.heard_s = now_s
        match message:
            case IterationRecord():
                self._on_iteration(message, now_s)
            case EngineStats():
                self.counters.add(message, now_s)
                self._chronicle.on_stats(message, now_s)
            case TenantQueues():
                self.open.report(message, now_s)
            case Hello():
                self._on_hello(message)
            case Ack(error=None):
                self.publish("settings", serializers.in_force(message.version, now_s))

    def on_request(self, record: RequestRecord) -> None:
        now_s = self.clock()
        self.counters.heard_s = now_s
        self.expected.on_record(record)
        lifecycle = self.requests.on_record(record, now_s)
        self.recent.on_request(record, arrived_s=lifecycle.arrived_s, now_s=now_s)
        self._on_ended(record, lifecycle.arrived_s, self._prompts.pop(record.request_id, _NO_PROMPT), now_s)
        for settled in self._settling.on_record(record):
            self._settle(settled, now_s)

    def on_state(self, state: EngineState, reason: str | None) -> None:
        """The engine is now in `state`."""
        self._chronicle.on_state(state, reason)
        if state == "serving":
            self.alarm_watch.has_served = True
        elif state in ("starting", "down"):
            self.counters.forget()
        self.publish("engine", serializers.engine(self.status(), self.clock(), reason=reason))

    # What the gateway and the control plane report

    def on_begin(self, request_id: str, *, tenant: str, path: str, key_id: str = "") -> None:
        if tenant in self.directory.tenants:
            self._tenant(tenant)
            self.recorder.row(tenant)[Column.ARRIVALS] += 1
            self.states.touch(tenant)
        now_s = self.clock()
        self.open.begin(request_id, tenant=tenant, now_s=now_s)
        self.requests.on_begin(request_id, tenant=tenant, path=path, key_id=key_id, now_s=now_s)

    def on_targets(self, request_id: str, targets: RequestTargets) -> None:
        self.open.use_targets(request_id, targets)

    def on_read(
        self, request_id: str, *, is_streamed: bool, body_bytes: int, read_s: float, answers: int = 1
    ) -> None:
        """The gateway has the body of a request, which makes so many answers."""
        self.expected.on_read(request_id, body_bytes / answers)
        self.open.read(
            request_id, is_streamed=is_streamed, body_bytes=body_bytes, read_s=read_s, answers=answers
        )

    def on_prompt(self, request_id: str, *, prompt_bytes: int, prefixes: tuple[int, ...]) -> None:
        """The gateway has named the leading parts of a prompt."""
        self._prompts[request_id] = (prompt_bytes, prefixes)
        while len(self._prompts) > _KEPT_PROMPTS:
            self._prompts.popitem(last=False)

    def on_sent(self, request_id: str) -> None:
        """The gateway passes a request to the engine."""
        self.open.sent(request_id)

    def on_first_byte(self, request_id: str) -> None:
        """The engine's answer to a request began to arrive."""
        self.open.first_byte(request_id, self.clock())
        request = self.open.find(request_id)
        if request is not None and request.tenant in self.tenants:
            self.states.touch(request.tenant)
            tenant = self.directory.tenants.get(request.tenant)
            if tenant is not None:
                target_s = self.open.target_s(request, tenant)
                tokens = self.expected.input_tokens(request.tenant, request.body_bytes or 0)
                self._incident_feed.on_first(request, target_s=target_s, tokens=tokens, now_s=self.clock())

    def on_answered(
        self,
        request_id: str,
        *,
        status: int,
        delivered: Delivered | None = None,
        end: str = "",
        error: str = "",
    ) -> None:
        """The gateway is done with a request that it had let in; `delivered` is what its client saw, `end`
        why the answer ended early, `error` the code of the error in its place."""
        now_s = self.clock()
        outcome = outcome_at_gateway(status, end=end, error=error)
        self.requests.on_answered(
            request_id, status=status, now_s=now_s, delivered=delivered, told=outcome, error=error
        )
        request = self.open.find(request_id)
        settled = self._settling.on_answered(
            request_id,
            status=status,
            delivered=delivered,
            outcome=outcome,
            tenants=self.directory.tenants,
            now_s=now_s,
        )
        if outcome is not None and request is not None:
            self._count_outcome(request.tenant, outcome, now_s)
        for each in settled:
            self._settle(each, now_s)

    def on_refused(
        self, tenant: str, cause: str, *, request_id: str = "", path: str = "", status: int = 503
    ) -> None:
        """The gateway had no place, or no engine, for a request; `cause` is one of few. Unless it was let in,
        this is all that is told of it; without `request_id` it did not ask the model."""
        now_s = self.clock()
        self.everyone.on_refused(now_s)
        outcome = outcome_at_gateway(status, error=cause)
        if request_id and outcome is not None and not self.requests.knows(request_id):
            self._count_outcome(tenant, outcome, now_s)
            self.requests.on_refused(
                request_id, tenant=tenant, path=path, status=status, told=outcome, error=cause, now_s=now_s
            )
        if tenant in self.directory.tenants:
            self._tenant(tenant).on_refused(now_s)
            self.states.touch(tenant)
            self.recorder.refused(tenant, cause)

    def on_directory(self, snapshot: DirectorySnapshot, change: DirectoryChange | None = None) -> None:
        """Tenants or targets have changed; the series of tenants that are gone are dropped.

        `change` is what differs, where a thread has found out.
        """
        before, self.directory = self.directory, snapshot
        if change is None or change.before is not before:
            change = DirectoryChange.between(before, snapshot, self.clock())
        for gone in [name for name in self.tenants if name not in snapshot.tenants]:
            del self.tenants[gone]
            self.states.drop(gone)
            if (over := self.incidents.drop(gone, self.clock())) is not None:
                self._tell_incident(over)
        self.recorder.change(change.tenants)
        self.expected.keep(snapshot.tenants)
        if before is not _EMPTY:
            self._chronicle.on_directory(snapshot, change, self.clock())
        self.publish("settings", change.told)

    def restore(
        self, past: Sequence[Judged], tenants: Mapping[str, TenantRecord], *, window_s: float
    ) -> None:
        """Count what was judged before the daemon started; of tenants that are gone nothing."""
        now_s = self.clock()
        for each in past:
            tenant = tenants.get(each.series.tenant)
            if tenant is not None and tenant.since_ms == each.series.since_ms:
                attainment = self._tenant(tenant.name)
                attainment.restore(each, now_s, window_s)
                if now_s - attainment.last_s < HOUR_S:
                    self.states.touch(tenant.name)

    # Time passes

    def tick(self) -> None:
        """A turn, at once."""
        for _ in self.turn():
            pass

    def turn(self) -> Iterator[None]:
        """Every tenth of a second: tell how things are; every second also of tenants and alarms.

        Each step takes some 0.5 ms, however many tenants and requests there are: streams are served between.
        """
        now_s = self.clock()
        self._ticks += 1
        is_second = self._ticks % TICKS_PER_SECOND == 0
        yield from self._count_open(now_s, at_most_s=0.0 if is_second else _COUNTED_EVERY_S)
        waiting = self._counted[1]
        if self.recorder.is_due():
            for settled in self._settling.overdue(now_s):
                self._settle(settled, now_s)
                yield
            # Not `yield from`: what is not closed when the daemon ends is closed then.
            for _ in self.recorder.turn(gauges(waiting, self.in_flight())):
                yield
        if self.events.clients:
            self._followed_s = now_s
        yield from self.effects.read(READ_AT_ONCE)
        if is_second:
            self.effects.tick()
            yield from self._watch(waiting, now_s)
        else:
            yield from self.states.look(self.directory, waiting, now_s)
        while self.states.changed:
            self._tell_incident(self.states.changed.pop(0))
            yield
        if not is_second and now_s - self._followed_s > RESUMED_WITHIN_S:
            return
        for event in self.decisions.flush():
            self.publish("decision", event)
            yield
        self.publish("stats", self.stats_event(now_s))
        yield
        if is_second:
            self.frames.begin_tenants(waiting)
        if is_second or self.frames.is_making_tenants:
            yield from self.frames.tell_tenants(
                self.directory, waiting, self.tbt_caps, now_s, at_once=TOLD_AT_ONCE
            )
            if not self.frames.is_making_tenants:
                told = self.frames.tenants(now_s)
                yield
                self.publish("tenants", told.model_copy(update={"alarm_texts": self._alarm_texts()}))

    def _alarm_texts(self) -> dict[str, str]:
        return {alarm.id: alarm.text for alarm in self.alarms.active()[:TOLD]}

    def watch(self, now_s: float) -> None:
        """Look how tenants stand; raise and clear alarms."""
        self._counted = now_s, self.open_counts(now_s)
        for _ in self._watch(self._counted[1], now_s):
            pass

    def _count_open(self, now_s: float, *, at_most_s: float) -> Iterator[None]:
        """Count what is open, unless that was done so short a time ago."""
        if now_s - self._counted[0] > at_most_s:
            found: dict[str, OpenCounts] = {}
            yield from self.open.counting(self.directory.tenants, now_s, found)
            self._counted = now_s, found

    def _watch(self, waiting: Mapping[str, OpenCounts], now_s: float) -> Iterator[None]:
        self.states.begin(waiting, now_s)
        yield from self.incidents.work.look(waiting, now_s)
        yield from self.states.look(self.directory, waiting, now_s)
        status = self.status()
        is_serving = status.state in ("serving", "draining")
        self.forecasts.settle(self.lately, now_s)
        self._silences.look(self.counters.heard_s, now_s, is_serving=is_serving)
        for event in self.alarm_watch.look(status, waiting, now_s):
            if event is not None:
                self.publish("alarm", event)
                self.recorder.alarm(event)
            yield
        if int(now_s) % _INCIDENTS_STORED_EVERY_S == 0:
            for name in self.incidents.names():
                if (incident := self.incidents.of(name, now_s)) is not None:
                    self.recorder.incident(incident)
                yield

    def publish(self, type_: EventType, message: EventMessage) -> None:
        """Tell every client."""
        self.published[type_] += 1
        self.told[type_] = message
        self.events.publish(type_, message, self.clock())

    def hello(self, role: str) -> HelloEvent:
        now_s = self.clock()
        return HelloEvent(
            version=installed_version("pdmuxd"),
            api_version=API_VERSION,
            session=self.events.session,
            started_at=instant(self.started_s),
            at=instant(now_s),
            role=role,
            head=f"{self.events.session}-{self.events.head}",
            engine=serializers.engine(self.status(), now_s, reason=None),
            alarms=self.alarms.active(),
            incidents=self.incidents.told(now_s)[0],
            settings_version=self.directory.version,
            heartbeat_ms=to_ms(HEARTBEAT_S),
            stats_ms=to_ms(TICK_S),
        )

    def open_counts(self, now_s: float) -> Mapping[str, OpenCounts]:
        """What is open, what of it waits, and what is late now, by tenant."""
        return self.open.counts(self.directory.tenants, now_s)

    def open_lately(self, now_s: float) -> Mapping[str, OpenCounts]:
        """The same as it was at most half a second ago: with 500 open requests counting takes 2 ms."""
        if now_s - self._counted[0] > _COUNTED_EVERY_S:
            self._counted = now_s, self.open_counts(now_s)
        return self._counted[1]

    def lately(self, tenant: str) -> tuple[float | None, float | None]:
        """The share of TTFT and of TBT that a tenant's clients got in time over five minutes."""
        attainment, now_s = self.tenants.get(tenant), self.clock()
        if attainment is None:
            return None, None
        still = self.open_lately(now_s).get(tenant, NOTHING_OPEN)
        counts = attainment.violations(now_s, FIVE_MINUTES_S, still)
        return counts.ttft.attainment_ratio, counts.tbt.attainment_ratio

    def stats_event(self, now_s: float) -> StatsEvent:
        """The load and the latencies of this moment."""
        strictest = self._strictest(self.directory, self.in_flight(), self.tbt_caps)
        return self.frames.stats(self.status(), self.open_lately(now_s), strictest, now_s)

    def tenants_event(self, now_s: float) -> TenantsEvent:
        """The same of each tenant that is active, at once: `turn` tells them in slices."""
        self.frames.begin_tenants(waiting := self.open_counts(now_s))
        for _ in self.frames.tell_tenants(self.directory, waiting, self.tbt_caps, now_s):
            pass
        return self.frames.tenants(now_s)

    def _on_hello(self, hello: Hello) -> None:
        layers = hello.model_shape.layers if hello.model_shape is not None else 0
        self.counters.forget()
        self.forecasts.forget_open()
        self.open.report(None, self.clock())
        self._chronicle.on_hello(hello, self.clock())
        self.partitions.forget()
        self.guard.forget()
        self.learned.forget()
        self.drift.forget()
        self.partitions.layers = self.drift.layers = layers
        self._offset_s = None
        self.alarm_watch.forget_engine()
        self.publish("engine", serializers.engine(self.status(), self.clock(), reason=None))

    def _on_iteration(self, record: IterationRecord, now_s: float) -> None:
        # Records travel in bundles; the shortest way that one has taken tells the engine's clock from ours.
        offset_s = now_s - record.now_s
        self._offset_s = offset_s if self._offset_s is None else min(self._offset_s, offset_s)
        at_s = record.now_s + self._offset_s
        self.decisions.add(record, at_s, tbt_capped=self._capped_now() if self.tbt_caps else ())
        self.partitions.add(record)
        self._chronicle.on_iteration(record)
        self.guard.add(record, at_s)
        self.drift.add(record, at_s)
        self.recent.on_iteration(record, at_s)

    def _capped_now(self) -> tuple[str, ...]:
        """Tenants with requests in flight whose TBT target is not planned for."""
        in_flight = self.in_flight()
        return tuple(name for name in self.tbt_caps if in_flight.get(name))

    def _tell_incident(self, incident: IncidentEvent) -> None:
        self.publish("incident", incident)
        self.recorder.incident(incident)

    def _count_outcome(self, tenant: str, outcome: Outcome, now_s: float) -> None:
        """A request is over; called once of each."""
        self.everyone.on_outcome(outcome, now_s)
        self._on_outcome(tenant, outcome)
        if tenant in self.directory.tenants:
            self._tenant(tenant).on_outcome(outcome, now_s)
            self.states.touch(tenant)
            self.recorder.outcome(tenant, outcome)
            self._incident_feed.on_outcome(tenant, outcome, now_s)

    def _settle(self, judged: JudgedRequest, now_s: float) -> None:
        if judged.outcome is not None:
            self._count_outcome(judged.record.tenant, judged.outcome, now_s)
        self.everyone.on_request(judged, now_s)
        self.delivery.on_request(judged, now_s)
        self.delays.on_request(judged, now_s)
        tenant, lifecycle = judged.record.tenant, self.requests.find(judged.record.request_id)
        if tenant in self.directory.tenants:
            self._tenant(tenant).on_request(judged, now_s)
            self.states.touch(tenant)
            self._chronicle.on_request(judged, lifecycle, now_s)
            self._incident_feed.on_settled(judged, lifecycle, now_s)
        self._on_settled(judged)
        if lifecycle is not None:
            self.publish("request", serializers.request(lifecycle))

    def _tenant(self, name: str) -> Attainment:
        if name not in self.tenants:
            self.tenants[name] = Attainment()
        return self.tenants[name]
