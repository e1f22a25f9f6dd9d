"""Tenants, strangers and faults against a whole daemon, with the figure of each: `python tests/lab red-team`.

Runs the tests that attack (`ATTACKS`), each against a daemon of its own on loopback with the emulated engine,
and prints what they measured; an attack that wins fails. `make test-slow` runs the same tests, `make test`
those without a daemon. All chances are seeded: `--seed` is Hypothesis's, the others stand in the tests.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[2]
ATTACKS = {
    "limits": "tests/daemon/gateway/limits/test_overshoot.py tests/e2e/test_limits.py",
    "doors": "tests/e2e/test_wrong_keys.py",
    "attainment": "tests/e2e/test_from_the_wire.py",
    "faults": "tests/e2e/test_own_alarms.py tests/e2e/test_lost_files.py tests/e2e/test_full_disk.py",
    "books": "tests/e2e/test_ledger.py tests/e2e/test_continuous_copy.py",
    "nodes": "tests/e2e/test_two_nodes.py",
}
MATRIX = "matrix"
"""Every kind of attack without a key, on both ports: `tests/lab/doors.py`."""
_NOISE = re.compile(r"^(\S+Z \[|[.sFE]+\s|\s*$|=|-|rootdir|plugins)")


def attack(name: str, seed: int) -> bool:
    """Run one part and print what it measured; whether all of it held."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-s", "-m", "", "-p", "no:cacheprovider"]
    command += [f"--hypothesis-seed={seed}", *ATTACKS.get(name, "").split()]
    if name == MATRIX:
        command = [sys.executable, "tests/lab", "doors"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    where = ATTACKS.get(name, "tests/lab/doors.py")
    print(f"\n{name}: {'held' if done.returncode == 0 else 'NOT HELD'} ({where})")
    for line in done.stdout.splitlines():
        told = line.lstrip(".F")
        if told and not _NOISE.match(told):
            print(f"  {told}")
    return done.returncode == 0


def main() -> int:
    """All parts, or those that are named."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = (*ATTACKS, MATRIX)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(parts)}; all unless given")
    parser.add_argument("--seed", type=int, default=39)
    asked = parser.parse_args()
    if unknown := [part for part in asked.parts if part not in parts]:
        parser.error(f"{unknown[0]!r} is no part; allowed are {', '.join(parts)}")
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    print(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {os.cpu_count()} CPUs, load {load}, seed {asked.seed}")
    held = [attack(part, asked.seed) for part in asked.parts or parts]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
