"""The CPU quota of this process's control group: one that is used up stops every process of the group.

Source: Documentation/admin-guide/cgroup-v2.rst of Linux for cpu.max and cpu.stat; version 1, in
Documentation/scheduler/sched-bwc.rst, calls the two counters the same.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

PROC = Path("/proc")
GROUPS = Path("/sys/fs/cgroup")


def quota_cores(proc: Path = PROC, groups: Path = GROUPS) -> float | None:
    """How many processors' time the group may use; None: as much as there is, or the kernel does not say."""
    with contextlib.suppress(OSError, ValueError, LookupError):
        folder = _folder(proc, groups)
        if (told := folder / "cpu.max").is_file():
            quota, period = told.read_text().split()
        else:
            quota, period = ((folder / f"cpu.cfs_{of}_us").read_text() for of in ("quota", "period"))
        cores = int(quota) / int(period)  # "max" is no number; version 1 says -1
        return cores if cores > 0 else None
    return None


def quota_periods(proc: Path = PROC, groups: Path = GROUPS) -> tuple[int, int]:
    """Count the quota's periods, and those in which it was used up; 0 and 0 without one."""
    with contextlib.suppress(OSError, ValueError, LookupError):
        lines = (_folder(proc, groups) / "cpu.stat").read_text().splitlines()
        told = dict(line.split() for line in lines)
        return int(told["nr_periods"]), int(told["nr_throttled"])
    return 0, 0


def _folder(proc: Path, groups: Path) -> Path:
    """Where the group counts. Raises: OSError, LookupError."""
    for line in (proc / "self" / "cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0" or "cpu" in controllers.split(","):
            top = groups if number == "0" else groups / "cpu"
            # A container may see the path that its host knows, and its own group at the top.
            for folder in (top / path.lstrip("/"), top):
                if (folder / "cpu.stat").is_file():
                    return folder
    raise LookupError("no control group counts processor time")
