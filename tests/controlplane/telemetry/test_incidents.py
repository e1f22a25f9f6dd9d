"""An incident begins once, is over soon after its last miss, and says who was hurt, by how much and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from telemetry_feeds import START_S, HandClock, heartbeat, request_record, telemetry

from pdmuxd.controlplane.events.messages import IncidentEvent, TenantsEvent
from pdmuxd.controlplane.node.engine_status import EngineStatus
from pdmuxd.controlplane.telemetry.incident_causes import explain
from pdmuxd.controlplane.telemetry.incidents import MOST_OPEN, OVER_WINDOW_S, REOPEN_S, Incidents
from pdmuxd.controlplane.telemetry.judged import Delivered
from pdmuxd.controlplane.telemetry.open_incident import Miss, Predicted
from pdmuxd.controlplane.telemetry.prompt_work import PromptWork
from pdmuxd.controlplane.telemetry.silences import Silences
from pdmuxd.controlplane.telemetry.slo_violations import Cause
from pdmuxd.controlplane.telemetry.telemetry import TICK_S, TICKS_PER_SECOND, Telemetry
from pdmuxd.controlplane.telemetry.waiting import OpenCounts
from pdmuxd.engine.link.durations import bucket_of

NOBODY: Mapping[str, OpenCounts] = {}


def serve(incidents: Incidents, now_s: float, *, served: int, missed: int, tenant: str = "chat") -> None:
    """Requests of one moment, of which some were late."""
    incidents.on_judged(tenant, "ttft", judged=served, missed=missed, at_s=now_s, now_s=now_s)
    incidents.on_ended(tenant, "ttft", served)
    for _ in range(missed):
        miss = Miss(target="ttft", at_s=now_s, by_s=0.5, cause=Cause.PREFILL_SLOW)
        incidents.on_missed(tenant, miss)


def look(
    incidents: Incidents,
    now_s: float,
    *,
    is_missed: bool = True,
    waiting: Mapping[str, OpenCounts] = NOBODY,
    tenant: str = "chat",
) -> IncidentEvent | None:
    return incidents.look(tenant, is_missed=is_missed, promised_ratio=0.9, waiting=waiting, now_s=now_s)


def test_one_begins_and_is_over_half_a_minute_after_its_last_miss() -> None:
    incidents, told = Incidents(), []
    for second in range(120):
        now_s = START_S + second
        serve(incidents, now_s, served=10, missed=5 if second < 20 else 0)
        told.append((second, look(incidents, now_s)))
    changes = [(second, one.state) for second, one in told if one is not None]
    assert [state for _, state in changes] == ["open", "over"]
    assert changes[0][0] == 0
    assert changes[1][0] - 19 <= OVER_WINDOW_S + 1
    over = incidents.over()[0]
    assert (over.began_at.timestamp(), over.last_missed_at.timestamp()) == (START_S, START_S + 19)
    assert (over.over_at, over.ended_by) == (over.last_missed_at, "recovered")
    [ttft] = over.targets
    assert (ttft.target, ttft.missed, ttft.worst_ratio, ttft.worst_by_ms) == ("ttft", 100, 0.5, 500.0)
    assert (over.cause, over.cause_ratio, over.command) == ("prefill_slow", 1.0, "pdmuxd slo cost")
    assert incidents.over_total == {"prefill_slow": 1}


def test_only_targets_that_were_missed_are_told_when_others_ended_in_time() -> None:
    incidents = Incidents()
    serve(incidents, START_S, served=10, missed=5)
    assert look(incidents, START_S) is not None
    incidents.on_judged("chat", "tbt", judged=100, missed=0, at_s=START_S, now_s=START_S)
    incidents.on_ended("chat", "tbt", 100)
    incidents.on_ended("chat", "availability", 5)
    (found,) = incidents.open(START_S)
    assert [one.target for one in found.targets] == ["ttft"]
    incidents.on_missed("chat", Miss(target="tbt", at_s=START_S, by_s=0.1, cause=Cause.PREFILL_SLOW))
    (found,) = incidents.open(START_S)
    assert [(one.target, one.judged, one.missed) for one in found.targets][1:] == [("tbt", 100, 1)]


def test_few_misses_are_no_incident_unless_they_are_all() -> None:
    incidents = Incidents()
    serve(incidents, START_S, served=5, missed=2)
    assert look(incidents, START_S) is None
    other = Incidents()
    serve(other, START_S, served=1, missed=1)
    assert look(other, START_S) is not None


def test_misses_within_five_minutes_belong_to_the_same_one() -> None:
    incidents = Incidents()
    serve(incidents, START_S, served=10, missed=10)
    first = look(incidents, START_S)
    assert first is not None
    over = look(incidents, START_S + 60)
    assert over is not None
    assert over.state == "over"
    again_s = START_S + REOPEN_S - 1
    serve(incidents, again_s, served=10, missed=10)
    again = look(incidents, again_s)
    assert again is not None
    assert (again.incident_id, again.state, again.over_at) == (first.incident_id, "open", None)
    assert incidents.over() == []
    assert again.targets[0].missed == 20
    assert look(incidents, again_s + 60) is not None
    late_s = again_s + 60 + 2 * REOPEN_S
    serve(incidents, late_s, served=10, missed=10)
    other = look(incidents, late_s)
    assert other is not None
    assert other.incident_id != first.incident_id


def test_what_waits_late_keeps_it_open_and_names_who_is_before_it() -> None:
    in_flight = {"docs": 64}
    incidents = Incidents(in_flight=lambda: in_flight)
    for second in range(240):
        incidents.work.add("docs", 100, START_S + second)
        incidents.work.add("chat", 100, START_S + second)
    now_s = START_S + 300
    for second in range(60):
        incidents.work.add("docs", 4000, START_S + 240 + second)
        incidents.work.add("chat", 100, START_S + 240 + second)
    waiting = {
        "chat": OpenCounts(waiting=4, late=4, oldest_wait_s=3.0),
        "docs": OpenCounts(waiting=40, late=40, oldest_wait_s=9.0),
    }
    found = look(incidents, now_s, waiting=waiting)
    assert found is not None
    assert (found.cause, found.behind, found.cause_ratio) == ("queued", "docs", None)
    assert found.command == "pdmuxd limit set docs concurrency=32:wait"
    assert (found.predicted, found.not_predicted) == (None, "nothing is predicted yet")
    own = look(incidents, now_s, waiting=waiting, tenant="docs")
    assert own is not None
    assert (own.cause, own.behind, own.command) == ("queued", "docs", None)
    assert "its own requests" in own.text
    assert own.not_predicted == "no command is known to help"
    (of,) = incidents.limiting()
    assert (of.tenant, of.behind, of.concurrency) == ("chat", "docs", 32)
    incidents.predict(Predicted(of=of, text="chat: 60.0% to 99.0% of TTFT in time"))
    in_flight["docs"] = 50
    look(incidents, now_s + 1, waiting=waiting)
    same = incidents.of("chat", now_s + 1)
    assert same is not None
    assert (same.command, same.predicted) == (found.command, "chat: 60.0% to 99.0% of TTFT in time")
    assert same.not_predicted is None
    in_flight["docs"] = 20
    look(incidents, now_s + 2, waiting=waiting)
    incidents.predict(Predicted(of=of, text="of another limit"))
    other = incidents.of("chat", now_s + 2)
    assert other is not None
    assert (other.command, other.predicted) == ("pdmuxd limit set docs concurrency=10:wait", None)
    (of,) = incidents.limiting()
    incidents.predict(Predicted(of=of, concurrency=2, text="less is needed"))
    in_flight["docs"] = 200
    look(incidents, now_s + 2, waiting=waiting)
    less = incidents.of("chat", now_s + 2)
    assert less is not None
    assert (less.command, less.predicted) == ("pdmuxd limit set docs concurrency=2:wait", "less is needed")
    assert look(incidents, now_s + 100, waiting=waiting) is None
    assert incidents.open(now_s + 100)[0].last_missed_at.timestamp() == now_s + 100
    over = look(incidents, now_s + 101)
    assert over is not None
    assert (over.state, over.behind, over.last_missed_at.timestamp()) == ("over", "docs", now_s + 100)


def test_the_cause_is_not_explained_when_nothing_seen_explains_most_misses() -> None:
    incidents = Incidents()
    incidents.on_judged("chat", "tbt", judged=100, missed=50, at_s=START_S, now_s=START_S)
    for cause in (Cause.UNKNOWN, Cause.HOST_LATE, Cause.RETRACTED):
        miss = Miss(target="tbt", at_s=START_S, by_s=0.1, cause=cause, count=10)
        incidents.on_missed("chat", miss)
    found = look(incidents, START_S)
    assert found is not None
    assert (found.cause, found.cause_ratio, found.command) == ("unknown", None, None)
    assert found.text.startswith("not explained: 1 of 3")


def test_a_lost_engine_is_the_cause_of_what_is_refused_until_the_next_serves() -> None:
    causes = Counter({Cause.ENGINE_LOST: 7, Cause.REFUSED: 10})
    found = explain("chat", causes, late_now=0, ahead=None, in_flight_ahead=0)
    assert (found.cause, found.ratio, found.command) == ("engine_lost", 1.0, "pdmuxd engine quarantine")
    assert found.text == (
        "the engine ended while it answered (7 of 17 misses); "
        "10 were refused for want of an engine or of a place"
    )
    alone = explain("chat", Counter({Cause.REFUSED: 10}), late_now=0, ahead=None, in_flight_ahead=0)
    assert (alone.cause, alone.command) == ("refused", "pdmuxd status")


def test_more_than_can_be_named_are_counted_and_told_of() -> None:
    incidents = Incidents()
    for number in range(MOST_OPEN + 5):
        serve(incidents, START_S, served=3, missed=3, tenant=f"t{number}")
        look(incidents, START_S, tenant=f"t{number}")
    assert len(incidents.open(START_S)) == MOST_OPEN
    told, omitted = incidents.told(START_S)
    assert len(told) + omitted == MOST_OPEN + 5


def test_it_is_over_with_its_tenant() -> None:
    incidents = Incidents()
    serve(incidents, START_S, served=3, missed=3)
    look(incidents, START_S)
    gone = incidents.drop("chat", START_S + 5)
    assert gone is not None
    assert (gone.state, gone.ended_by) == ("over", "gone")
    assert incidents.open(START_S + 5) == []


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=80))
def test_begin_and_end_take_turns_whatever_comes(moments: list[tuple[int, int]]) -> None:
    incidents, states = Incidents(), list[str]()
    for number, (met, missed) in enumerate(moments):
        now_s = START_S + 7.0 * number
        serve(incidents, now_s, served=met + missed, missed=missed)
        found = look(incidents, now_s, is_missed=missed > 0)
        states += [found.state] if found is not None else []
        for one in incidents.open(now_s):
            assert one.began_at <= one.last_missed_at <= one.at
            assert all(0.0 <= each.worst_ratio <= 1.0 for each in one.targets)
            assert all(each.missed <= each.judged for each in one.targets)
    assert states == ["open", "over"] * (len(states) // 2) + ["open"] * (len(states) % 2)


# Through all of telemetry


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


def turn(known: Telemetry, clock: HandClock, seconds: float, *, is_heard: bool = True) -> None:
    for _ in range(round(seconds * TICKS_PER_SECOND)):
        clock.turn(TICK_S)
        if is_heard:
            known.on_message(heartbeat())
        known.tick()


def ask(known: Telemetry, request_id: str) -> None:
    known.on_begin(request_id, tenant="chat", path="/")
    known.on_read(request_id, is_streamed=True, body_bytes=4000, read_s=0.0)


def test_what_events_rest_and_history_tell_is_the_same_when_requests_are_refused(clock: HandClock) -> None:
    known = telemetry(clock, chat=0.04)
    published = list[object]()
    known.publish = lambda kind, event: published.append(event) if kind == "incident" else None  # type: ignore[assignment,misc]
    for number in range(5):
        known.on_refused("chat", "requests_per_min", request_id=f"r{number}", path="/", status=429)
    turn(known, clock, 1)
    [found] = known.incidents.open(clock())
    assert (found.tenant, found.cause, found.command) == ("chat", "limited", "pdmuxd limit show chat")
    assert [(one.target, one.missed) for one in found.targets] == [("availability", 5)]
    told = known.tenants_event(clock())
    assert isinstance(told, TenantsEvent)
    assert [one.incident_id for one in told.incidents] == [found.incident_id]
    assert [one.incident_id for one in known.hello("admin").incidents] == [found.incident_id]
    turn(known, clock, 40)
    assert known.incidents.open(clock()) == []
    states = [one.state for one in published if isinstance(one, IncidentEvent)]
    assert states == ["open", "over"]
    assert known.recorder.take().incidents[found.incident_id].state == "over"


def test_an_engine_that_stood_still_is_the_cause_when_it_explains_the_delay(clock: HandClock) -> None:
    known = telemetry(clock, chat=0.04)
    known.status = lambda: EngineStatus(state="serving", since_s=START_S, stats=heartbeat())
    known.on_state("serving", None)
    turn(known, clock, 5)
    for number in range(4):
        ask(known, f"r{number}")
    turn(known, clock, 12, is_heard=False)
    assert known.incidents.open(clock())[0].tenant == "chat"
    for number in range(4):
        known.on_first_byte(f"r{number}")
        record = request_record(request_id=f"r{number}", queue_s=12.0, ttft_s=12.1)
        known.on_request(record)
        known.on_answered(f"r{number}", status=200)
    turn(known, clock, 2)
    [found] = known.incidents.open(clock())
    assert (found.cause, found.command) == ("engine_silent", "pdmuxd status")
    assert [one.cause for one in known.requests.ended()[-1].violations] == ["engine_silent"]


def test_what_was_made_before_an_engine_stood_still_is_late_for_that(clock: HandClock) -> None:
    known = telemetry(clock, chat=0.04)
    known.status = lambda: EngineStatus(state="serving", since_s=START_S, stats=heartbeat())
    known.on_state("serving", None)
    turn(known, clock, 5)
    ask(known, "r1")
    turn(known, clock, 12, is_heard=False)
    known.on_first_byte("r1")
    known.on_request(request_record(request_id="r1", queue_s=0.0, ttft_s=0.1))
    known.on_answered("r1", status=200, delivered=Delivered(ttft_s=12.0))
    assert [one.cause for one in known.requests.ended()[-1].violations] == ["engine_silent"]


def test_a_daemon_that_stood_still_itself_blames_no_engine() -> None:
    silences = Silences()
    silences.look(START_S, START_S, is_serving=True)
    silences.look(START_S, START_S + 6, is_serving=True)
    assert silences.seconds(START_S, START_S + 10) == 0.0
    for second in range(7, 11):
        silences.look(START_S + 6, START_S + second, is_serving=True)
    assert silences.seconds(START_S, START_S + 20) == 4.0
    silences.look(START_S + 6, START_S + 11, is_serving=False)
    assert silences.seconds(START_S, START_S + 20) == 4.0


def test_a_late_stream_does_not_keep_an_incident_open_when_it_ends_minutes_later(clock: HandClock) -> None:
    known = telemetry(clock, chat=0.04)
    for number in range(4):
        ask(known, f"r{number}")
    turn(known, clock, 8)
    for number in range(4):
        known.on_first_byte(f"r{number}")
    turn(known, clock, 36)
    assert [one.state for one in known.incidents.over()] == ["over"]
    last_s = known.incidents.over()[0].last_missed_at.timestamp()
    assert last_s == pytest.approx(START_S + 8, abs=1.1)
    for number in range(4):
        known.on_request(request_record(request_id=f"r{number}", ttft_s=8.0, queue_s=7.9))
        known.on_answered(f"r{number}", status=200)
    turn(known, clock, 2)
    assert known.incidents.open(clock()) == []


def test_the_queue_is_looked_through_once_a_second_however_many_incidents_ask(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[float] = []
    look = PromptWork.look

    def counted(self: PromptWork, waiting: Mapping[str, OpenCounts], now_s: float) -> Iterator[None]:
        asked.append(now_s)
        return look(self, waiting, now_s)

    monkeypatch.setattr(PromptWork, "look", counted)
    work, now_s = PromptWork(), START_S + 1.0
    work.add("docs", 4000, START_S)
    waiting = {"chat": OpenCounts(waiting=2, late=2)}
    assert [one.tenant for _ in range(3) if (one := work.ahead(waiting, now_s))] == ["docs"] * 3
    assert asked == [now_s]
    work.add("chat", 40_000, now_s)
    found = work.ahead(waiting, now_s + 1.0)
    assert found is not None
    assert found.tenant == "chat"
    assert work.ahead({}, now_s + 1.5) == found
    work.drop("chat")
    after = work.ahead(waiting, now_s + 1.6)
    assert after is not None
    assert after.tenant == "docs", "nobody waits behind a tenant that is gone"
    assert asked == [now_s, now_s + 1.0, now_s + 1.6]


def test_causes_are_those_that_the_open_incidents_tell() -> None:
    incidents = Incidents()
    for tenant in ("chat", "docs"):
        serve(incidents, START_S, served=4, missed=4, tenant=tenant)
        look(incidents, START_S, tenant=tenant)
    told = {one.tenant: one.cause for one in incidents.open(START_S)}
    assert incidents.causes() == told
    assert set(told) == {"chat", "docs"}


def test_a_tenant_of_which_only_gaps_are_late_has_an_incident(clock: HandClock) -> None:
    """No first token was late before, so nothing of it was counted."""
    known = telemetry(clock, chat=0.008)
    gaps = ((bucket_of(0.02), 19),)
    for number in range(20):
        name = f"r{number}"
        known.on_begin(name, tenant="chat", path="/")
        known.on_read(name, is_streamed=True, body_bytes=400, read_s=0.0)
        known.on_first_byte(name)
        late = {"tbt_target_s": 0.008, "tbt_max_s": 0.02, "tbt_gaps": 19, "tbt_gaps_met": 0}
        known.on_request(request_record(request_id=name, tbt_counts=gaps, **late))
        delivered = Delivered(ttft_s=0.1, gaps_missed=19, gap_max_s=0.02, gap_counts=gaps)
        known.on_answered(name, status=200, delivered=delivered)
        clock.turn(0.3)
        known.tick()
    (one,) = known.incidents.open(clock.now_s)
    assert [target.target for target in one.targets] == ["tbt"]
    assert one.targets[0].worst_ratio == 0.0
