"""One `pdmuxd serve` for a benchmark: where its requests go, and what its processes spend."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

sys.path.insert(1, str(Path(__file__).parents[2] / "support"))

from daemon_process import START_S, Daemon


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A daemon and its engine, both ready."""

    daemon: Daemon
    engine_pid: int
    engine_port: int

    @property
    def daemon_pid(self) -> int:
        return self.daemon.process.pid

    @property
    def target(self) -> dict[str, Any]:
        """The gateway, for a client process."""
        url = urlsplit(self.daemon.data_url)
        known = {"key": self.daemon.key, "model": self.daemon.model, "extra": {}}
        return {"host": url.hostname, "port": url.port} | known

    @property
    def engine_target(self) -> dict[str, Any]:
        """The engine's own port, for the same client."""
        key = psutil.Process(self.engine_pid).environ()["PDMUXD_ENGINE_API_KEY"]
        extra = {"custom_params": {"pdmuxd_tenant": "default"}}
        known = {"key": key, "model": self.daemon.model, "extra": extra}
        return {"host": "127.0.0.1", "port": self.engine_port} | known


@contextlib.contextmanager
def served(settings: Sequence[str], *, start_s: float = START_S) -> Iterator[Served]:
    """It has a folder of its own, and ends with the block.

    Raises: AssertionError with the daemon's log if it does not serve within `start_s`.
    """
    with tempfile.TemporaryDirectory(prefix="pdmuxd-bench-") as name:
        daemon = Daemon(Path(name), settings=settings, start_s=start_s)
        try:
            engine = json.loads((daemon.folder / ".pdmuxd" / "engine.json").read_text())
            words = list(engine["command"])
            port = int(words[words.index("--port") + 1])
            yield Served(daemon=daemon, engine_pid=engine["pid"], engine_port=port)
        finally:
            daemon.stop()


def cpu_s(pid: int) -> float:
    """Processor time that a process has used, to the nanosecond where the kernel says it."""
    with contextlib.suppress(OSError):
        total_ns = 0
        for task in Path(f"/proc/{pid}/task").iterdir():
            total_ns += int((task / "schedstat").read_text().split()[0])
        return total_ns / 1e9
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def family_cpu_s(pid: int) -> float:
    """The same of a process and all that came of it."""
    total_s = 0.0
    with contextlib.suppress(psutil.NoSuchProcess):
        first = psutil.Process(pid)
        for member in (first, *first.children(recursive=True)):
            with contextlib.suppress(OSError):
                total_s += cpu_s(member.pid)
    return total_s
