"""What caps of strict tenants give the relaxed one: `python tests/lab tbt-caps`.

Emulated engine, virtual time, the shipped profile of Llama-8B on an H200. Two tenants with strict TBT targets
beside a relaxed one, under each set of floors that the daemon's caps can set: none; the strictest at the next
one's target; both at the relaxed one's, where the second is capped as well. Good requests by each tenant's
own target, and how long the relaxed one's first tokens take.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from rich.console import Console
from rich.table import Table
from tenant_floods import Load, good, requests, run

from pdmuxd.engine.core.slo import DEFAULT_SLO
from pdmuxd.engine.loop.requests import Target

TBT_S = {"strictest": 0.015, "strict": 0.025, "relaxed": 0.200}
MIXES: tuple[tuple[Load, Load, Load], ...] = (
    (("chat", 0.5), ("chat", 0.5), ("summaries", 11.0)),
    (("chat", 0.5), ("chat", 0.5), ("summaries", 12.5)),
    (("reasoning", 2.0), ("summaries", 0.5), ("summaries", 9.0)),
)
FLOORS_S: Mapping[str, Mapping[str, float]] = {
    "nobody": {},
    "strictest": {"strictest": 0.025},
    "both": {"strictest": 0.200, "strict": 0.200},
}


def capped(policy: str, mix: tuple[Load, ...], floors_s: Mapping[str, float], duration_s: float) -> list[str]:
    """Good requests of each tenant, and the relaxed one's TTFT."""
    arrivals = [
        one
        for name, load in zip(TBT_S, mix, strict=True)
        for one in requests(load, name, duration_s, seed=len(name))
    ]
    arrivals.sort(key=lambda request: request.arrival_s)
    targets = {
        name: Target(slo=replace(DEFAULT_SLO, tbt_s=tbt_s), version=1, tbt_floor_s=floors_s.get(name, 0.0))
        for name, tbt_s in TBT_S.items()
    }
    outcomes, judged = run(policy, arrivals, targets)
    tenants = np.array([request.tenant for request in arrivals])
    ttft_s = outcomes.ttft_s[(tenants == "relaxed") & outcomes.finished]
    return [
        *(good(judged[tenants == name]) for name in TBT_S),
        f"{np.quantile(ttft_s, 0.5):.2f} / {np.quantile(ttft_s, 0.99):.2f} s",
    ]


def main() -> None:
    """Print a table for each policy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", action="append", default=[], help="may be repeated")
    parser.add_argument("--duration-s", type=float, default=200.0)
    arguments = parser.parse_args()
    for policy in arguments.policy or ["auto"]:
        table = Table(title=f"caps of strict tenants, {policy}")
        for column in ("loads", "capped", *(f"{name}, {1e3 * s:g} ms" for name, s in TBT_S.items())):
            table.add_column(column)
        table.add_column("relaxed TTFT p50 / p99")
        for mix in MIXES:
            loads = ", ".join(f"{kind} {rate:g}/s" for kind, rate in mix)
            for who, floors_s in FLOORS_S.items():
                table.add_row(loads, who, *capped(policy, mix, floors_s, arguments.duration_s))
        Console(width=150).print(table)


if __name__ == "__main__":
    main()
