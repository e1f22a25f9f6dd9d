"""What `auto`'s constants are worth: good requests with each at half and twice its value.

    python tests/lab constants [--constant NAME --seeds 5 --load documents:2.2 --duration-s 240]

Emulated engine, virtual time, the shipped profile of Llama-8B on an H200, generated loads near capacity that
nothing was tuned with. A constant that changes nothing here is not what decides. With several seeds: the mean
of the changes on the same arrivals, and half of its 95% interval (t).
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

from gpu_servers.options import cells
from pdmuxd.daemon.compare.statistics import estimate
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


def good_ratios(load: Load, seconds: float, seeds: int) -> list[float]:
    """Of the requests of a load under `auto`, by seed."""
    found = []
    for seed in range(GENERATED_SEED, GENERATED_SEED + seeds):
        _, judged = run("auto", requests(load, "a", seconds, seed=seed), {"a": TARGET})
        found.append(float(judged.mean()))
    return found


def change(ratios: Sequence[float], before: Sequence[float]) -> str:
    """In points, with half of the interval if there are several."""
    found = estimate([100.0 * (now - was) for now, was in zip(ratios, before, strict=True)])
    half = "" if found.half_width_95 is None else f" ± {found.half_width_95:.1f}"
    return f"{found.mean:+.1f}{half}"


def main() -> None:
    """Print a row for each constant and value: points more or less than with the values as they are."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--constant", choices=[name for _, name, _ in CONSTANTS], help="this one only")
    parser.add_argument("--seeds", type=int, choices=range(1, 101), default=1, metavar="1..100")
    parser.add_argument("--load", type=cells, help="KIND:RATE, with commas between them")
    parser.add_argument("--duration-s", type=float, default=240.0, help="of such a load (%(default)s)")
    options = parser.parse_args()
    loads = LOADS
    if options.load is not None:
        loads = [((cell.workload, cell.rate), options.duration_s) for cell in options.load]
    console = Console(width=130)
    table = Table(title="good requests, and the change by each value in points")
    for column in ("constant", "value", *(f"{kind} {rate:g}/s" for (kind, rate), _ in loads)):
        table.add_column(column)
    with console.status("as they are"):
        as_is = [good_ratios(load, seconds, options.seeds) for load, seconds in loads]
    table.add_row("as they are", "", *(f"{estimate(shares).mean:.1%}" for shares in as_is))
    for module, name, values in CONSTANTS:
        if options.constant not in (None, name):
            continue
        for value in values:
            with console.status(f"{name} {value:g}"), set_to(module, name, value):
                found = [good_ratios(load, seconds, options.seeds) for load, seconds in loads]
            changes = (change(shares, before) for shares, before in zip(found, as_is, strict=True))
            table.add_row(name, f"{value:g} for {getattr(module, name):g}", *changes)
    console.print(table)


if __name__ == "__main__":
    main()
