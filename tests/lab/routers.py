"""What routers make of nodes that fail and of tenants that do wrong. Loopback only.

    python tests/lab routers [--router sglang] [--python PYTHON] [--flood-s 10]

Three emulated nodes with one PostgreSQL behind `sglang-router` or LiteLLM's proxy, which PYTHON has
(`pip install sglang-router 'litellm[proxy]'` in an environment of its own). Prints a table: how many requests
of a tenant that did nothing were lost, of those in flight at the fault and of those that came later.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from router_fleet import Fleet, faults, router_python


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--router", choices=("sglang", "litellm"), default="sglang")
    parser.add_argument("--python", default=router_python())
    parser.add_argument("--flood-s", type=float, default=10.0)
    wanted = parser.parse_args()
    if wanted.python is None:
        parser.error("no Python with a router: --python, or $PYTHON_ROUTERS")
    print("| what | requests | in flight on the node | lost of them | lost later | slowest | others |")
    print("|---|---|---|---|---|---|---|")
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.closing(Fleet(Path(folder), wanted.router, wanted.python)) as fleet,
    ):
        for one in faults(fleet, wanted.flood_s):
            others = ", ".join(
                f"{count} x {status}"
                for status, count in Counter(answer.status for answer in one.others).most_common()
            )
            print(
                f"| {one.what} | {len(one.answers)} | {one.in_flight} | {len(one.lost_in_flight)} | "
                f"{len(one.lost_later)} | {one.slowest_s:.1f} s | {others} |",
                flush=True,
            )
            for lost in (*one.lost_in_flight, *one.lost_later):
                print(f"  lost: {lost.wrong}", file=sys.stderr)


if __name__ == "__main__":
    main()
