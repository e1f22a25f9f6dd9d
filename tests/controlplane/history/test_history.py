"""What is counted is kept: by the second in memory, by minute, hour and day in the database."""

from __future__ import annotations

import pytest
from telemetry_feeds import START_S, HandClock, directory

from pdmuxd.controlplane.history import recorder as recording
from pdmuxd.controlplane.history.batch import NODE, Gauges, unpacked
from pdmuxd.controlplane.history.columns import Column
from pdmuxd.controlplane.history.history import MAX_POINTS, History, Period
from pdmuxd.controlplane.history.recorder import Recorder
from pdmuxd.controlplane.history.writing import Retention
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.engine.core.errors import InvalidValueError, StoreError

MINUTE, HOUR, DAY = 60, 3600, 86400


def serve(
    recorder: Recorder, clock: HandClock, *, seconds: int, tenant: str = "chat", arrivals: int = 1
) -> None:
    """So many requests in each second."""
    for _ in range(seconds):
        recorder.row(tenant)[Column.ARRIVALS] += arrivals
        clock.turn(1.0)
        recorder.turn({})


async def arrivals(history: History, tenant: str, step_s: int, *, since_ms: int = 0) -> dict[int, int]:
    now_s = history.recorder._wall_clock()
    length_s = min(1000 * step_s, 30 * DAY)
    period = Period(start_s=now_s - length_s, end_s=now_s + 1, step_s=step_s)
    points = await history.read(tenant, since_ms, period)
    return {at: row[Column.ARRIVALS] for at, row in points if row[Column.ARRIVALS]}


@pytest.fixture(autouse=True)
def tenants(recorder: Recorder) -> None:
    recorder.use(directory(chat=0.04, batch=0.2).tenants)


async def test_seconds_minutes_hours_and_days_agree(
    history: History, recorder: Recorder, clock: HandClock
) -> None:
    clock.now_s = START_S - 90  # so that minutes, the hour and the day change meanwhile
    serve(recorder, clock, seconds=0)
    recorder.turn({})
    serve(recorder, clock, seconds=150)
    await history.flush()
    serve(recorder, clock, seconds=30)
    for step_s in (1, 10, MINUTE, 5 * MINUTE, HOUR, DAY):
        found = await arrivals(history, "chat", step_s)
        assert sum(found.values()) == 180, f"steps of {step_s} s"
        assert all(at % step_s == 0 for at in found)
        assert await arrivals(history, NODE, step_s) == found
    assert await arrivals(history, "chat", MINUTE) == {
        int(START_S) - 120: 30,
        int(START_S) - 60: 60,
        int(START_S): 60,
        int(START_S) + 60: 30,
    }
    assert await arrivals(history, "batch", MINUTE) == {}


async def test_what_comes_while_a_second_is_closed_is_of_the_next(
    history: History, recorder: Recorder, clock: HandClock
) -> None:
    recorder.use(directory(**{f"t{n}": 0.04 for n in range(100)}).tenants)
    for n in range(100):
        recorder.row(f"t{n}")[Column.ARRIVALS] += 1
    clock.turn(1.0)
    closing = recorder.turn([(f"t{n}", Gauges(waiting=2)) for n in range(100)])
    next(closing)
    recorder.row("t99")[Column.ARRIVALS] += 10
    next(closing)
    await history.flush()  # which stores all of the second, and none of the next
    assert list(closing) == []
    assert await arrivals(history, "t99", MINUTE) == {int(START_S): 1}
    assert await arrivals(history, NODE, MINUTE) == {int(START_S): 100}
    for _ in range(2):  # and what was not closed to its end is with the next
        clock.turn(1.0)
        recorder.turn(())
    assert await arrivals(history, "t99", 1) == {int(START_S): 1, int(START_S) + 1: 10}
    assert recorder.pending("t99")[0][1][Column.ARRIVALS] == 10
    assert (
        unpacked(recorder.packed(NODE, start_s=int(START_S), end_s=int(START_S) + 1)[0][1])[Column.WAITING]
        == 200
    )


async def test_a_minute_is_whole_when_the_daemon_starts_again_within_it(
    history: History, recorder: Recorder, clock: HandClock, control_plane: ControlPlane
) -> None:
    serve(recorder, clock, seconds=20)
    await history.flush()
    again = Recorder(clock)
    again.use(directory(chat=0.04).tenants)
    after = History(again, control_plane.store)
    serve(again, clock, seconds=10)
    assert await arrivals(after, "chat", MINUTE) == {int(START_S): 30}
    await after.flush()
    assert await arrivals(after, "chat", MINUTE) == {int(START_S): 30}


async def test_largest_values_stay_the_largest(
    history: History, recorder: Recorder, clock: HandClock
) -> None:
    for late, oldest_s in ((3, 1.5), (9, 7.25), (0, 0.0)):
        gauges = {"chat": Gauges(waiting=late + 1, late=late, oldest_wait_s=oldest_s, in_flight=late + 2)}
        clock.turn(1.0)
        recorder.turn(gauges.items())
        await history.flush()
    period = Period(start_s=START_S, end_s=START_S + HOUR, step_s=HOUR)
    for tenant in ("chat", NODE):
        ((_, row),) = await history.read(tenant, 0, period)
        names = (Column.LATE, Column.WAITING, Column.IN_FLIGHT, Column.WORST_WAIT_MS)
        assert [row[name] for name in names] == [9, 10, 11, 7250]


async def test_sm_time_is_shared_by_tokens_and_none_is_lost(
    history: History, recorder: Recorder, clock: HandClock
) -> None:
    recorder.sm_time(prefill_sm_s=10.0, decode_sm_s=20.0, total_sm_s=132.0)
    clock.turn(1.0)
    recorder.turn({})
    await history.flush()  # nobody has had a token yet
    for tenant, prompt, cached, output in (("chat", 4000, 1000, 100), ("batch", 1000, 0, 300)):
        row = recorder.row(tenant)
        row[Column.PROMPT_TOKENS], row[Column.CACHED_TOKENS], row[Column.OUTPUT_TOKENS] = (
            prompt,
            cached,
            output,
        )
    clock.turn(1.0)
    recorder.turn({})
    period = Period(start_s=START_S, end_s=START_S + MINUTE, step_s=MINUTE)
    await history.flush()
    found = {}
    for tenant in ("chat", "batch", NODE):
        ((_, row),) = await history.read(tenant, 0, period)
        found[tenant] = (row[Column.PREFILL_SM_MS], row[Column.DECODE_SM_MS], row[Column.TOTAL_SM_MS])
    assert found == {
        "chat": (7500, 5000, 132_000),
        "batch": (2500, 15_000, 132_000),
        NODE: (10_000, 20_000, 132_000),
    }


async def test_nothing_is_lost_when_the_database_does_not_take_it_for_a_while(
    history: History, recorder: Recorder, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = history.writer.write

    def locked(batch: object) -> None:
        raise StoreError("the database is locked")

    monkeypatch.setattr(history.writer, "write", locked)
    for _ in range(3):
        serve(recorder, clock, seconds=60)
        recorder.refused("chat", "tenant_limit")
        with pytest.raises(StoreError):
            await history.flush()
    assert sum((await arrivals(history, "chat", MINUTE)).values()) == 180, "shown before it is stored"
    monkeypatch.setattr(history.writer, "write", write)
    await history.flush()
    assert sum((await arrivals(history, "chat", MINUTE)).values()) == 180
    assert (recorder.failed_writes, recorder.lost_rows) == (3, 0)


async def test_what_is_thrown_away_is_counted_when_the_database_is_gone_for_long(
    history: History, recorder: Recorder, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "MAX_PENDING_ROWS", 5)

    def full(batch: object) -> None:
        raise StoreError("database or disk is full")

    monkeypatch.setattr(history.writer, "write", full)
    for _ in range(10):
        serve(recorder, clock, seconds=60)
        with pytest.raises(StoreError):
            await history.flush()
    # Ten minutes of a tenant and of the node: 20 rows.
    assert len(recorder.take().counts) == 5
    assert recorder.lost_rows == 15


async def test_counts_go_to_the_minute_that_the_clock_shows_when_it_is_set(
    history: History, recorder: Recorder, clock: HandClock
) -> None:
    serve(recorder, clock, seconds=10)
    clock.now_s -= 3600
    recorder.turn({})
    serve(recorder, clock, seconds=10)
    clock.now_s += 7200
    recorder.turn({})
    serve(recorder, clock, seconds=10)
    await history.flush()
    found = await arrivals(history, "chat", MINUTE)
    assert sum(found.values()) == 30
    assert list(found) == sorted(found)
    assert len({at // HOUR for at in found}) == 3


async def test_memory_is_bounded_when_many_tenants_are_active(
    recorder: Recorder, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "MAX_SECOND_ROWS", 100)
    names = [f"t{number}" for number in range(9)]
    recorder.use(directory(**dict.fromkeys(names, 0.04)).tenants)
    for _ in range(50):
        for name in names:
            recorder.row(name)[Column.ARRIVALS] += 1
        clock.turn(1.0)
        recorder.turn({})
    kept = [(at, unpacked(row)) for at, row in recorder.packed("t0", start_s=0, end_s=2**40)]
    assert len(kept) == 10  # of ten rows each: nine tenants and the node
    assert recorder.kept_since_s == kept[0][0] == int(START_S) + 40


async def test_a_tenant_sees_nothing_of_one_of_its_name_before_it(
    history: History, recorder: Recorder, clock: HandClock, control_plane: ControlPlane
) -> None:
    first = control_plane.create_tenant("acme")
    control_plane.refresh()
    recorder.use(control_plane.directory.tenants)
    serve(recorder, clock, seconds=5, tenant="acme")
    control_plane.delete_tenant("acme")
    recorder.use(control_plane.directory.tenants)
    second = control_plane.create_tenant("acme")
    recorder.use(control_plane.directory.tenants)
    serve(recorder, clock, seconds=3, tenant="acme")
    await history.flush()
    assert first.since_ms != second.since_ms
    for step_s in (1, MINUTE):
        assert sum((await arrivals(history, "acme", step_s, since_ms=second.since_ms)).values()) == 3
    start_s = int(START_S)
    uses = await history.usage(start_s, start_s + HOUR, now_s=START_S, tenant="acme", since_ms=None)
    assert [(use.series.since_ms, use.counts[Column.ARRIVALS]) for use in uses] == [
        (first.since_ms, 5),
        (second.since_ms, 3),
    ]


async def test_usage_is_the_same_by_minutes_hours_and_days(
    history: History, recorder: Recorder, clock: HandClock
) -> None:
    begin_s = int(START_S) // DAY * DAY + DAY - 2 * HOUR  # two hours before midnight
    clock.now_s = float(begin_s)
    recorder.turn({})
    for _ in range(28 * 12):
        recorder.row("chat")[Column.ARRIVALS] += 1
        recorder.refused("chat", "tenant_limit")
        clock.turn(300.0)
        recorder.turn({})
    await history.flush()

    async def used(start_s: int, end_s: int) -> tuple[int, int]:
        uses = await history.usage(start_s, end_s, now_s=clock(), tenant=None, since_ms=None)
        return (
            sum(use.counts[Column.ARRIVALS] for use in uses),
            sum(sum(use.refusals.values()) for use in uses),
        )

    assert await used(begin_s, begin_s + 28 * HOUR) == (336, 336)
    assert await used(begin_s + 600, begin_s + 27 * HOUR + 300) == (323, 323)
    assert await used(begin_s + 2 * HOUR, begin_s + 26 * HOUR) == (288, 288)
    assert await used(begin_s + 60, begin_s + 120) == (0, 0)


@pytest.mark.parametrize(
    ("start_s", "end_s", "step_s", "field"),
    [(10, 10, 60, "to"), (0, MAX_POINTS + 1, 1, "step_s"), (0, 600, 61, "step_s")],
)
def test_a_period_that_cannot_be_shown_is_named(start_s: int, end_s: int, step_s: int, field: str) -> None:
    with pytest.raises(InvalidValueError) as found:
        Period(start_s=start_s, end_s=end_s, step_s=step_s)
    assert found.value.field == field


async def test_usage_within_an_hour_is_refused_when_its_minutes_are_dropped(history: History) -> None:
    start_s = int(START_S) // HOUR * HOUR
    with pytest.raises(InvalidValueError, match="only whole hours"):
        await history.usage(start_s + 60, start_s + DAY, now_s=START_S + 30 * DAY, tenant=None, since_ms=None)
    with pytest.raises(InvalidValueError, match="whole minutes"):
        await history.usage(start_s + 61, start_s + DAY, now_s=START_S, tenant=None, since_ms=None)


async def test_what_is_old_is_dropped_and_its_sums_stay(
    history: History, recorder: Recorder, clock: HandClock
) -> None:
    history.retention = Retention(minutes_days=1, hours_days=2, days_days=3)
    serve(recorder, clock, seconds=5)
    recorder.refused("chat", "node_limit")
    recorder.decision("split", "best_fit", time_s=0.02, prefill_tokens=100)
    recorder.mark("slo", "chat: TBT 40 to 30 ms", tenant="chat")
    recorder.turn({})
    await history.flush()

    async def kept() -> list[bool]:
        return [bool(await arrivals(history, "chat", step_s)) for step_s in (MINUTE, HOUR, DAY)]

    assert await kept() == [True, True, True]
    for days, wanted in (
        (1.5, [False, True, True]),
        (2.5, [False, False, True]),
        (3.6, [False, False, False]),
    ):
        await history.prune(START_S + days * DAY)
        assert await kept() == wanted
    assert history.reader.series_of("chat", since_ms=None) == []
    serve(recorder, clock, seconds=1)
    await history.flush()
    assert await kept() == [True, True, True], "a tenant that was forgotten is known again"
