"""For `bench_periodic.py`: how long each task, callback and worker thread of the daemon holds the event loop.

Every step of every task is timed by the clock and by the processor, as is every function that a worker
thread runs. A step's seconds by the clock have the waits for Python's lock and for a core in them.
Each second one line of JSON is written: name -> steps, seconds of the processor, longest by the processor,
longest by the clock, steps over `LONG_S` of the processor.
"""

from __future__ import annotations

import asyncio
import concurrent.futures.thread
import functools
import json
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

LONG_S = 0.005
_FOUND: dict[str, list[float]] = {}


def _count(name: str, begin_s: float, begin_cpu_s: float) -> None:
    cpu_s, wall_s = time.thread_time() - begin_cpu_s, time.monotonic() - begin_s
    row = _FOUND.setdefault(name, [0, 0.0, 0.0, 0.0, 0])
    row[0] += 1
    row[1] += cpu_s
    row[2] = max(row[2], cpu_s)
    row[3] = max(row[3], wall_s)
    row[4] += cpu_s > LONG_S


class _Timed(Coroutine[Any, Any, Any]):
    """A task's coroutine, each step of which is timed."""

    def __init__(self, inner: Coroutine[Any, Any, Any]) -> None:
        self._inner = inner
        self._qualified = getattr(inner, "__qualname__", type(inner).__name__)
        self.task: asyncio.Task[Any] | None = None

    def send(self, value: object) -> object:
        """Python's call."""
        begin_s, begin_cpu_s = time.monotonic(), time.thread_time()
        try:
            return self._inner.send(value)
        finally:
            name = "" if self.task is None else self.task.get_name()
            known = "" if name.startswith(("Task-", "read-")) else name
            _count(f"task: {known or self._qualified}", begin_s, begin_cpu_s)

    def throw(self, *error: Any) -> object:
        """Python's call."""
        return self._inner.throw(*error)

    def close(self) -> None:
        """Python's call."""
        self._inner.close()

    def __await__(self) -> Any:
        return self._inner.__await__()


def _task(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
    timed = _Timed(coro)
    timed.task = asyncio.Task(timed, loop=loop, **options)
    return timed.task


def _timed(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*given: Any, **options: Any) -> Any:
        begin_s, begin_cpu_s = time.monotonic(), time.thread_time()
        try:
            return function(*given, **options)
        finally:
            _count(name, begin_s, begin_cpu_s)

    return call


def _name_of(function: Any) -> str:
    while isinstance(function, functools.partial):
        inner = function.args[0] if function.args and callable(function.args[0]) else function.func
        if getattr(function.func, "__name__", "") == "run" and len(function.args) > 0:
            inner = function.args[0]
        function = inner
    return f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', repr(function))}"


def run(folder: Path) -> None:
    """Wrap what the daemon calls before its loop runs, then write each second, from `begin` on."""
    while not hasattr(app := sys.modules.get("pdmuxd.daemon.app"), "_run"):
        time.sleep(0.001)
    run_daemon = app._run

    async def with_timed_tasks(*given: Any, **options: Any) -> Any:
        asyncio.get_running_loop().set_task_factory(_task)
        return await run_daemon(*given, **options)

    app._run = with_timed_tasks
    pool = concurrent.futures.thread.ThreadPoolExecutor
    submit = pool.submit

    def timed_submit(self: Any, function: Callable[..., Any], /, *given: Any, **options: Any) -> Any:
        return submit(self, _timed(function, f"thread: {_name_of(function)}"), *given, **options)

    pool.submit = timed_submit
    from pdmuxd.daemon.tokens.receiver import TokenReceiver

    TokenReceiver.read = _timed(TokenReceiver.read, "callback: tokens read and written")
    while not (folder / "begin").exists():
        time.sleep(0.1)
    _FOUND.clear()
    with (folder / "held").open("a", buffering=1) as out:
        while True:
            time.sleep(1.0)
            out.write(json.dumps([time.monotonic(), _FOUND.copy()]) + "\n")
