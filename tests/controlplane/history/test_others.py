"""What several nodes on one database judge counts on each of them, once."""

from __future__ import annotations

import pytest
from telemetry_feeds import START_S, HandClock, directory

from pdmuxd.controlplane.history.columns import Column
from pdmuxd.controlplane.history.history import History
from pdmuxd.controlplane.history.others import OtherNodes
from pdmuxd.controlplane.history.recorder import Recorder
from pdmuxd.controlplane.services.control_plane import ControlPlane


@pytest.fixture
def nodes(control_plane: ControlPlane, clock: HandClock) -> tuple[History, History]:
    made = []
    for _ in range(2):
        recorder = Recorder(clock)
        recorder.use(directory(chat=0.04, batch=0.2).tenants)
        history = History(recorder, control_plane.store)
        history.others = OtherNodes()
        made.append(history)
    return made[0], made[1]


async def judge(
    history: History, clock: HandClock, *, judged: int, missed: int, tenant: str = "chat"
) -> None:
    row = history.recorder.row(tenant)
    row[Column.TTFT_JUDGED] += judged
    row[Column.TTFT_MISSED] += missed
    clock.turn(1.0)
    history.recorder.turn({})
    await history.flush()


async def seen(history: History, clock: HandClock) -> list[tuple[str, int, int]]:
    found = await history.judged_elsewhere(clock.now_s)
    return [(one.series.tenant, one.counts[0], one.counts[1]) for one in found]


async def test_each_is_told_what_the_other_judged_and_nothing_twice(
    nodes: tuple[History, History], clock: HandClock
) -> None:
    one, other = nodes
    await judge(one, clock, judged=10, missed=1)
    await judge(other, clock, judged=5, missed=5)
    await judge(other, clock, judged=3, missed=0, tenant="batch")
    assert await seen(one, clock) == [("chat", 5, 5), ("batch", 3, 0)]
    assert await seen(other, clock) == [("chat", 10, 1)]
    assert await seen(one, clock) == await seen(other, clock) == []
    await judge(one, clock, judged=2, missed=2)
    await judge(other, clock, judged=1, missed=0)
    assert await seen(one, clock) == [("chat", 1, 0)]
    assert await seen(other, clock) == [("chat", 2, 2)]


async def test_what_was_restored_at_the_start_is_not_told_again(
    nodes: tuple[History, History], clock: HandClock, control_plane: ControlPlane
) -> None:
    one, _ = nodes
    await judge(one, clock, judged=10, missed=1)
    late = History(Recorder(clock), control_plane.store)
    late.others = OtherNodes()
    late.others.known(await one_of(late, clock))
    await judge(one, clock, judged=4, missed=0)
    assert await seen(late, clock) == [("chat", 4, 0)]


async def one_of(history: History, clock: HandClock) -> list:  # type: ignore[type-arg]
    fresh = History(history.recorder, history.reader._store)
    fresh.others = OtherNodes()
    return await fresh.judged_elsewhere(clock.now_s)


async def test_minutes_that_are_over_are_forgotten(nodes: tuple[History, History], clock: HandClock) -> None:
    one, other = nodes
    for _ in range(30):
        await judge(other, clock, judged=1, missed=0)
        assert sum(judged for _, judged, _ in await seen(one, clock)) == 1
        clock.turn(60.0)
    assert one.others is not None
    assert len(one.others._accounted) < 15
    assert clock.now_s > START_S
    await judge(one, clock, judged=1, missed=0)
    assert await seen(one, clock) == []


async def test_a_database_of_one_node_is_not_looked_at(control_plane: ControlPlane, clock: HandClock) -> None:
    history = History(Recorder(clock), control_plane.store)
    assert control_plane.store.is_shared == (history.others is not None)
