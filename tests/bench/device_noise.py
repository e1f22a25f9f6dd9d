"""What a device costs that differs from its profile: `python tests/bench/device_noise.py`.

Emulated engine, virtual time, the shipped profile of Llama-8B on an H200, three minutes of generated loads
below and near capacity: good requests by the profile, with everything 8% slower, and with scatter and stalls
as well.
Target: noise costs no more than 2 points.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console
from rich.table import Table
from tenant_floods import PROFILE, TARGET, Load, good, requests, run

from pdmuxd.engine.emulator.noise import NO_NOISE, DeviceNoise
from pdmuxd.engine.emulator.profile import load_profile

NOISES = (
    ("as profiled", NO_NOISE),
    ("8% slower", DeviceNoise(bias_ratio=0.08)),
    (
        "and 6% scatter, 0.3% stalls",
        DeviceNoise(bias_ratio=0.08, scatter_ratio=0.06, stall_ratio=0.003),
    ),
)
LOADS: Sequence[Load] = (
    *(("chat", 170.0), ("chat", 190.0), ("summaries", 9.5), ("summaries", 10.5)),
    *(("tools", 1.7), ("tools", 2.0), ("documents", 1.7), ("documents", 2.0)),
)
POLICIES = ("auto", "auto:nosplit", "slack/chunked:1024")
DURATION_S = 180.0


def main() -> None:
    """Print a row for each load and policy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", action="append", default=[], help="may be repeated")
    table = Table(title="good requests")
    for column in ("load", "policy", *(name for name, _ in NOISES)):
        table.add_column(column)
    profile = load_profile(PROFILE)
    policies = parser.parse_args().policy or POLICIES
    for kind, rate_per_s in LOADS:
        for policy in policies:
            shares = []
            for _, noise in NOISES:
                arrivals = requests((kind, rate_per_s), "a", DURATION_S)
                device = replace(profile, noise=noise)
                _, judged = run(policy, arrivals, {"a": TARGET}, device)
                shares.append(good(judged))
            table.add_row(f"{kind} {rate_per_s:g}/s", policy, *shares)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
