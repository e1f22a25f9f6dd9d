"""A tenant with a strict TBT target beside one with a relaxed one: `python tests/bench/tbt_classes.py`.

Emulated engine, virtual time, the shipped profile of Llama-8B on an H200. Each mix is served with the two
targets, and the relaxed tenant by itself as well: what the strict one costs it. Target: 99% good for both.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from rich.console import Console
from rich.table import Table
from tenant_floods import Load, good, requests, run

from pdmuxd.engine.core.slo import DEFAULT_SLO
from pdmuxd.engine.loop.requests import Target

STRICT, RELAXED = "strict", "relaxed"
TBT_S = {STRICT: 0.020, RELAXED: 0.200}
MIXES: Sequence[tuple[Load, Load]] = (
    (("chat", 0.5), ("summaries", 12.5)),
    (("summaries", 0.5), ("summaries", 11.0)),
    (("summaries", 0.5), ("summaries", 12.5)),
    (("summaries", 0.5), ("reasoning", 10.0)),
    (("chat", 0.5), ("tools", 2.0)),
)


TARGETS = {name: Target(slo=replace(DEFAULT_SLO, tbt_s=tbt_s), version=1) for name, tbt_s in TBT_S.items()}


def mixed(policy: str, mix: tuple[Load, Load], duration_s: float) -> tuple[str, str, str]:
    """Good requests of the relaxed tenant by itself, of the strict one, and of the relaxed one beside it."""
    strict, relaxed = mix
    _, alone = run(policy, requests(relaxed, RELAXED, duration_s), TARGETS)
    both = [*requests(strict, STRICT, duration_s), *requests(relaxed, RELAXED, duration_s)]
    both.sort(key=lambda request: request.arrival_s)
    _, judged = run(policy, both, TARGETS)
    is_strict = np.array([request.tenant == STRICT for request in both])
    return good(alone), good(judged[is_strict]), good(judged[~is_strict])


def mixes(policy: str, duration_s: float, console: Console) -> None:
    """Each mix, and the relaxed tenant of it by itself."""
    table = Table(title=f"strict beside relaxed, {policy}")
    for column in ("strict, 20 ms", "relaxed, 200 ms", "relaxed alone", "strict", "relaxed"):
        table.add_column(column)
    for strict, relaxed in MIXES:
        shares = mixed(policy, (strict, relaxed), duration_s)
        table.add_row(f"{strict[0]} {strict[1]:g}/s", f"{relaxed[0]} {relaxed[1]:g}/s", *shares)
    console.print(table)


def main() -> None:
    """Print a table for each policy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", action="append", default=[], help="may be repeated")
    parser.add_argument("--duration-s", type=float, default=500.0)
    arguments = parser.parse_args()
    for policy in arguments.policy or ["auto:noclasses", "auto"]:
        mixes(policy, arguments.duration_s, Console(width=120))


if __name__ == "__main__":
    main()
