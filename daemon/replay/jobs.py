"""Replay several policies, one after another or in a pool of processes."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing.queues import Queue

from pdmuxd.daemon.replay.run import PolicyReplay, ReplayPlan, replay_policy
from pdmuxd.engine.core.errors import EngineLostError

REPORT_EVERY_S = 0.2
"""How often a worker tells how far it is; more often costs more than it shows."""

OnPolicyProgress = Callable[[int, int, float], None]
"""Index of the policy, requests that have ended, virtual time in seconds."""

_Reports = Queue  # of (policy index, requests ended, virtual seconds)


def replay_policies(
    plan: ReplayPlan, policies: Sequence[str], jobs: int, on_progress: OnPolicyProgress
) -> list[PolicyReplay]:
    """Replay every policy; results in the order of `policies`, whatever the number of jobs.

    Raises: what `replay_policy` raises; EngineLostError if a worker process dies.
    """
    if jobs <= 1 or len(policies) == 1:
        return [
            replay_policy(plan, policy, partial(on_progress, index)) for index, policy in enumerate(policies)
        ]
    return _in_pool(plan, policies, min(jobs, len(policies)), on_progress)


def _in_pool(
    plan: ReplayPlan, policies: Sequence[str], jobs: int, on_progress: OnPolicyProgress
) -> list[PolicyReplay]:
    context = multiprocessing.get_context("spawn")  # fork would copy the progress bar's thread and lock
    reports: _Reports[tuple[int, int, float]] = context.Queue()
    pool = ProcessPoolExecutor(jobs, context, initializer=_start_worker, initargs=(reports, os.getpid()))
    finished = False
    try:
        futures = [pool.submit(_work, plan, policy, index) for index, policy in enumerate(policies)]
        _follow(futures, reports, on_progress)
        results = [future.result() for future in futures]
        for index, result in enumerate(results):  # a worker's last report may still be on its way
            on_progress(index, result.metrics.requests, result.metrics.makespan_s)
        finished = True
        return results
    except BrokenProcessPool:
        raise EngineLostError("a replay process died; is there enough memory for --jobs?") from None
    finally:
        if not finished:  # an error or Ctrl-C: the other policies' results are not wanted any more
            for worker in multiprocessing.active_children():
                worker.terminate()
        pool.shutdown(wait=True, cancel_futures=True)
        reports.close()
        reports.join_thread()


def _follow(
    futures: Sequence[Future[PolicyReplay]],
    reports: _Reports[tuple[int, int, float]],
    on_progress: OnPolicyProgress,
) -> None:
    """Pass reports on until all are done or one has failed."""
    running: set[Future[PolicyReplay]] = set(futures)
    while running and not any(f.done() and f.exception() for f in futures):
        _, running = wait(running, timeout=REPORT_EVERY_S, return_when=FIRST_EXCEPTION)
        try:
            while True:
                on_progress(*reports.get_nowait())
        except queue.Empty:
            pass


_reports: _Reports[tuple[int, int, float]] | None = None
_parent_pid = 0


def _start_worker(reports: _Reports[tuple[int, int, float]], parent_pid: int) -> None:
    global _reports, _parent_pid  # the only way a pool hands a queue to its workers
    _reports, _parent_pid = reports, parent_pid
    # Ctrl-C reaches the whole process group: end at once instead of printing a traceback each.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _work(plan: ReplayPlan, policy: str, index: int) -> PolicyReplay:
    reported_s = 0.0

    def report(done: int, now_s: float) -> None:
        nonlocal reported_s
        wall_s = time.monotonic()
        if wall_s - reported_s < REPORT_EVERY_S and done < len(plan.trace.requests):
            return
        reported_s = wall_s
        if os.getppid() != _parent_pid:
            os._exit(1)  # the command was killed: nobody wants the result
        if _reports is not None:
            _reports.put((index, done, now_s))

    return replay_policy(plan, policy, report)
