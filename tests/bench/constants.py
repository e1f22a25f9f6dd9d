"""What `auto`'s constants are worth: good requests with each at half and twice its value.

    python tests/bench/constants.py

Emulated engine, virtual time, the shipped profile of Llama-8B on an H200, generated loads near capacity that
nothing was tuned with. A constant that changes nothing here is not what decides.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType

from evaluation.workloads import GENERATED_SEED
from rich.console import Console
from rich.table import Table
from tenant_floods import TARGET, Load, requests, run

from pdmuxd.engine.core.policies import auto, choice, layerwise

CONSTANTS: Sequence[tuple[ModuleType, str, tuple[float, ...]]] = (
    (choice, "LAUNCH_BOUND", (0.4, 1.0)),
    (layerwise, "SHRINK_MARGIN", (0.9, 1.0)),
    (choice, "FUSED_LIMIT_S", (1.0, 4.0)),
    (auto, "MAX_LOOK_AHEAD", (1, 2, 8)),
    (auto, "BATCH_TOKENS", (4096, 16384)),
)
"""Where it stands, and what it is set to instead."""
LOADS: Sequence[tuple[Load, float]] = (
    (("chat", 225.0), 30.0),
    (("summaries", 13.0), 120.0),
    (("documents", 2.4), 240.0),
    (("tools", 3.2), 180.0),
    (("agents", 1.1), 300.0),
    (("reasoning", 11.0), 90.0),
)
"""Near what `auto` holds, and for how many seconds."""


@contextmanager
def set_to(module: ModuleType, name: str, value: float) -> Iterator[None]:
    """A constant has another value meanwhile."""
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


def good_ratio(load: Load, seconds: float) -> float:
    """Of the requests of a load under `auto`."""
    _, judged = run("auto", requests(load, "a", seconds, seed=GENERATED_SEED), {"a": TARGET})
    return float(judged.mean())


def main() -> None:
    """Print a row for each constant and value: points more or less than with the values as they are."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    console = Console(width=130)
    table = Table(title="good requests, and the change by each value in points")
    for column in ("constant", "value", *(f"{kind} {rate:g}/s" for (kind, rate), _ in LOADS)):
        table.add_column(column)
    as_is = [good_ratio(load, seconds) for load, seconds in LOADS]
    table.add_row("as they are", "", *(f"{share:.1%}" for share in as_is))
    for module, name, values in CONSTANTS:
        for value in values:
            with console.status(f"{name} {value:g}"), set_to(module, name, value):
                found = [good_ratio(load, seconds) for load, seconds in LOADS]
            changes = (f"{100.0 * (share - was):+.1f}" for share, was in zip(found, as_is, strict=True))
            table.add_row(name, f"{value:g} for {getattr(module, name):g}", *changes)
    console.print(table)


if __name__ == "__main__":
    main()
