"""Writes down what keeps tokens waiting on a host, process by process: see `stall_trace.py`.

Of a scheduler, whatever its main thread did for long, waiting too, since that should be for the device alone.
Of the processes behind it, which wait for what comes, how long they were at work without a pause.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType

LOOK_S = 0.002
LONG_S = 0.009
"""Longer than a launch or a look at results, shorter than a decode step."""
FRAMES = 14
_TITLE_EVERY_S = 0.5
_ROLES = {
    b"sglang::scheduler": "scheduler",
    b"sglang::detokenizer": "detokenizer",
    b"sglang.launch_server": "front",
    b"pdmuxd.engine.sglang": "front",
}
"""By what SGLang calls its processes, soon after they begin, or what the server was started as."""
_CHILD = b"multiprocessing"
_WAITING = frozenset({"select", "poll", "recv", "recv_pyobj", "run", "run_forever", "run_until_complete"})
"""Innermost functions of a process that waits for what comes; the loops' own, where they are written in C."""


def watch(folder: Path, role: str | None = None) -> None:
    """Begin, in a thread of its own; nothing is written in a process that passes no tokens on."""
    main = threading.main_thread()
    threading.Thread(target=_watch, args=(folder, main, role), daemon=True).start()


def _watch(folder: Path, main: threading.Thread, role: str | None) -> None:
    while (role := role or _role(Path("/proc/self/cmdline").read_bytes())) is None:
        time.sleep(_TITLE_EVERY_S)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{role}-{main.native_id}.stalls").open("a", buffering=1) as file:
        (_look if role == "scheduler" else _look_for_work)(file.write, main)


def _role(command: bytes) -> str | None:
    found = next((role for title, role in _ROLES.items() if title in command), None)
    return None if found == "front" and _CHILD in command else found


def _look(write: Callable[[str], object], main: threading.Thread) -> None:
    ran = _Ran(main)
    seen, since_s = "", time.perf_counter()
    while True:
        time.sleep(LOOK_S)
        doing, now_s = stack_of(sys._current_frames().get(main.ident or 0)), time.perf_counter()
        if doing == seen:
            continue
        ran_s = ran.lap_s()
        if seen and now_s - since_s > LONG_S:
            write(f"{since_s:.4f}\t{now_s - since_s:.4f}\t{ran_s:.4f}\t{seen}\n")
        seen, since_s = doing, now_s


def _look_for_work(write: Callable[[str], object], main: threading.Thread) -> None:
    """The place is where most looks at a stretch of work found it; a look that comes late counts as one."""
    ran = _Ran(main)
    places: Counter[str] = Counter()
    since_s = looked_s = time.perf_counter()
    while True:
        time.sleep(LOOK_S)
        doing, now_s = stack_of(sys._current_frames().get(main.ident or 0)), time.perf_counter()
        if now_s - looked_s > LONG_S:
            places["(nothing else could run)"] += round((now_s - looked_s) / LOOK_S)
        looked_s = now_s
        if not _waits(doing):
            places[doing] += 1
            continue
        ran_s = ran.lap_s()
        if places and now_s - since_s > LONG_S:
            write(f"{since_s:.4f}\t{now_s - since_s:.4f}\t{ran_s:.4f}\t{places.most_common(1)[0][0]}\n")
        since_s = now_s
        places.clear()


def _waits(stack: str) -> bool:
    _, _, rest = stack.partition(":")
    return rest.partition(":")[0] in _WAITING or not stack


class _Ran:
    """What a thread had a core for, from one lap to the next."""

    def __init__(self, thread: threading.Thread) -> None:
        self._path = Path(f"/proc/self/task/{thread.native_id}/schedstat")
        self._before_ns = 0

    def lap_s(self) -> float:
        ran_ns = int(self._path.read_text().split()[0])
        before_ns, self._before_ns = self._before_ns, ran_ns
        return (ran_ns - before_ns) / 1e9


def stack_of(frame: FrameType | None) -> str:
    """Innermost first."""
    names: list[str] = []
    while frame is not None and len(names) < FRAMES:
        code = frame.f_code
        names.append(f"{Path(code.co_filename).name}:{code.co_name}:{frame.f_lineno}")
        frame = frame.f_back
    return " < ".join(names)
