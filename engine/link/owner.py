"""The owner of an engine: the process that started it, until an upgrade gave it to another daemon.

The engine is not asked: a file beside the link's socket names its owner: every process of an engine can look,
also one that has no part in the link. Without the file the parent is the owner.
"""

from __future__ import annotations

import os
from pathlib import Path

from pdmuxd.engine.link import procfs

_SCHEME = "ipc://"


def owner_path(link: str) -> Path:
    """Where the owner of the engine on `link` (`ipc://PATH`) is written down."""
    return Path(link.removeprefix(_SCHEME)).with_suffix(".owner")


def name_owner(path: Path, pid: int) -> None:
    """Make the process `pid` the owner from now on. Raises: OSError."""
    unfinished = path.with_suffix(".new")
    unfinished.write_text(f"{pid} {procfs.start_ticks(pid)}\n")
    unfinished.replace(path)


def owner_lives(link: str | None, parent_pid: int) -> bool:
    """Whether the owner of this process still runs; `parent_pid` started it."""
    named = None if link is None else _read(owner_path(link))
    if named is None:
        return os.getppid() == parent_pid
    pid, ticks = named
    # Process ids are given again, so its start is compared as well.
    return procfs.is_running(pid) and procfs.start_ticks(pid) == ticks


def _read(path: Path) -> tuple[int, int] | None:
    try:
        pid, ticks = path.read_text().split()
        return int(pid), int(ticks)
    except (OSError, ValueError):
        return None
