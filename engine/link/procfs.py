"""Identity of a process, from /proc: a process id alone may have been given to another process since.

Not psutil, whose start of a process moves when the clock is set: docs/decisions/0019.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

_START_TIME_FIELD = 22
"""Of /proc/PID/stat, counted from 1: clock ticks from boot to the start of the process (proc(5))."""


def start_ticks(pid: int) -> int | None:
    """When `pid` started, in clock ticks since boot; None if there is no such process."""
    fields = _fields_after_name(pid)
    return None if fields is None else int(fields[_START_TIME_FIELD - 3])


def started_s(pid: int) -> float | None:
    """When `pid` started, in seconds by `boot_s`; None if there is no such process."""
    ticks = start_ticks(pid)
    return None if ticks is None else ticks / os.sysconf("SC_CLK_TCK")


def boot_s() -> float:
    """Seconds since boot, the same clock for all processes."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def is_running(pid: int) -> bool:
    """Whether `pid` has not ended; a zombie has."""
    fields = _fields_after_name(pid)
    return fields is not None and fields[0] not in "ZX"


def command_line(pid: int) -> tuple[str, ...] | None:
    """The arguments that `pid` was started with; None if there is no such process.

    Empty for a zombie, and for a process that has only just begun to execute its program.
    """
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    return tuple(part.decode(errors="surrogateescape") for part in raw.split(b"\0")[:-1])


def _fields_after_name(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat from the third on; None if there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    # The second field is the command's name in parentheses, and may hold spaces and parentheses itself.
    return stat.rpartition(")")[2].split()
