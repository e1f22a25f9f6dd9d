"""A tenant with a strict TBT target beside one with a relaxed one: `python tests/bench/tbt_classes.py`.

Emulated engine, virtual time, the shipped profile of Llama-8B on an H200. Each mix is served with the two
targets, and the relaxed tenant by itself as well: what the strict one costs it. Target: 99% good for both.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from tenant_floods import PROFILE, Load, good, requests

from pdmuxd.daemon.replay.collect import Collector
from pdmuxd.engine.core.slo import DEFAULT_SLO
from pdmuxd.engine.emulator.engine import EmulatedEngine
from pdmuxd.engine.emulator.profile import load_profile
from pdmuxd.engine.emulator.replay import drive
from pdmuxd.engine.emulator.requests import EmulatedRequest
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


def run(policy: str, arrivals: Sequence[EmulatedRequest]) -> NDArray[np.bool_]:
    """Which requests were good: the first token and p99 of their gaps in time."""
    for index, request in enumerate(arrivals):
        request.request_id = str(index)  # as Collector wants it
    collector = Collector(arrivals, DEFAULT_SLO.tbt_s)
    engine = EmulatedEngine(
        profile=load_profile(PROFILE), policy=policy, observer=collector, block_tokens=512
    )
    targets = {
        name: Target(slo=replace(DEFAULT_SLO, tbt_s=tbt_s), version=1) for name, tbt_s in TBT_S.items()
    }
    engine.apply_settings(version=1, policy=policy, slos=targets)
    collector.attach(engine.token_times)
    drive(engine, arrivals, sample_every_s=1.0, on_sample=lambda now_s: None)
    outcomes = collector.outcomes()
    new_tokens = np.maximum(outcomes.input_tokens - outcomes.reused_tokens, 1)
    target_s = DEFAULT_SLO.ttft_fixed_s + DEFAULT_SLO.ttft_per_1k_new_tokens_s * new_tokens / 1000.0
    tbt_s = np.array([TBT_S[request.tenant] for request in arrivals])
    in_time = outcomes.finished & (outcomes.ttft_s <= target_s + 1e-9)
    return in_time & (outcomes.gap_p99_s <= tbt_s + 1e-9)


def mixes(policy: str, duration_s: float, console: Console) -> None:
    """Each mix, and the relaxed tenant of it by itself."""
    table = Table(title=f"strict beside relaxed, {policy}")
    for column in ("strict, 20 ms", "relaxed, 200 ms", "relaxed alone", "strict", "relaxed"):
        table.add_column(column)
    for strict, relaxed in MIXES:
        alone = run(policy, requests(relaxed, RELAXED, duration_s))
        both = [*requests(strict, STRICT, duration_s), *requests(relaxed, RELAXED, duration_s)]
        both.sort(key=lambda request: request.arrival_s)
        judged = run(policy, both)
        is_strict = np.array([request.tenant == STRICT for request in both])
        table.add_row(
            f"{strict[0]} {strict[1]:g}/s",
            f"{relaxed[0]} {relaxed[1]:g}/s",
            good(alone),
            good(judged[is_strict]),
            good(judged[~is_strict]),
        )
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
