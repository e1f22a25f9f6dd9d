"""The engine that `measure` and `sustained` put their questions to."""

from __future__ import annotations

import argparse
import os
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_servers.model_folder import SHAPES
from gpu_servers.options import ServerOptions, add_server_options
from gpu_servers.shapes import shape_model
from pdmuxd.daemon.bench.arms import Arm
from pdmuxd.daemon.bench.runner import run_until_told
from pdmuxd.daemon.supervisor.plan import EnginePlan
from pdmuxd.engine.core.errors import PdmuxdError


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureOptions(ServerOptions):
    """Which engine is asked, and where the answers go."""

    model: str
    arm: str = "ours:auto"
    tp_size: int = 1
    out: Path = Path(".gpu/profile")


def add_measure_options(parser: argparse.ArgumentParser) -> None:
    """Its fields."""
    parser.add_argument("--model", required=True, choices=sorted(SHAPES))
    parser.add_argument("--arm", default="ours:auto", help="or emulator:auto, to try it")
    parser.add_argument("--tp-size", type=int, default=1, help="GPUs that share the model")
    parser.add_argument("--out", type=Path, default=Path(".gpu/profile"))
    add_server_options(parser)


def plan_of(options: MeasureOptions, runtime_dir: Path) -> EnginePlan:
    """The engine of an arm, started as the daemon starts it."""
    arm = Arm(name=options.arm)
    model, tp_size = shape_model(options.model, options.work, options.config), options.tp_size
    os.environ.update(arm.environment(cpu=options.cpu, tp_size=tp_size))

    def command(port: int, link: str, parent_pid: int) -> Sequence[str]:
        words = arm.command(
            model=model,
            port=port,
            link=link,
            tp_size=tp_size,
            cpu=options.cpu,
            extra=options.extra,
            kernels_file=options.kernels_file,
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
