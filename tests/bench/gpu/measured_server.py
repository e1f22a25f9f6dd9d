"""The engine that `measure.py` and `sustained.py` put their questions to."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(1, str(Path(__file__).parents[2] / "support"))

from arms import Arm
from bench import run_until_told
from model_folder import write_model_folder

from pdmuxd.daemon.supervisor.plan import EnginePlan
from pdmuxd.engine.core.errors import PdmuxdError


def plan_of(options: argparse.Namespace, runtime_dir: Path) -> EnginePlan:
    """The engine of an arm, started as the daemon starts it."""
    arm = Arm(name=options.arm)
    model = write_model_folder(options.model, options.work / options.model)
    tp_size: int = options.tp_size
    os.environ.update(arm.environment(cpu=options.cpu, tp_size=tp_size))

    def command(port: int, link: str, parent_pid: int) -> Sequence[str]:
        words = arm.command(
            model=model, port=port, link=link, tp_size=tp_size, cpu=options.cpu, extra=options.extra
        )
        # It ends with this process however that ends: a killed one must not leave the GPU taken.
        at = words.index("--link")
        return [*words[:at], "--parent-pid", str(parent_pid), *words[at:]]

    return EnginePlan(
        command=command,
        state_dir=options.out,
        runtime_dir=runtime_dir,
        start_timeout_s=options.start_s,
        backoff_initial_s=1.0,
        backoff_max_s=1.0,
    )


def exit_code(work: Coroutine[Any, Any, bool]) -> int:
    """Do it: 0 if all of it was done, 1 if not, or if it failed, which is said in one line."""
    try:
        return 0 if run_until_told(work) else 1
    except PdmuxdError as error:
        print(f"FAILED: {error}")
        return 1
