"""One daemon per state directory: a second one would take the first one's engine for an orphan."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from pdmuxd.engine.core.errors import SettingsError


@contextlib.contextmanager
def exclusive(state_dir: Path) -> Iterator[None]:
    """Hold `state_dir` for this process; the kernel lets go of it however the process ends.

    Raises: SettingsError if another daemon holds it.
    """
    descriptor = os.open(state_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 20).decode(errors="replace").strip() or "unknown"
            raise SettingsError(
                f"state_dir: {state_dir} is in use by another pdmuxd (process {holder}); choose another "
                "directory, or stop that one"
            ) from None
        os.truncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        yield
    finally:
        os.close(descriptor)
