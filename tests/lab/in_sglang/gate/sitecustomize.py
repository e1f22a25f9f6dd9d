"""Python runs this at its start in a server that is started ahead (`ahead.py`) or watched (`stall_trace.py`).

A scheduler process is held back when its imports are done, which take half of a server's start and no GPU,
until the gate's file is there. What SGLang does after that is what it does without this.
"""

import os
import runpy
import sys
import time
from pathlib import Path


def _run_the_one_behind() -> None:
    """Python runs one file of this name, the first on its path; whoever has another needs what that does."""
    here = Path(__file__).resolve()
    for folder in sys.path:
        other = Path(folder, "sitecustomize.py").resolve()
        if other != here and other.is_file():
            runpy.run_path(str(other), run_name="sitecustomize")
            return


def _wait(gate: Path) -> None:
    parent = os.getppid()
    while not gate.exists():
        time.sleep(0.02)
        if os.getppid() != parent:
            os._exit(1)


def _is_scheduler(gate: Path) -> bool:
    """The first children are the schedulers, one per rank; the others need no GPU."""
    if "--multiprocessing-fork" not in sys.orig_argv:
        return False
    for rank in range(int(os.environ["PDMUXD_GATE_RANKS"])):
        try:
            Path(f"{gate}.{rank}").touch(exist_ok=False)
        except FileExistsError:
            continue
        return True
    return False


_run_the_one_behind()
if "PDMUXD_STALLS" in os.environ:
    sys.path.append(str(Path(__file__).parents[2]))  # last: its names must hide nobody's
    from in_sglang.gate import stalls

    stalls.watch(Path(os.environ["PDMUXD_STALLS"]))
if "PDMUXD_GATE" in os.environ and _is_scheduler(Path(os.environ["PDMUXD_GATE"])):
    import sglang.srt.managers.scheduler  # noqa: F401

    _wait(Path(os.environ["PDMUXD_GATE"]))
