"""Running several coroutines until the first of them ends."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def until_first_ends(*work: Coroutine[Any, Any, None]) -> None:
    """Run all of `work`; when one ends or raises, cancel the others and do the same.

    If several raised at once, the first in the order of the arguments is raised.
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
