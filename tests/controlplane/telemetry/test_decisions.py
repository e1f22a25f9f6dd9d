"""Decisions: kept one by one, told folded, with nothing uncounted; and what is summed up from them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from telemetry_feeds import START_S, HandClock, directory, heartbeat, named, read_events, step, telemetry

from pdmuxd.controlplane.events.buffer import EventId
from pdmuxd.controlplane.events.follow import Subscription, follow
from pdmuxd.controlplane.events.messages import TbtTarget
from pdmuxd.controlplane.node.engine_status import EngineStatus
from pdmuxd.controlplane.telemetry.decisions import FOLDED_PER_TICK, Decisions
from pdmuxd.controlplane.telemetry.drift import DriftWatch
from pdmuxd.controlplane.telemetry.frames import StrictestTarget
from pdmuxd.controlplane.telemetry.guard import GuardView
from pdmuxd.controlplane.telemetry.partitions import PartitionUse
from pdmuxd.controlplane.telemetry.telemetry import TICK_S, TICKS_PER_SECOND


@settings(deadline=None)
@given(groups=st.lists(st.integers(1, 4), max_size=80))
def test_every_decision_is_counted_in_some_event_when_they_are_folded(groups: list[int]) -> None:
    decisions = Decisions()
    for partition_id in groups:
        decisions.add(step(partition_id=partition_id), START_S)
    events = list(decisions.flush())
    assert sum(event.count + event.folded_other for event in events) == len(groups)
    assert len(events) <= FOLDED_PER_TICK
    assert list(decisions.flush()) == []


def test_the_worst_of_a_run_is_told_when_it_is_folded() -> None:
    decisions = Decisions()
    for measured_s, slack_s in ((0.02, 0.01), (0.05, -0.01), (0.03, 0.005)):
        decisions.add(step(measured_step_s=measured_s, tbt_slack_s=slack_s), START_S)
    (event,) = decisions.flush()
    assert (event.count, event.seq) == (3, 3)
    assert (event.measured_ms, event.measured_max_ms) == (30, 50)
    assert (event.slack_ms, event.slack_min_ms) == (5, -10)


def test_what_moved_one_of_a_run_is_told_when_it_is_folded() -> None:
    decisions = Decisions()
    for ratio in (1.1, 1.2, None):
        decisions.add(step(prefill_ratio=ratio), START_S)
    (event,) = decisions.flush()
    assert (event.count, event.prefill_ratio, event.split_ratio) == (3, 1.2, None)


def test_who_sits_out_is_told_with_whose_target_it_is_for() -> None:
    asked: list[TbtTarget] = []

    def strictest() -> TbtTarget:
        asked.append(TbtTarget(tenant="chat", tbt_ms=20.0))
        return asked[-1]

    decisions = Decisions(strictest=strictest)
    for number, out in enumerate((0, 3, 12, 0)):
        decisions.add(step(step=number, sitting_out=out), START_S + number / 100)
    events = list(decisions.flush())
    assert [(event.count, event.sitting_out) for event in events] == [(1, 0), (2, 12), (1, 0)]
    assert [event.sitting_out_for for event in events] == [None, asked[0], None]
    assert len(asked) == 1
    decisions.add(step(sitting_out=1), START_S + 1.0)
    assert len(asked) == 2


def test_the_oldest_are_forgotten_when_there_are_too_many() -> None:
    decisions = Decisions(kept=3)
    for number in range(5):
        decisions.add(step(step=number), START_S)
    assert [seen.record.step for seen in decisions.snapshot()] == [2, 3, 4]
    assert decisions.total == 5


def test_one_step_is_measured_when_several_were_launched_at_once() -> None:
    seen = Decisions().add(step(decode_steps=4, measured_step_s=0.1), START_S)
    assert seen.measured_s == pytest.approx(0.025)


def test_time_and_tokens_are_summed_by_group_when_steps_end() -> None:
    use = PartitionUse()
    use.layers = 32
    use.add(step(partition_id=1, prefill_new_tokens=3200, prefill_layers=8, measured_step_s=0.02))
    use.add(step(partition_id=1, prefill_new_tokens=3200, prefill_layers=24, measured_step_s=0.03))
    use.add(step(mode="fused", partition_id=0, prefill_new_tokens=500, measured_step_s=0.04))
    use.add(step(mode="decode", partition_id=3, prefill_new_tokens=0, measured_step_s=0.01))
    groups, fused, decode = use.snapshot()
    assert set(groups) == {(96, 36)}
    found = groups[96, 36]
    assert found.time_s == pytest.approx(0.05)
    assert (found.decisions, found.decode_tokens) == (2, 8)
    assert found.prefill_tokens == pytest.approx(3200)
    assert (fused.prefill_tokens, fused.decode_tokens) == (500, 4)
    assert (decode.prefill_tokens, decode.decode_tokens, decode.time_s) == (0.0, 4, 0.01)


def test_a_guard_cell_shows_its_rise_when_decisions_use_more() -> None:
    view = GuardView()
    for ratio, measured_s in ((1.2, 0.022), (1.2, 0.03), (1.5, 0.021)):
        view.add(step(guard_ratio=ratio, measured_decode_s=measured_s), START_S)
    view.add(step(prefill_new_tokens=0, guard_ratio=3.0), START_S)
    ((cell, seen),) = view.snapshot()
    assert cell[0] == 36
    assert (seen.ratio, seen.raised, seen.samples) == (1.5, True, 3)
    assert seen.observed_max_ratio == pytest.approx(1.5)


def test_only_work_alone_is_compared_when_drift_is_looked_for() -> None:
    watch = DriftWatch()
    watch.layers = 32
    watch.add(step(measured_step_s=0.08), START_S)  # beside a prefill: contention, not drift
    watch.add(step(prefill_new_tokens=0, prefill_layers=0, measured_step_s=0.022), START_S)
    for prefill_sms in (0, 132):  # as the two engines count a batch that has all SMs
        sizes = {"prefill_sms": prefill_sms, "decode_sms": 132}
        watch.add(step(mode="fused", **sizes, predicted_fused_s=0.03, measured_step_s=0.033), START_S)
    watch.add(step(predicted_prefill_s=0.32, measured_prefill_s=0.096), START_S)
    found = {(each.work, each.sms): each.p50_ratio for each in watch.all(START_S)}
    assert found == {("decode", 36): 1.1, ("fused", 132): 1.1, ("prefill", 96): 1.2}


def test_events_are_told_once_a_second_when_nobody_has_followed_for_a_while() -> None:
    clock = HandClock()
    known = telemetry(clock)

    def stats_in(seconds: int) -> int:
        before = known.published["stats"]
        for _ in range(seconds * TICKS_PER_SECOND):
            clock.turn(TICK_S)
            known.on_message(step())
            known.tick()
        return known.published["stats"] - before

    assert stats_in(59) == 59 * TICKS_PER_SECOND
    clock.turn(2.0)
    assert stats_in(10) == 10
    known.events.clients = 1
    assert stats_in(10) == 10 * TICKS_PER_SECOND
    events = known.events.after(0, 10_000)
    counted = sum(json.loads(each.data)["count"] for each in events if each.type == "decision")
    assert counted == known.decisions.total == 79 * TICKS_PER_SECOND


def test_the_split_is_of_the_reason_that_is_told_when_the_heartbeat_is_older() -> None:
    known = telemetry(HandClock())
    heard = heartbeat(partition_id=1, prefill_sms=96, decode_sms=36)
    known.status = lambda: EngineStatus(state="serving", since_s=START_S, stats=heard)  # type: ignore[misc]
    known.on_message(heard)
    known.on_message(step(reason="decode_alone", partition_id=3, prefill_sms=0, decode_sms=132))
    told = known.stats_event(START_S)
    assert (told.reason, told.partition_id, told.prefill_sms, told.decode_sms) == ("decode_alone", 3, 0, 132)


async def test_everything_is_told_when_an_engine_works() -> None:
    clock = HandClock()
    known = telemetry(clock)
    now = EventId(session=known.events.session, number=known.events.head)
    for second in range(10):
        known.status = lambda second=second: EngineStatus(  # type: ignore[misc]
            state="serving", since_s=START_S, stats=heartbeat(steps=second * 50, output_tokens=second * 200)
        )
        known.on_message(known.status().stats or heartbeat())
        for _ in range(5):
            known.on_message(step())
        for _ in range(10):
            known.tick()
            clock.turn(0.1)
    known.on_directory(directory(2, chat=0.03))
    known.events.close()

    subscription = Subscription(hello=lambda: known.hello("reader"), after=now)
    stream = follow(known.events, subscription, clock=clock)
    events = read_events("".join([chunk.decode() async for chunk in stream]))

    assert events[0].data["role"] == "reader"
    last = named(events, "stats")[-1].data
    assert len(named(events, "stats")) == 100
    assert (last["steps_per_s"], last["output_tokens_per_s"]) == (50.0, 200.0)
    assert (last["mode"], last["reason"]) == ("split", "best_fit")
    assert sum(event.data["count"] for event in named(events, "decision")) == 50
    assert len(named(events, "tenants")) == 10
    (changed,) = named(events, "settings")
    assert [(one["tenant"], one["tbt_ms"]) for one in changed.data["changed"]] == [("chat", 30.0)]
    numbers = [event.number for event in events if event.id is not None]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


@pytest.mark.parametrize(
    ("in_flight", "named_one"),
    [
        ({}, "strict"),
        ({"loose": 2}, "loose"),
        ({"loose": 2, "strict": 0}, "loose"),
        ({"strict": 1}, "strict"),
    ],
)
def test_the_target_is_of_those_with_requests_when_a_stricter_tenant_is_idle(in_flight, named_one):
    found = StrictestTarget()(directory(strict=0.02, loose=0.1), in_flight, {})
    assert found is not None
    assert found.tenant == named_one
