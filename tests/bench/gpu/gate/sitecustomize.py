"""Python runs this at its start in a server that is started ahead: see `ahead.py`.

A scheduler process is held back when its imports are done, which take half of a server's start and no GPU,
until the gate's file is there. What SGLang does after that is what it does without this.
"""

import os
import sys
import time
from pathlib import Path


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


if "PDMUXD_GATE" in os.environ and _is_scheduler(Path(os.environ["PDMUXD_GATE"])):
    import sglang.srt.managers.scheduler  # noqa: F401

    _wait(Path(os.environ["PDMUXD_GATE"]))
