"""For `late_behind.py`: in each process under it, the collector as the measurement wants it, and its pauses.

Python imports this at its start, from the path. A thread wakes every 10 ms. When it wakes late, somebody
held the interpreter's lock or no core was free: the time and how long are written down, with what the main
thread waited for a core meanwhile and where each thread stands: who held the lock has not gone far. Where
the process has an event loop, the thread asks it for a turn as well: a loop that computes, or that waits for
the lock again and again, is late although the thread is not.
A file says whether Python's own thresholds are in force, or those of the product.
"""

from __future__ import annotations

import asyncio.tasks
import contextlib
import gc
import json
import os
import runpy
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import FrameType
from typing import TextIO

FOLDER = "LATE_BEHIND_FOLDER"
PERIOD_S = 0.01
LATE_S = 0.01
FRAMES = 5
IDLE = frozenset({"_worker", "wait", "get"})
"""Innermost functions of threads that wait for work: they are left out."""
PYTHONS = (700, 10, 10)
DAEMONS = (10_000, 10, 10)
"""Of pdmuxd's daemon, before its collector was held."""
TAILS: list[int] = []
TURNS: list[Callable[..., Coroutine[object, object, None]]] = []
FLUSHES: list[Callable[..., Coroutine[object, object, None]]] = []
"""The product's own."""


def _waited_s() -> float:
    """For a core, the main thread so far."""
    try:
        return int(Path(f"/proc/self/task/{os.getpid()}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def _innermost(frame: FrameType | None) -> list[str]:
    """A thread's innermost frames, as file:line function; of the import system's own, what it imports."""
    rows: list[str] = []
    while frame is not None and len(rows) < FRAMES:
        code = frame.f_code
        if code.co_filename.startswith("<frozen importlib"):
            if code.co_name == "_find_and_load":
                rows.append(f"import {frame.f_locals.get('name')}")
            frame = frame.f_back
            continue
        rows.append(f"{'/'.join(code.co_filename.split('/')[-2:])}:{frame.f_lineno} {code.co_name}")
        frame = frame.f_back
    return rows


def _standing() -> dict[str, list[str]]:
    """Each other thread's innermost frames."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    found = {}
    for ident, frame in sys._current_frames().items():
        if ident == threading.get_ident():
            continue
        rows = _innermost(frame)
        if rows[0].split()[-1] in IDLE:
            continue
        found[names.get(ident, str(ident))] = rows
    return found


def _loop() -> asyncio.AbstractEventLoop | None:
    """Of the process, once a task runs in it."""
    tasks = getattr(asyncio.tasks, "_scheduled_tasks", None)  # Python 3.12
    if tasks is None:
        tasks = getattr(asyncio.tasks, "_all_tasks", ())
    with contextlib.suppress(RuntimeError):  # it changes meanwhile
        for task in list(tasks):
            if (loop := task.get_loop()).is_running():
                return loop
    return None


def _ask(loop: asyncio.AbstractEventLoop, out: TextIO) -> None:
    """Wait for a turn of the loop; write down how late it was, and where threads stood after LATE_S."""
    turn, begin_s, before_s = threading.Event(), time.monotonic(), _waited_s()
    try:
        loop.call_soon_threadsafe(turn.set)
    except RuntimeError:
        return  # it is closed
    if turn.wait(LATE_S):
        return
    standing = _standing()
    turn.wait(5.0)
    now_s = time.monotonic()
    out.write(json.dumps([now_s, now_s - begin_s, _waited_s() - before_s, standing]) + "\n")


def _watch(folder: Path) -> None:
    held: tuple[int, int, int] | None = None
    out = (folder / f"{os.getpid()}.pauses").open("a", buffering=1)
    of_loop = (folder / f"{os.getpid()}.loop").open("a", buffering=1)
    waited_s, turns = _waited_s(), 0
    loop: asyncio.AbstractEventLoop | None = None
    while True:
        if loop is not None:
            _ask(loop, of_loop)
        elif turns % 25 == 0:
            loop = _loop()
        begin_s = time.monotonic()
        time.sleep(PERIOD_S)
        now_s = time.monotonic()
        if now_s - begin_s - PERIOD_S > LATE_S:
            standing = _standing()
            after_s = _waited_s()
            late_s = now_s - begin_s - PERIOD_S
            out.write(json.dumps([now_s, late_s, after_s - waited_s, standing]) + "\n")
            waited_s = after_s
        turns += 1
        if turns % 25 == 0:
            waited_s = _waited_s()
            is_python = (folder / "python").exists()
            if is_python and held is None:
                held = gc.get_threshold()
                gc.set_threshold(*(DAEMONS if "pdmuxd.daemon.app" in sys.modules else PYTHONS))
            elif not is_python and held is not None:
                gc.set_threshold(*held)
                held = None
            if "pdmuxd.daemon.app" in sys.modules:
                _measure_delivery(is_on=not (folder / "unmeasured").exists())
                _one_by_one(is_on=not (folder / "at-once").exists())
                _store_history(is_on=not (folder / "no-history").exists())


def _measure_delivery(*, is_on: bool) -> None:
    """Without gaps enough to measure, what was planned with stays: an arm without comes before those with."""
    from pdmuxd.controlplane.telemetry import delivery

    if not TAILS:
        TAILS.append(delivery.TAIL_GAPS)
    delivery.TAIL_GAPS = TAILS[0] if is_on else sys.maxsize


def _one_by_one(*, is_on: bool) -> None:
    """Without, requests work whenever they can, before the next tokens are read."""
    from pdmuxd.daemon.gateway.one_by_one import OneByOne

    if not TURNS:
        TURNS.append(OneByOne.turn)
    OneByOne.turn = TURNS[0] if is_on else _at_once


async def _at_once(_: object) -> None:
    pass


def _store_history(*, is_on: bool) -> None:
    """Without, what was served stays in memory: no thread writes rows, and nothing waits for the disk."""
    from pdmuxd.daemon.duties.kept_history import HistoryKeeper

    if not FLUSHES:
        FLUSHES.append(HistoryKeeper.flush)
    HistoryKeeper.flush = FLUSHES[0] if is_on else _not_stored


async def _not_stored(_: object, *, share_sm_time: bool = True) -> None:
    pass


def _stacks(folder: Path) -> None:
    """In SGLang's scheduler, every 4 ms: the time, what its main thread waited for a core and the process
    computed so far, in seconds, and where the main thread is."""
    main = threading.main_thread().ident
    while b"sglang::scheduler" not in Path("/proc/self/cmdline").read_bytes():
        time.sleep(1.0)
    with (folder / f"{os.getpid()}.stacks").open("w") as out:
        while True:
            stands = " < ".join(_innermost(sys._current_frames().get(main)))
            out.write(f"{time.time():.4f} {_waited_s():.4f} {time.process_time():.4f} {stands}\n")
            time.sleep(0.004)


def _hidden() -> None:
    """Run the `sitecustomize.py` that Python would have imported without this one."""
    own = Path(__file__).resolve()
    for folder in sys.path:
        other = (Path(folder) / "sitecustomize.py").resolve()
        if other != own and other.is_file():
            runpy.run_path(str(other))
            return


_hidden()
if os.environ.get(FOLDER):
    threading.Thread(target=_watch, args=(Path(os.environ[FOLDER]),), daemon=True).start()
    if os.environ.get("LATE_BEHIND_STACKS"):
        threading.Thread(target=_stacks, args=(Path(os.environ[FOLDER]),), daemon=True).start()
    if os.environ.get("LATE_BEHIND_TIMED"):
        import timed_calls

        threading.Thread(target=timed_calls.run, args=(Path(os.environ[FOLDER]),), daemon=True).start()
if os.environ.get("HELD_BY_FOLDER"):
    import held_by

    threading.Thread(target=held_by.run, args=(Path(os.environ["HELD_BY_FOLDER"]),), daemon=True).start()
