"""Independent pieces of work, one after another or in a pool of processes that ends with its parent."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.queues import Queue
from typing import Any, TypeVar, cast

from pdmuxd.engine.core.errors import EngineLostError

REPORT_EVERY_S = 0.2
"""How often a worker reports its progress."""

Shared = TypeVar("Shared")
Task = TypeVar("Task")
Report = TypeVar("Report")
Result = TypeVar("Result")

Work = Callable[[Shared, Task, Callable[[Report], None]], Result]
"""Does one task. A function of a module, since it travels to the workers by name."""

_Reports = Queue  # of (task index, report)


def run_tasks(
    work: Work[Shared, Task, Report, Result],
    shared: Shared,
    tasks: Sequence[Task],
    jobs: int,
    *,
    on_report: Callable[[int, Report], None],
    on_done: Callable[[int, Result], None] = lambda _index, _result: None,
) -> list[Result]:
    """Do every task; results in the order of `tasks`, whatever the number of jobs.

    `shared` travels to each worker once. `on_done` is called as results come, with the task's index.
    Raises: what `work` raises; EngineLostError if a worker process dies.
    """
    if jobs <= 1 or len(tasks) <= 1:
        return [_here(work, shared, task, index, on_report, on_done) for index, task in enumerate(tasks)]
    context = multiprocessing.get_context("spawn")  # fork would copy the progress bar's thread and lock
    reports: _Reports[tuple[int, Any]] = context.Queue()
    pool = ProcessPoolExecutor(
        min(jobs, len(tasks)),
        context,
        initializer=_start_worker,
        initargs=(work, shared, reports, os.getpid()),
    )
    others = set(multiprocessing.active_children())
    finished = False
    try:
        run = cast("Callable[[int, Task], Result]", _work)
        futures = [pool.submit(run, index, task) for index, task in enumerate(tasks)]
        _follow(futures, reports, on_report, on_done)
        results = [future.result() for future in futures]
        finished = True
        return results
    except BrokenProcessPool:
        raise EngineLostError("a worker process died; is there enough memory for --jobs?") from None
    finally:
        if not finished:  # an error or Ctrl-C: the other results are not needed any more
            for worker in set(multiprocessing.active_children()) - others:
                worker.terminate()
        pool.shutdown(wait=True, cancel_futures=True)
        reports.close()
        reports.join_thread()


def _here(
    work: Work[Shared, Task, Report, Result],
    shared: Shared,
    task: Task,
    index: int,
    on_report: Callable[[int, Report], None],
    on_done: Callable[[int, Result], None],
) -> Result:
    result = work(shared, task, lambda report: on_report(index, report))
    on_done(index, result)
    return result


def _follow(
    futures: Sequence[Future[Result]],
    reports: _Reports[tuple[int, Any]],
    on_report: Callable[[int, Any], None],
    on_done: Callable[[int, Result], None],
) -> None:
    """Pass reports and results on until all are done; raises the first error."""
    running = {future: index for index, future in enumerate(futures)}
    while running:
        done, _ = wait(running, timeout=REPORT_EVERY_S, return_when=FIRST_COMPLETED)
        try:
            while True:
                on_report(*reports.get_nowait())
        except queue.Empty:
            pass
        for future in done:
            on_done(running.pop(future), future.result())


_job: Callable[[int, Any], object] | None = None


def _start_worker(
    work: Work[Shared, Task, Report, Result],
    shared: Shared,
    reports: _Reports[tuple[int, Any]],
    parent_pid: int,
) -> None:
    # Ctrl-C reaches the whole process group: end at once instead of printing a traceback each.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    reported_s = 0.0

    def run(index: int, task: Task) -> Result:
        def report(message: Report) -> None:
            nonlocal reported_s
            wall_s = time.monotonic()
            if wall_s - reported_s < REPORT_EVERY_S:
                return
            reported_s = wall_s
            if os.getppid() != parent_pid:
                os._exit(1)  # the command was killed: nobody reads the result
            reports.put((index, message))

        return work(shared, task, report)

    global _job  # a pool can pass something to its workers only through a global
    _job = run


def _work(index: int, task: object) -> object:
    assert _job is not None, "the pool starts its workers with _start_worker"  # noqa: S101
    return _job(index, task)
