"""Tasks with an owner: an exit stack, or whoever waits for the first of them to end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from datetime import UTC
from typing import Any

import structlog
from apscheduler.schedulers.asyncio import AsyncIOScheduler

log = structlog.get_logger("pdmuxd.daemon")


def in_background(stack: AsyncExitStack, work: Coroutine[Any, Any, object], *, name: str) -> None:
    """Run `work` until it ends or `stack` is left, which cancels it; a failure is logged when it happens."""
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(_report)

    async def end() -> None:
        task.cancel()
        await asyncio.wait((task,))

    stack.push_async_callback(end)


def periodically(
    stack: AsyncExitStack, work: Callable[[], Awaitable[object]], *, period_s: float, name: str
) -> None:
    """Do `work` every `period_s` until `stack` is left; if it fails, that is logged and it is tried again.

    The time between is measured, so it goes on when the wall clock is set (docs/decisions/0022).
    """

    async def again_and_again() -> None:
        while True:
            await asyncio.sleep(period_s)
            try:
                await work()
            except Exception:
                log.exception("background work failed and is tried again", task=name, after_s=period_s)

    in_background(stack, again_and_again(), name=name)


def by_calendar(
    stack: AsyncExitStack, work: Callable[[], Awaitable[object]], *, period_s: float, name: str
) -> None:
    """Do `work` every `period_s` of the wall clock, by APScheduler, until `stack` is left: for what goes by
    dates, such as retention, and may be late by as much as the clock is set back."""
    scheduler = AsyncIOScheduler(timezone=UTC)
    scheduler.add_job(
        work, "interval", seconds=period_s, name=name, max_instances=1, coalesce=True, misfire_grace_time=None
    )
    scheduler.start()
    stack.callback(scheduler.shutdown, wait=False)


async def first_to_end(*work: Coroutine[Any, Any, object]) -> None:
    """Run all of `work` until one ends, cancel the others, and wait for those to be gone.

    Raises what one of `work` raised, the first in the order of the arguments.
    """
    tasks = [asyncio.create_task(each) for each in work]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        ended = [task for task in tasks if task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in ended:
        task.result()


def _report(task: asyncio.Task[object]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("background task failed", task=task.get_name(), exc_info=error)
