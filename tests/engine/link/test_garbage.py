"""No full collection while answers run, and a bound on what that may cost in memory."""

from __future__ import annotations

import asyncio
import gc
import threading

import pytest

from pdmuxd.engine.link import garbage
from pdmuxd.engine.link.garbage import NEVER, GarbageHolder, read_reports, remove_reports, report_path


class Cycle:
    """Two objects that hold each other: only a collection frees them."""

    def __init__(self):
        self.other = [self]


@pytest.fixture
def holding(monkeypatch):
    """Makes holders whose thread does not look by itself, and ends them."""
    monkeypatch.setattr(garbage, "LOOK_EVERY_S", 3600.0)
    made = []

    def make(*, is_idle=lambda: False, path=None, keeps_thresholds=False):
        holder = GarbageHolder("http", is_idle=is_idle, path=path)
        holder.hold(keeps_thresholds=keeps_thresholds)
        made.append(holder)
        return holder

    yield make
    for holder in made:
        holder.release()
    gc.freeze()  # what the tests' own process had frozen: no collection need walk through it


def full(holder):
    return holder.report().generations[2]


def make_survivors():
    """Cycles that the younger generations no longer look at."""
    cycles = [Cycle() for _ in range(100)]
    gc.collect(1)
    gc.collect(1)
    del cycles


def test_python_itself_never_looks_when_held(holding):
    frozen = gc.get_freeze_count()
    kept = [Cycle() for _ in range(100)]
    holding()
    assert gc.get_threshold()[0] == NEVER
    assert gc.get_freeze_count() >= frozen + len(kept)


def test_many_young_objects_are_not_looked_at(holding):
    holder = holding()
    kept = [Cycle() for _ in range(50_000)]
    assert [it.count for it in holder.report().generations] == [0, 0, 0]
    assert gc.get_count()[0] >= len(kept)


def test_all_objects_are_collected_when_no_answer_runs_any_more(holding):
    busy = True
    holder = holding(is_idle=lambda: not busy)
    make_survivors()
    holder.look()
    assert full(holder).count == 0
    busy = False
    holder.look()
    assert full(holder).count == 1
    assert full(holder).found >= 100
    assert holder.report().forced == 0


def test_what_an_idle_process_made_is_collected_once_it_is_much(holding):
    holder = holding(is_idle=lambda: True)
    holder.look()
    assert full(holder).count == 0
    kept = [Cycle() for _ in range(garbage.FEW_OBJECTS)]
    holder.look()
    holder.look()
    assert full(holder).count == 1
    assert gc.get_freeze_count() >= len(kept)


def test_cycles_of_what_was_frozen_are_found_when_the_process_has_grown(holding, monkeypatch):
    size = 10 * 2**20
    monkeypatch.setattr(garbage, "resident_bytes", lambda: size)
    holder = holding(is_idle=lambda: True)
    kept = [Cycle() for _ in range(garbage.FEW_OBJECTS)]
    holder.look()
    kept.clear()
    kept += [Cycle() for _ in range(garbage.FEW_OBJECTS)]
    holder.look()
    assert full(holder).found < 100
    size += garbage.MAX_GROWTH_BYTES + 1
    kept += [Cycle() for _ in range(garbage.FEW_OBJECTS)]
    holder.look()
    assert full(holder).found >= garbage.FEW_OBJECTS
    assert holder.report().forced == 0


def test_a_collection_is_forced_while_answers_run_when_the_process_has_grown(holding, monkeypatch):
    size = 10 * 2**20
    monkeypatch.setattr(garbage, "resident_bytes", lambda: size)
    holder = holding(is_idle=lambda: False)
    make_survivors()
    size += garbage.MAX_GROWTH_BYTES
    holder.look()
    assert full(holder).count == 0
    size += 1
    holder.look()
    assert holder.report().forced == 1
    assert full(holder).found >= 100
    # From here on: the process may be as large as it is.
    holder.look()
    assert holder.report().forced == 1


def test_a_users_thresholds_stay_when_they_are_kept(holding):
    before = gc.get_threshold()
    holder = holding(is_idle=lambda: True, keeps_thresholds=True)
    gc.collect(0)
    holder.look()
    assert gc.get_threshold() == before
    assert full(holder).count == 0
    assert holder.report().generations[0].count >= 1
    assert not holder.report().is_held


def test_a_second_hold_freezes_what_has_come_since_and_counts_anew(holding):
    holder = holding()
    kept = [Cycle() for _ in range(100)]
    gc.collect(0)
    frozen = gc.get_freeze_count()
    holder.hold()
    assert gc.get_freeze_count() >= frozen + len(kept)
    assert holder.report().generations[0].count == 0
    assert gc.callbacks.count(holder._collected) == 1


def test_the_process_is_as_before_when_it_is_released(holding):
    before, callbacks = gc.get_threshold(), list(gc.callbacks)
    GarbageHolder("http", is_idle=lambda: True).release()  # that never began
    holder = holding()
    holder.release()
    assert gc.get_threshold() == before
    assert gc.callbacks == callbacks
    assert gc.get_freeze_count() == 0


async def test_it_looks_in_the_event_loop_when_it_was_held_there(holding, monkeypatch):
    looked = asyncio.Event()
    seen = []
    monkeypatch.setattr(garbage, "LOOK_EVERY_S", 0.01)

    def is_idle():
        seen.append(threading.current_thread())
        looked.set()
        return False

    holding(is_idle=is_idle)
    gc.collect(0)
    async with asyncio.timeout(10):
        await looked.wait()
    assert seen[0] is threading.main_thread()


def test_reports_are_read_beside_the_link_until_they_are_removed(holding, tmp_path):
    link = f"ipc://{tmp_path}/engine-1.sock"
    holder = holding(path=report_path(link, "http"))
    gc.collect(0)
    holder.write()
    report_path(link, "scheduler").write_text("no report")
    report_path(f"ipc://{tmp_path}/engine-2.sock", "http").write_text("{}")
    assert list(read_reports(link)) == [holder.report()]
    remove_reports(link)
    assert not list(read_reports(link))
    assert [path.name for path in tmp_path.iterdir()] == ["engine-2.sock.garbage-http.json"]


def test_a_long_collection_is_kept_with_its_time(holding, monkeypatch):
    monkeypatch.setattr(garbage, "LONG_S", 0.0)
    holder = holding()
    gc.collect(1)
    last = holder.report().recent[-1]
    assert last.generation == 1
    assert last.duration_s > 0
    assert holder.report().generations[1].longest_s >= last.duration_s
