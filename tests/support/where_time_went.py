"""Where the time went while nothing happened: what each process of a server computed, what it waited for a
core, and where it stood.

The kernel says of every thread how long it ran and how long it was ready to run while others had the cores
(/proc/PID/task/TID/schedstat). What is neither, it slept: for a lock, a message, a disk, a timer. So a gap in
which the thread that should have worked waited for a core is the machine's; one in which it slept is ours.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SAMPLE_S = 0.5
KEPT = 600
"""Samples: five minutes."""
SAID_SHARE = 0.1
"""Of the wall time that a process ran or waited for a core, if it is to be named."""


@dataclass(frozen=True)
class ThreadTimes:
    """Of one thread, since it began."""

    name: str
    run_s: float
    wait_s: float
    """Ready to run, and another had the core."""


@dataclass(frozen=True)
class Sample:
    """All threads of the processes, by (process, thread)."""

    at_s: float
    threads: dict[tuple[int, int], ThreadTimes]
    pressure_s: float
    """Since the start of the machine, that somebody waited for a core; 0 where the kernel does not say."""


def processes_of(session: int) -> list[int]:
    """The processes of a session."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                if int((folder / "stat").read_text().rsplit(")", 1)[1].split()[3]) == session:
                    found.append(int(folder.name))
    return found


def sample(pids: list[int]) -> Sample:
    """As it is now."""
    threads = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{pid}/task").iterdir():
                with contextlib.suppress(OSError, ValueError, IndexError):
                    run, wait, _ = (task / "schedstat").read_text().split()
                    name = (task / "comm").read_text().strip()
                    threads[pid, int(task.name)] = ThreadTimes(name, int(run) / 1e9, int(wait) / 1e9)
    return Sample(time.monotonic(), threads, _pressure_s())


def _pressure_s() -> float:
    with contextlib.suppress(OSError, ValueError):
        some = Path("/proc/pressure/cpu").read_text().splitlines()[0]
        return int(some.rpartition("=")[2]) / 1e6
    return 0.0


@dataclass(frozen=True)
class Gap:
    """A time without a token."""

    seconds: float
    run_s: float
    """Of the thread that is watched."""
    wait_s: float
    lines: tuple[str, ...]

    @property
    def slept_s(self) -> float:
        """Neither computing nor ready to."""
        return max(0.0, self.seconds - self.run_s - self.wait_s)


def between(first: Sample, last: Sample, watched: int) -> Gap:
    """What passed between two samples; `watched` is the process whose first thread should have worked."""
    wall_s = last.at_s - first.at_s
    run_s = wait_s = 0.0
    lines = [
        f"{wall_s:.1f} s; somebody waited for a core for {last.pressure_s - first.pressure_s:.1f} s of it"
    ]
    for (pid, tid), after in sorted(last.threads.items()):
        before = first.threads.get((pid, tid), ThreadTimes(after.name, 0.0, 0.0))
        ran_s, waited_s = after.run_s - before.run_s, after.wait_s - before.wait_s
        if pid == tid == watched:
            run_s, wait_s = ran_s, waited_s
        if ran_s + waited_s >= SAID_SHARE * wall_s or pid == tid == watched:
            mark = " (watched)" if pid == tid == watched else ""
            slept_s = max(0.0, wall_s - ran_s - waited_s)
            lines.append(
                f"  {pid}/{tid} {after.name}{mark}: ran {ran_s:.2f} s, waited for a core {waited_s:.2f} s, "
                f"slept {slept_s:.2f} s"
            )
    return Gap(wall_s, run_s, wait_s, tuple(lines))


class GapWatch:
    """A thread that samples, has stacks written while a gap lasts, and says where its time went.

    `gap_since_s`: since when (monotonic) nothing has happened though something should; None if
    nothing should.
    """

    def __init__(
        self, session: int, watched: int, gap_since_s: Callable[[], float | None], *, over_s: float
    ) -> None:
        self._session, self._watched, self._over_s = session, watched, over_s
        self._gap_since_s = gap_since_s
        self._samples: deque[Sample] = deque(maxlen=KEPT)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.gaps: list[Gap] = []
        self.first = sample(processes_of(session))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._is_over.set()
        self._thread.join()

    def since_start(self) -> Gap:
        """All that passed until now."""
        return between(self.first, sample(processes_of(self._session)), self._watched)

    def _watch(self) -> None:
        began_s: float | None = None
        stacks_s = 0.0
        while not self._is_over.wait(SAMPLE_S):
            self._samples.append(sample([*processes_of(self._session), os.getpid()]))
            since_s, now_s = self._gap_since_s(), time.monotonic()
            if began_s is not None and since_s != began_s:
                self._say(began_s)
                began_s = None
            if since_s is not None and now_s - since_s > self._over_s:
                began_s = since_s
                if now_s - stacks_s > self._over_s:
                    stacks_s = now_s
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(self._watched, signal.SIGUSR1)  # faulthandler writes its stacks to its log

    def _say(self, began_s: float) -> None:
        before = [each for each in self._samples if each.at_s <= began_s] or [self._samples[0]]
        gap = between(before[-1], self._samples[-1], self._watched)
        self.gaps.append(gap)
        print("GAP " + "\n".join(gap.lines), flush=True)
