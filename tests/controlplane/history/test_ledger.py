"""Each request that ended is one entry, and what usage says is the sum of the entries."""

from __future__ import annotations

import pytest
from telemetry_feeds import START_S, HandClock, directory, request_record

from pdmuxd.controlplane.history.columns import Column
from pdmuxd.controlplane.history.history import History
from pdmuxd.controlplane.history.ledger import LedgerEntry
from pdmuxd.controlplane.history.recorder import Recorder
from pdmuxd.controlplane.history.writing import Retention
from pdmuxd.engine.core.errors import StoreError

DAY = 86_400


@pytest.fixture(autouse=True)
def tenants(recorder: Recorder) -> None:
    recorder.use(directory(chat=0.04, batch=0.2).tenants)


def serve(recorder: Recorder, *ids: str, tenant: str = "chat") -> None:
    for rid in ids:
        record = request_record(request_id=rid, tenant=tenant)
        recorder.row(tenant)[Column.ENDED] += 1
        recorder.row(tenant)[Column.OUTPUT_TOKENS] += record.output_tokens
        recorder.ended(record, is_good=True, ttft_s=0.3, key_id="k_1", status=200, duration_s=0.25)


def entries(history: History, **more: object) -> list[LedgerEntry]:
    asked = {"start_s": 0, "end_s": 2**40, "tenant": None, "since_ms": None, "key_id": None} | more
    return [entry for _, entry in history.ledger.list(**{"after_id": 0, "limit": 1000} | asked)]  # type: ignore[arg-type]


async def ended(history: History, now_s: float) -> int:
    start_s = int(now_s) // 3600 * 3600
    found = await history.usage(start_s, start_s + 3600, now_s=now_s, tenant=None, since_ms=None)
    return sum(use.counts[Column.ENDED] for use in found)


async def test_requests_of_a_second_are_stored_with_its_sums_and_not_before(
    history: History, recorder: Recorder, clock: HandClock
) -> None:
    serve(recorder, "a", "b")
    await history.flush()
    assert entries(history) == []
    assert await ended(history, clock.now_s) == 0
    clock.turn(1.0)
    recorder.turn({})
    await history.flush(share_sm_time=False)
    assert [entry.request_id for entry in entries(history)] == ["a", "b"]
    assert await ended(history, clock.now_s) == 2
    entry = entries(history)[0]
    assert (entry.at, entry.key_id, entry.status, entry.duration_ms) == (int(START_S), "k_1", 200, 250)


async def test_neither_is_stored_and_both_are_kept_when_the_database_refuses(
    history: History, recorder: Recorder, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise StoreError("database or disk is full")

    serve(recorder, "a")
    clock.turn(1.0)
    recorder.turn({})
    with monkeypatch.context() as broken:
        broken.setattr("pdmuxd.controlplane.history.writing.write_entries", full)
        with pytest.raises(StoreError):
            await history.flush()
    assert entries(history) == []
    serve(recorder, "b")
    clock.turn(1.0)
    recorder.turn({})
    await history.flush()
    assert [entry.request_id for entry in entries(history)] == ["a", "b"]
    assert await ended(history, clock.now_s) == 2


async def test_a_tenant_that_is_deleted_within_the_second_keeps_its_requests(
    history: History, recorder: Recorder, clock: HandClock
) -> None:
    serve(recorder, "a", tenant="batch")
    recorder.use(directory(chat=0.04).tenants)
    await history.flush()
    assert [entry.request_id for entry in entries(history)] == ["a"]
    assert await ended(history, clock.now_s) == 1


async def test_they_are_found_by_tenant_key_time_and_id(
    history: History, recorder: Recorder, clock: HandClock
) -> None:
    serve(recorder, "a", "b")
    serve(recorder, "c", tenant="batch")
    clock.turn(1.0)
    recorder.turn({})
    await history.flush()
    assert [entry.request_id for entry in entries(history, tenant="batch")] == ["c"]
    assert entries(history, key_id="k_2") == []
    assert entries(history, start_s=int(START_S) + 1) == []
    assert [entry.request_id for entry in entries(history, limit=2)] == ["a", "b"]
    ((second, _),) = history.ledger.list(
        start_s=0, end_s=2**40, tenant=None, since_ms=None, key_id=None, after_id=1, limit=1
    )
    assert second == 2


async def test_the_old_ones_and_those_beyond_the_most_are_deleted_and_usage_stays(
    history: History, recorder: Recorder, clock: HandClock
) -> None:
    for number in range(5):
        serve(recorder, str(number))
        clock.turn(1.0)
        recorder.turn({})
    await history.flush()
    history.retention = Retention(requests_days=7, max_requests=3)
    await history.prune(clock.now_s)
    assert [entry.request_id for entry in entries(history)] == ["2", "3", "4"]
    history.retention = Retention(requests_days=1)
    await history.prune(START_S + 3 + DAY)
    assert [entry.request_id for entry in entries(history)] == ["3", "4"]
    assert await ended(history, clock.now_s) == 5
