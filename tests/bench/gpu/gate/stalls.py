"""Writes down what a scheduler's main thread did whenever it did one thing for long: see `held_up.py`."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

LOOK_S = 0.002
LONG_S = 0.009
"""Longer than a launch or a look at results, shorter than a decode step."""
FRAMES = 14
_TITLE_EVERY_S = 0.5
_TITLE = b"sglang::scheduler"
"""What SGLang calls its scheduler processes, soon after they begin."""


def watch(folder: Path) -> None:
    """Begin, in a thread of its own; nothing is written in a process that is no scheduler."""
    main = threading.main_thread()
    threading.Thread(target=_watch, args=(folder, main), daemon=True).start()


def _watch(folder: Path, main: threading.Thread) -> None:
    command = Path("/proc/self/cmdline")
    while _TITLE not in command.read_bytes():
        time.sleep(_TITLE_EVERY_S)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{main.native_id}.stalls").open("a", buffering=1) as file:
        _look(file.write, main)


def _look(write: Callable[[str], object], main: threading.Thread) -> None:
    schedstat = Path(f"/proc/self/task/{main.native_id}/schedstat")
    seen, since_s, ran_ns = "", time.perf_counter(), 0
    while True:
        time.sleep(LOOK_S)
        doing, now_s = stack_of(sys._current_frames().get(main.ident or 0)), time.perf_counter()
        if doing == seen:
            continue
        ran = int(schedstat.read_text().split()[0])
        if seen and now_s - since_s > LONG_S:
            write(f"{since_s:.4f}\t{now_s - since_s:.4f}\t{(ran - ran_ns) / 1e9:.4f}\t{seen}\n")
        seen, since_s, ran_ns = doing, now_s, ran


def stack_of(frame: FrameType | None) -> str:
    """Innermost first."""
    names: list[str] = []
    while frame is not None and len(names) < FRAMES:
        code = frame.f_code
        names.append(f"{Path(code.co_filename).name}:{code.co_name}:{frame.f_lineno}")
        frame = frame.f_back
    return " < ".join(names)
