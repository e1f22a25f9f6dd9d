"""What the constants of `auto`'s margins are worth: `python tests/lab margin-constants`.

Emulated engine, virtual time, a device that differs from its profile (4% slower, scatter 10%, 0.3% stalls).
Good requests on three loads that no constant was set on, with each constant halved and doubled, or near that.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

from tenant_floods import PROFILE, TARGET, good, requests, run

from pdmuxd.engine.emulator.noise import DeviceNoise
from pdmuxd.engine.emulator.profile import load_profile

CORE = "pdmuxd.engine.core."
MARGIN, STALLS, STEPS = "estimates.latency_margin", "policies.stalls", "estimates.steps"
CONSTANTS: Sequence[tuple[str, str, float, float]] = (
    (MARGIN, "LATE_SHARE", 0.1, 0.4),
    (MARGIN, "LAST_50", 0.01, 0.04),
    (MARGIN, "CORRECTION", 0.25, 1.0),
    (MARGIN, "HIGHEST_FACTOR", 6.0, 12.0),
    (MARGIN, "STALL_STEPS", 1000, 4000),
    (STALLS, "SPARE_STEPS", 7.0, 28.0),
    (STALLS, "SPARE_PREFILLS", 2.0, 8.0),
    (STALLS, "MOST_OF_TARGET", 0.25, 1.0),
    (STEPS, "GUARD_RISE", 0.05, 0.2),
)
NOISE = DeviceNoise(bias_ratio=0.04, scatter_ratio=0.1, stall_ratio=0.003)
LOADS = (
    ("agents", 0.5, PROFILE, 0.05),
    ("summaries", 2.0, "h200-codellama-34b-measured", 0.1),
    ("documents", 0.35, "h200-codellama-34b-measured", 0.1),
)
DURATION_S = 150.0

Change = tuple[str, str, float] | None
"""Module, constant and its value; None: as it is."""


def row(change: Change) -> str:
    """The good share on each load."""
    if change is not None:
        setattr(importlib.import_module(CORE + change[0]), change[1], change[2])
    shares = []
    for kind, rate_per_s, name, tbt_s in LOADS:
        target = replace(TARGET, slo=replace(TARGET.slo, tbt_s=tbt_s))
        device = replace(load_profile(name), noise=NOISE)
        _, judged = run("auto", requests((kind, rate_per_s), "a", DURATION_S), {"a": target}, device)
        shares.append(good(judged))
    title = "as it is" if change is None else f"{change[1]} = {change[2]:g}"
    return " | ".join((f"| {title}", *shares)) + " |"


def main() -> None:
    """Print a row for each value."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    names = [name for _, name, _, _ in CONSTANTS]
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help="may be repeated")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    wanted = options.only or names
    changes: list[Change] = [None]
    for module, name, low, high in CONSTANTS:
        if name in wanted:
            changes += [(module, name, low), (module, name, high)]
    print("| value |", *(f"{kind} {rate:g}/s, {name.split('-', 1)[1]} |" for kind, rate, name, _ in LOADS))
    with ProcessPoolExecutor(options.jobs, max_tasks_per_child=1) as pool:  # a changed constant stays changed
        for number, line in enumerate(pool.map(row, changes), start=1):
            print(f"{number} of {len(changes)}", file=sys.stderr)
            print(line, flush=True)


if __name__ == "__main__":
    main()
