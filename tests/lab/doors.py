"""Attacks without a good key, on both ports, from one address and from five: `python tests/lab doors`.

5,000 connections send wrong keys, nothing, half a head or a head of 64 KiB, and come again as soon as they
are closed. Beside them a good key, an operator and a probe ask, from an address of their own and from the
attackers'. A line for each; exits with 1 if anybody honest is refused. Best run before all else on the
machine: `chrt -r 2 python tests/lab doors`.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
from itertools import product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))

from daemon_process import Daemon
from test_wrong_keys import measured, wrong_keys

KINDS = ("keys", "silent", "half", "huge")
MANY = tuple(f"127.0.1.{each}" for each in range(1, 6))
ELSEWHERE = "127.0.0.7"


def line(daemon: Daemon, kind: str, port: str, sources: tuple[str, ...], count: int, seconds: float) -> bool:
    """One attack; whether all who are honest were served."""
    os.environ["ATTACK"] = kind
    key, token = ({"Authorization": f"Bearer {secret}"} for secret in (daemon.key, daemon.token))
    url, path = {
        "data": (daemon.data_url, "/v1/models"),
        "admin": (daemon.admin_url, "/api/v1/tenants"),
    }[port]
    cells, all_served = [], True
    with wrong_keys(url, count, path, *sources):
        for source in (ELSEWHERE, sources[0]):
            for asked in (
                (daemon.data_url, "/v1/models", source, key),
                (daemon.admin_url, "/api/v1/tenants", source, token),
                (daemon.admin_url, "/healthz", source),
            ):
                statuses, took_s = measured(*asked, seconds=seconds)
                served = statuses.count(200)
                all_served = all_served and served == len(statuses)
                cells.append(f"{served} of {len(statuses)}, {1000 * took_s[len(took_s) * 99 // 100]:.0f}")
    print(f"| {kind}, {port}, {len(sources)} | {' | '.join(cells)} |", flush=True)
    return all_served


def main() -> int:
    """All of them, on one daemon."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--connections", type=int, default=5000)
    parser.add_argument("--seconds", type=float, default=5.0, help="for each who is honest")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    asked = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 20000), hard))
    print(
        "| attack, port, addresses | key, p99 ms | operator | /healthz "
        "| key, their address | operator | /healthz |"
    )
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(Path(folder), settings=("log.level=error",))
        try:
            held = [
                line(daemon, kind, port, sources, asked.connections, asked.seconds)
                for kind, port, sources in product(asked.kinds, ("data", "admin"), (MANY, MANY[:1]))
            ]
        finally:
            daemon.stop()
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
