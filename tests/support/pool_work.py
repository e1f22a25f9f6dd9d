"""Work for a pool; in a module of its own, so that workers can import it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable


def scaled(factor: int, task: int, report: Callable[[str], None]) -> int:
    """Later tasks are done sooner."""
    report(f"task {task}")
    time.sleep(0.02 * max(0, 3 - task))
    return factor * task


def dies(factor: int, task: int, report: Callable[[str], None]) -> int:
    if task == 1:
        os._exit(9)
    return factor * task


def fails(factor: int, task: int, report: Callable[[str], None]) -> int:
    if task == 1:
        raise ValueError("task 1")
    time.sleep(3600.0 if task > 1 else 0.0)
    return factor * task
