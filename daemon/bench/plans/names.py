"""The names of the measurements, and how each is run as a process of its own."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from pdmuxd.engine.core.errors import SettingsError

_HERE = "pdmuxd.daemon.bench"
_THERE = "pdmuxd.engine.sglang.bench"
"""Imported when it is run: it needs PyTorch."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One measurement: a module with `main(argv)`, which returns the exit code."""

    module: str
    about: str
    example: str = ""
    """Its arguments, where its own help cannot be had without PyTorch."""


PLANS: dict[str, Plan] = {
    "session": Plan(f"{_HERE}.session.command", "All that fills the project's tables, within a time."),
    "matrix": Plan(f"{_HERE}.plans.matrix", "All arms on all cells, the most telling first."),
    "run": Plan(f"{_HERE}.plans.run", "Arms, cells and targets of one's choice."),
    "table": Plan(f"{_HERE}.plans.table", "Print the results of `matrix` and `run`."),
    "micro": Plan(f"{_HERE}.plans.micro", "What multiplexing costs: switches, turns, layers, memory."),
    "slo-change": Plan(f"{_HERE}.plans.slo_change", "How fast a changed target is in force under load."),
    "flood": Plan(f"{_HERE}.plans.flood", "What a flood costs the tenant beside it, at the clients."),
    "token-path": Plan(f"{_HERE}.plans.token_path", "What a token costs on both of its ways."),
    "two-gpus": Plan(f"{_HERE}.plans.two_gpus", "Aborts and policy changes with tensor parallelism."),
    "measure": Plan(f"{_HERE}.plans.measure", "A profile, and shapes that it has not seen."),
    "sustained": Plan(f"{_HERE}.plans.sustained", "Whether work takes longer on a GPU that is kept at it."),
    "agreement": Plan(f"{_HERE}.plans.agreement", "Whether answers under load are an idle engine's."),
    "long-prompts": Plan(f"{_HERE}.plans.long_prompts", "Prompts that memory does not hold whole."),
    "steps": Plan(f"{_HERE}.plans.steps", "What steps took and were predicted to take."),
    "between-steps": Plan(f"{_HERE}.plans.between_steps", "What the device does between two fused steps."),
    "stall-trace": Plan(f"{_HERE}.servers.stall_trace", "Where the processes that tokens pass stood."),
    "unseen": Plan(f"{_HERE}.plans.unseen", "How well a kept profile predicts kept shapes."),
    "prepare-traces": Plan(f"{_HERE}.plans.prepare_traces", "Cut recorded traces down for the others."),
    "partition-kernels": Plan(
        f"{_THERE}.partition_kernels", "Which kernels suit a partition.", "products --out FOLDER"
    ),
    "first-launches": Plan(
        f"{_THERE}.first_launches", "Which products load a kernel when launched.", "--model llama-8b"
    ),
}


def command_of(name: str, *words: str) -> list[str]:
    """The command line of a measurement, for this Python."""
    return [sys.executable, "-P", "-m", _HERE, name, *words]


def run_plan(name: str, argv: Sequence[str]) -> int:
    """Run one in this process; its exit code, also where it refuses the command line."""
    try:
        code: int = importlib.import_module(PLANS[name].module).main(list(argv))
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    except ImportError as error:
        raise SettingsError(f"{name} needs {error.name}: run it with the Python that has SGLang") from error
    return code
