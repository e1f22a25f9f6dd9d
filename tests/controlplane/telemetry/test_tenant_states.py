"""How each tenant stands is kept as its requests end, a few tenants at a time."""

from __future__ import annotations

from telemetry_feeds import START_S, HandClock, request_record, telemetry

from pdmuxd.controlplane.history.batch import NODE, unpacked
from pdmuxd.controlplane.history.columns import Column
from pdmuxd.controlplane.telemetry.attainment import HOUR_S
from pdmuxd.controlplane.telemetry.telemetry import TICK_S, TICKS_PER_SECOND, Telemetry
from pdmuxd.controlplane.telemetry.tenant_states import AT_ONCE


def turn(known: Telemetry, clock: HandClock, seconds: float) -> None:
    for _ in range(round(seconds * TICKS_PER_SECOND)):
        clock.turn(TICK_S)
        known.tick()


def verdict_of(known: Telemetry, name: str) -> str:
    return known.states.of(name).verdict


def test_a_verdict_follows_when_requests_end_and_windows_pass() -> None:
    clock = HandClock()
    known = telemetry(clock, chat=0.04)
    assert verdict_of(known, "chat") == "no_traffic"
    known.on_request(request_record(ttft_s=9.0))
    turn(known, clock, 1)
    assert (verdict_of(known, "chat"), dict(known.states.verdicts)) == ("missed", {"missed": 1})
    assert known.states.of("chat").met_ratio == 0.0
    # With nothing else to say of it, it is looked at once in each slot of half a minute.
    turn(known, clock, 340)
    assert (verdict_of(known, "chat"), known.states.verdicts["missed"]) == ("no_traffic", 0)
    assert list(known.states.active()) == ["chat"]
    clock.turn(HOUR_S)
    turn(known, clock, 1)
    assert list(known.states.active()) == []


def test_traffic_between_the_steps_of_turns_is_counted_once() -> None:
    clock = HandClock()
    known = telemetry(clock, **{f"t{n}": 0.04 for n in range(60)})
    ended = 0
    for _ in range(12 * TICKS_PER_SECOND):
        clock.turn(TICK_S)
        for _ in known.turn():
            name = f"t{ended % 60}"
            known.on_begin(f"r{ended}", tenant=name, path="/v1/completions")
            known.on_read(f"r{ended}", is_streamed=True, body_bytes=400, read_s=0.0)
            known.on_request(request_record(request_id=f"r{ended}", tenant=name, ttft_s=9.0))
            known.on_answered(f"r{ended}", status=200)
            ended += 1
    assert ended > 1000
    turn(known, clock, 3)
    assert sum(each.requests for each in known.tenants.values()) == known.everyone.requests == ended
    kept = known.recorder.packed(NODE, start_s=int(START_S), end_s=int(START_S) + 60)
    assert sum(unpacked(packed)[Column.ENDED] for _, packed in kept) == ended
    assert dict(known.states.verdicts) == {"missed": 60}
    assert len(known.incidents.causes()) == 60


def test_a_tenant_that_waits_late_is_missed_before_any_request_ends() -> None:
    clock = HandClock()
    known = telemetry(clock, chat=0.04)
    known.on_begin("r1", tenant="chat", path="/")
    known.on_read("r1", is_streamed=True, body_bytes=100, read_s=0.0)
    turn(known, clock, 0.4)
    assert verdict_of(known, "chat") == "no_traffic"
    turn(known, clock, 2)
    assert verdict_of(known, "chat") == "missed"


def test_nothing_is_kept_of_a_tenant_that_is_gone() -> None:
    clock = HandClock()
    known = telemetry(clock, chat=0.04)
    known.on_request(request_record(ttft_s=9.0))
    turn(known, clock, 1)
    known.on_directory(telemetry(clock, other=0.04).directory)
    assert (verdict_of(known, "chat"), known.states.verdicts["missed"]) == ("no_traffic", 0)
    assert list(known.states.active()) == []


def test_many_tenants_are_looked_at_in_turns_when_all_change_at_once() -> None:
    clock = HandClock()
    names = [f"t{number}" for number in range(3 * AT_ONCE)]
    known = telemetry(clock, **dict.fromkeys(names, 0.04))
    for name in names:
        known.on_request(request_record(request_id=name, tenant=name))
    seen = [known.states.verdicts["met"]]
    for _ in range(4):
        turn(known, clock, TICK_S)
        seen.append(known.states.verdicts["met"])
    assert seen == [0, AT_ONCE, 2 * AT_ONCE, 3 * AT_ONCE, 3 * AT_ONCE]
