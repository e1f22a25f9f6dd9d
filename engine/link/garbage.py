"""The garbage collector of a process that tokens pass: the daemon, and each process of an engine.

By itself Python looks through young objects each time that some more were made than went, and through all of
them now and then, and every answer waits. Objects under way count as young whatever their number: at 150
requests/s a look at them took 60 to 86 ms of the gateway, and one at all took 25 to 75 ms of SGLang's HTTP
process each three seconds; neither found anything to speak of (docs/decisions/0043). So all that the start
made is frozen, and the rest is looked at only while no answer runs, or when the process has grown by
`MAX_GROWTH_BYTES` since.

What was collected, how long it took and what was found is kept, and written beside the link's socket once a
second, where the daemon reads it.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

LOOK_EVERY_S = 1.0
NEVER = 2**31 - 1
"""Objects made beyond those that went until Python looks by itself."""
FEW_OBJECTS = 1_000
"""Made beyond those that went: fewer than these in an idle process are not worth a look."""
MAX_GROWTH_BYTES = 256 * 2**20
"""Growth of a process in mid-load after which all its objects are looked at (docs/decisions/0043)."""
LONG_S = 0.005
"""A collection that is kept with its time: a tenth of the usual TBT target."""
_KEPT = 64


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """The collections of one generation since the process is ready to serve."""

    count: int = 0
    total_s: float = 0.0
    longest_s: float = 0.0
    cpu_s: float = 0.0
    """Of `total_s`, what the processor worked for them: on a busy machine the rest is waiting for a core."""
    found: int = 0
    """Objects in cycles that nothing else held."""


class LongCollection(msgspec.Struct, frozen=True, kw_only=True):
    """One that took longer than `LONG_S`."""

    ended_s: float
    """By the monotonic clock, which all processes share."""
    duration_s: float
    generation: int


class GarbageReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one process's collector did since the process is ready to serve."""

    process: str
    """`http`, `detokenizer` or `scheduler`; with several ranks `scheduler-1` and so on."""
    pid: int
    generations: tuple[Generation, ...]
    """The youngest first."""
    forced: int = 0
    """Collections in mid-load, because the process had grown."""
    recent: tuple[LongCollection, ...] = ()
    is_held: bool = True
    """False: the user's own `--gc-threshold` is in force."""


class GarbageHolder:
    """One per process."""

    def __init__(
        self,
        process: str,
        *,
        is_idle: Callable[[], bool],
        path: Path | None = None,
    ) -> None:
        """`is_idle` says whether no answer runs. Reports go to `path`, if any."""
        self._process = process
        self._is_idle = is_idle
        self._run: Callable[[Callable[[], None]], object] = lambda look: look()
        self._path = path
        self._generations = [Generation()] * 3
        self._recent: deque[LongCollection] = deque(maxlen=_KEPT)
        self._begun_s = self._begun_cpu_s = 0.0
        self._forced = 0
        self._base_bytes = 0
        self._was_busy = False
        """Whether an answer ran since the last collection: without one there is little to find."""
        self._is_held = True
        self._written = b""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def hold(self, *, keeps_thresholds: bool = False) -> None:
        """Begin, or begin again: what there is now stays for as long as the process.

        A thread looks once a second whether there is something to collect. Called in an event loop, it looks
        there: what is collected may belong to that loop. With `keeps_thresholds` collections are counted, and
        come as they did.
        """
        with contextlib.suppress(RuntimeError):
            self._run = asyncio.get_running_loop().call_soon_threadsafe
        if self._thread is None:
            gc.collect()
            gc.callbacks.append(self._collected)
            self._thread = threading.Thread(target=self._watch, name="garbage", daemon=True)
            self._thread.start()
        gc.freeze()
        self._is_held = not keeps_thresholds
        if self._is_held:
            gc.set_threshold(NEVER)
        self._generations = [Generation()] * 3
        self._was_busy = False
        self._base_bytes = resident_bytes()

    def release(self) -> None:
        """Leave the collector as Python has it by itself."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
            gc.callbacks.remove(self._collected)
        gc.set_threshold(*_PYTHONS_OWN)
        gc.unfreeze()

    @property
    def collected_s(self) -> float:
        """Seconds of all collections since the process is ready to serve."""
        return sum(generation.total_s for generation in self._generations)

    def report(self) -> GarbageReport:
        return GarbageReport(
            process=self._process,
            pid=os.getpid(),
            generations=tuple(self._generations),
            forced=self._forced,
            recent=tuple(self._recent.copy()),
            is_held=self._is_held,
        )

    def look(self) -> None:
        """Collect all if no answer runs and one ran since, or if the process has grown too far."""
        if not self._is_held:
            return
        is_idle = self._is_idle()
        if is_idle and not self._was_busy and gc.get_count()[0] < FEW_OBJECTS:
            return
        self._was_busy = not is_idle
        has_grown = resident_bytes() - self._base_bytes > MAX_GROWTH_BYTES
        if not is_idle:
            if not has_grown:
                return
            self._forced += 1
        elif has_grown:
            gc.unfreeze()  # among it are cycles by now
        gc.collect()
        if is_idle:
            gc.freeze()  # the next look takes as long as what has come until then
        if has_grown:
            self._base_bytes = resident_bytes()

    def _watch(self) -> None:
        while not self._stop.wait(LOOK_EVERY_S):
            with contextlib.suppress(RuntimeError):  # the event loop is closed
                self._run(self.look)
            self.write()

    def write(self) -> None:
        """Tell what happened so far, if there is anything new."""
        if self._path is None:
            return
        said = msgspec.json.encode(self.report())
        if said != self._written:
            self._written = said
            beside = self._path.with_suffix(f".{os.getpid()}")
            with contextlib.suppress(OSError):
                beside.write_bytes(said)
                beside.replace(self._path)

    def _collected(self, phase: str, info: Mapping[str, Any]) -> None:
        now_s = time.monotonic()
        if phase == "start":
            self._begun_s, self._begun_cpu_s = now_s, time.thread_time()
            return
        number = int(info["generation"])
        took_s = now_s - self._begun_s
        before = self._generations[number]
        self._generations[number] = Generation(
            count=before.count + 1,
            total_s=before.total_s + took_s,
            longest_s=max(before.longest_s, took_s),
            cpu_s=before.cpu_s + time.thread_time() - self._begun_cpu_s,
            found=before.found + int(info["collected"]),
        )
        if took_s > LONG_S:
            self._recent.append(LongCollection(ended_s=now_s, duration_s=took_s, generation=number))


_PYTHONS_OWN = gc.get_threshold()


def report_path(link: str, process: str) -> Path:
    """Where a process of the engine of that link writes its report."""
    return Path(f"{link.removeprefix('ipc://')}.garbage-{process}.json")


def read_reports(link: str) -> Iterator[GarbageReport]:
    """All of the engine of that link that can be read."""
    socket = Path(link.removeprefix("ipc://"))
    for path in sorted(socket.parent.glob(f"{socket.name}.garbage-*.json")):
        with contextlib.suppress(OSError, msgspec.DecodeError):
            yield msgspec.json.decode(path.read_bytes(), type=GarbageReport)


def remove_reports(link: str) -> None:
    """Remove the files of an engine that has ended. Raises: OSError."""
    socket = Path(link.removeprefix("ipc://"))
    for path in socket.parent.glob(f"{socket.name}.garbage-*"):
        path.unlink(missing_ok=True)


def resident_bytes() -> int:
    """Memory that this process holds; 0 if the kernel does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
