"""Each alarm is raised once and cleared once; what burns, what is down, what drifts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from telemetry_feeds import START_S, HandClock, directory, heartbeat, request_record, step, telemetry

from pdmuxd.controlplane.events.messages import AlarmEvent
from pdmuxd.controlplane.node.engine_status import NO_ENGINE, EngineStatus
from pdmuxd.controlplane.telemetry.alarms import RULES, Alarms, Condition
from pdmuxd.controlplane.telemetry.telemetry import TICK_S, TICKS_PER_SECOND, Telemetry

BURN = Condition(kind="ttft_burn", text="chat: burns", tenant="chat")
RULE = RULES["ttft_burn"]


def told(alarms: Alarms, present: Iterator[bool] | list[bool], *, step_s: float = 1.0) -> list[str]:
    """What is raised and cleared while the condition is there or not, second by second."""
    states = []
    for index, is_there in enumerate(present):
        changed = list(alarms.update([BURN] if is_there else [], START_S + index * step_s))
        states += [event.state for event in changed]
    return states


def test_an_alarm_is_raised_once_and_cleared_once_when_its_condition_lasts() -> None:
    alarms = Alarms()
    there, gone = int(RULE.raise_after_s) + 50, int(RULE.clear_after_s) + 50
    assert told(alarms, [True] * there + [False] * gone) == ["raised", "cleared"]
    assert alarms.active() == ()
    assert alarms.raised_total == {"ttft_burn": 1}
    assert [event.state for event in alarms.recent()] == ["cleared", "raised"]


def test_the_text_is_of_now_and_the_beginning_stays_when_a_condition_changes() -> None:
    alarms = Alarms()
    told(alarms, [True] * 5)
    (before,) = alarms.active()
    changed = replace(BURN, text="chat: burns faster")
    assert list(alarms.update([changed], START_S + 9.0)) == []
    (after,) = alarms.active()
    assert (before.text, after.text) == ("chat: burns", "chat: burns faster")
    assert (after.since, after.at) == (before.since, before.at)
    (cleared,) = alarms.update([], START_S + 60.0)
    assert (cleared.state, cleared.text) == ("cleared", "chat: burns faster")


def test_nothing_is_raised_when_a_condition_is_short() -> None:
    assert told(Alarms(), [True] * int(RULE.raise_after_s) + [False] * 100) == []


def test_an_alarm_stays_when_its_condition_is_away_for_a_moment() -> None:
    flicker = ([True] * 5 + [False] * (int(RULE.clear_after_s) - 5)) * 10
    alarms = Alarms()
    assert told(alarms, flicker) == ["raised"]
    assert [event.id for event in alarms.active()] == ["ttft_burn:chat"]


@settings(deadline=None)
@given(st.lists(st.booleans(), max_size=300))
def test_raised_and_cleared_take_turns_whatever_happens(present: list[bool]) -> None:
    states = told(Alarms(), present, step_s=7.0)
    assert states == ["raised", "cleared"] * (len(states) // 2) + ["raised"] * (len(states) % 2)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def watched(clock: HandClock) -> Telemetry:
    made = telemetry(clock)
    made.status = lambda: EngineStatus(state="serving", since_s=START_S, stats=heartbeat())
    made.on_state("serving", None)
    return made


def alarms_over(
    watched: Telemetry, clock: HandClock, seconds: float, *, is_heard: bool = True
) -> list[AlarmEvent]:
    """Let time pass; the alarms that are active then."""
    for _ in range(round(seconds * TICKS_PER_SECOND)):
        clock.turn(TICK_S)
        if is_heard:
            watched.on_message(watched.status().stats or heartbeat())
        watched.tick()
    return list(watched.alarms.active())


def kinds(alarms: list[AlarmEvent]) -> list[str]:
    return [alarm.kind for alarm in alarms]


def test_nothing_is_wrong_when_targets_are_met(watched: Telemetry, clock: HandClock) -> None:
    for _ in range(100):
        watched.on_request(request_record())
    assert alarms_over(watched, clock, 30) == []


def test_a_burning_budget_is_told_with_its_tenant_when_requests_miss(
    watched: Telemetry, clock: HandClock
) -> None:
    for index in range(100):
        watched.on_request(request_record(ttft_s=2.0 if index % 10 == 0 else 0.3))
    (alarm,) = alarms_over(watched, clock, 10)
    assert (alarm.id, alarm.severity) == ("ttft_burn:chat", "warning")
    assert "10.0 times too fast over 5 min" in alarm.text
    # The slower of the two pairs still sees the misses when the minute has forgotten them.
    assert kinds(alarms_over(watched, clock, 60 + RULE.clear_after_s)) == ["ttft_burn"]
    assert alarms_over(watched, clock, 300) == []


def test_a_slow_burn_over_a_day_is_told_when_it_still_goes_on(watched: Telemetry, clock: HandClock) -> None:
    # Of two requests a minute one in 22 is late: too few for the short windows to tell.
    for number in range(20 * 60):
        watched.on_request(request_record(ttft_s=2.0 if number % 22 == 0 else 0.3))
        clock.turn(30.0)
        watched.counters.heard_s = clock()
        watched.watch(clock())
    texts = [alarm.text for alarm in watched.alarms.active() if alarm.kind == "ttft_burn"]
    assert any("over 24 h" in text for text in texts), texts


@pytest.mark.parametrize("promised", [0.5, 0.83, 0.9])
def test_a_loose_promise_burns_as_well_when_everything_is_late(clock: HandClock, promised: float) -> None:
    known = directory(chat=0.04)
    chat = known.tenants["chat"]
    loose = replace(chat, slo=replace(chat.slo, attainment_ratio=promised))
    watched = telemetry(clock)
    watched.status = lambda: EngineStatus(state="serving", since_s=START_S, stats=heartbeat())
    watched.on_directory(replace(known, version=2, tenants={"chat": loose}))
    for _ in range(100):
        watched.on_request(request_record(ttft_s=2.0))
    assert kinds(alarms_over(watched, clock, 10)) == ["ttft_burn"]
    for _ in range(900):
        watched.on_request(request_record())
    # Of a tenth late, with half of all allowed, nothing is to be told.
    assert kinds(alarms_over(watched, clock, 40)) == []


def test_nothing_burns_when_requests_are_too_few_to_tell(watched: Telemetry, clock: HandClock) -> None:
    for _ in range(19):
        watched.on_request(request_record(ttft_s=2.0))
    assert alarms_over(watched, clock, 10) == []


def test_the_engine_is_down_until_it_serves_when_it_dies(watched: Telemetry, clock: HandClock) -> None:
    watched.status = lambda: replace(NO_ENGINE, last_error="killed by SIGKILL")
    (alarm,) = alarms_over(watched, clock, 1, is_heard=False)
    assert (alarm.kind, alarm.severity) == ("engine_down", "critical")
    assert "killed by SIGKILL" in alarm.text
    watched.status = lambda: EngineStatus(state="serving", since_s=START_S)
    assert alarms_over(watched, clock, 1) == []


def test_a_first_start_is_no_alarm_when_it_takes_long(clock: HandClock) -> None:
    made = telemetry(clock)
    made.status = lambda: EngineStatus(state="starting", since_s=START_S)
    assert alarms_over(made, clock, 30, is_heard=False) == []


def test_the_link_is_lost_when_a_serving_engine_says_nothing(watched: Telemetry, clock: HandClock) -> None:
    assert alarms_over(watched, clock, 2) == []
    assert kinds(alarms_over(watched, clock, 4, is_heard=False)) == ["link_lost"]
    assert alarms_over(watched, clock, 3) == []


def test_dropped_telemetry_is_told_once_when_the_engine_counts_it(
    watched: Telemetry, clock: HandClock
) -> None:
    alarms_over(watched, clock, 1)
    watched.status = lambda: EngineStatus(
        state="serving", since_s=START_S, stats=heartbeat(dropped_records=7)
    )
    (alarm,) = alarms_over(watched, clock, 2)
    assert alarm.kind == "telemetry_dropped"
    assert "7 records" in alarm.text
    assert alarms_over(watched, clock, 65) == []


@pytest.mark.parametrize(
    ("factor", "expected"), [(1.1, []), (1.3, ["predictor_drift"]), (0.7, ["predictor_drift"])]
)
def test_a_predictor_drifts_when_decode_alone_takes_another_time(
    watched: Telemetry, clock: HandClock, factor: float, expected: list[str]
) -> None:
    for _ in range(100):
        alone = step(prefill_new_tokens=0, prefill_layers=0, measured_step_s=0.02 * factor)
        watched.on_message(alone)
    assert kinds(alarms_over(watched, clock, 15)) == expected


@pytest.mark.parametrize(("late_s", "expected"), [(0.01, []), (0.0, ["predictor_drift"])])
def test_no_predictor_drifts_when_a_step_waits_for_its_launch(
    watched: Telemetry, clock: HandClock, late_s: float, expected: list[str]
) -> None:
    fused = step(mode="fused", predicted_fused_s=0.01, measured_step_s=0.02, host_late_s=late_s)
    for _ in range(100):
        watched.on_message(fused)
    assert kinds(alarms_over(watched, clock, 15)) == expected
