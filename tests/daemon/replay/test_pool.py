from __future__ import annotations

import multiprocessing

import pool_work
import pytest

from pdmuxd.daemon.replay.pool import run_tasks
from pdmuxd.engine.core.errors import EngineLostError


@pytest.mark.parametrize("jobs", [1, 3])
def test_results_are_in_order_and_all_are_told_when_tasks_end_in_any_order(jobs: int) -> None:
    told: dict[int, int] = {}
    heard: set[int] = set()
    results = run_tasks(
        pool_work.scaled,
        10,
        [0, 1, 2, 3],
        jobs,
        on_report=lambda index, report: heard.add(index),
        on_done=told.__setitem__,
    )
    assert results == [0, 10, 20, 30]
    assert told == {0: 0, 1: 10, 2: 20, 3: 30}
    assert heard <= {0, 1, 2, 3}


def test_nothing_is_started_when_there_is_nothing_to_do() -> None:
    assert run_tasks(pool_work.scaled, 1, [], 4, on_report=lambda index, report: None) == []


def test_a_lost_worker_is_named_when_it_dies() -> None:
    with pytest.raises(EngineLostError, match="a worker process died"):
        run_tasks(pool_work.dies, 1, [0, 1, 2], 2, on_report=lambda index, report: None)
    assert multiprocessing.active_children() == []


def test_the_other_workers_are_not_waited_for_when_a_task_fails() -> None:
    with pytest.raises(ValueError, match="task 1"):
        run_tasks(pool_work.fails, 1, [0, 1, 2, 3], 2, on_report=lambda index, report: None)
    assert multiprocessing.active_children() == []
