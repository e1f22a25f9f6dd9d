"""What a flood costs the tenant beside it, and whom overload gives up: `python tests/lab tenant-floods`.

Emulated engine, virtual time, the shipped profile of Llama-8B on an H200. First, a tenant by itself and the
same requests beside another that sends far more than its share for five minutes; then two of unequal weight
past capacity; then one tenant past capacity, by quartile of new tokens. Target: no more than 2 points for the
first; no quartile more than 10 points under the mean for the last.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from pdmuxd.daemon.replay.collect import Collector
from pdmuxd.daemon.replay.generate import BLOCK_TOKENS, generate
from pdmuxd.daemon.replay.outcomes import Outcomes
from pdmuxd.engine.core.slo import DEFAULT_SLO
from pdmuxd.engine.emulator.engine import EmulatedEngine
from pdmuxd.engine.emulator.profile import Profile, load_profile
from pdmuxd.engine.emulator.replay import drive
from pdmuxd.engine.emulator.requests import EmulatedRequest
from pdmuxd.engine.loop.requests import Target

PROFILE = "h200-llama-8b-measured"
FLOOD_FROM_S, FLOOD_S, ALL_S = 60.0, 300.0, 420.0
MOST_TOKENS = 120_000

Load = tuple[str, float]
"""A kind of `pdmuxd generate`, and requests a second."""

FLOODS: Sequence[tuple[Load, Load]] = (
    (("summaries", 5.0), ("summaries", 50.0)),
    (("chat", 50.0), ("chat", 500.0)),
    (("chat", 20.0), ("documents", 5.0)),
    (("documents", 0.4), ("chat", 400.0)),
)
TARGET = Target(slo=DEFAULT_SLO, version=1)
WEIGHTS = (3.0, 1.0)
WEIGHTED: Load = ("summaries", 20.0)
OVERLOADS: Sequence[Load] = (("summaries", 18.0), ("chat", 280.0), ("tools", 4.0), ("documents", 5.0))


def requests(
    load: Load, tenant: str, duration_s: float, from_s: float = 0.0, seed: int = 1
) -> list[EmulatedRequest]:
    """A generated load, all of one tenant."""
    kind, rate_per_s = load
    return [
        EmulatedRequest(
            request_id=f"{tenant}{row.line}",
            tenant=tenant,
            arrival_s=from_s + row.arrival_s,
            input_tokens=min(row.input_tokens, MOST_TOKENS),
            output_tokens=row.output_tokens,
            block_keys=row.prefix_ids,
            answer_keys=row.answer_ids,
        )
        for row in generate(kind, rate_per_s=rate_per_s, duration_s=duration_s, seed=seed)
    ]


def run(
    policy: str,
    arrivals: Sequence[EmulatedRequest],
    targets: Mapping[str, Target],
    profile: Profile | None = None,
    on_next: Callable[[EmulatedRequest], None] = lambda _: None,
) -> tuple[Outcomes, NDArray[np.bool_]]:
    """What became of the requests, and which were good: the first token and p99 of their gaps in time.

    `on_next` is called with each before time goes on to its arrival.
    """

    def coming() -> Iterator[EmulatedRequest]:
        for request in arrivals:
            on_next(request)
            yield request

    for index, request in enumerate(arrivals):
        request.request_id = str(index)  # as Collector wants it
    collector = Collector(arrivals, DEFAULT_SLO.tbt_s)
    engine = EmulatedEngine(
        profile=profile or load_profile(PROFILE), policy=policy, observer=collector, block_tokens=BLOCK_TOKENS
    )
    engine.apply_settings(version=1, policy=policy, slos=targets)
    collector.attach(engine.token_times)
    drive(engine, coming(), sample_every_s=1.0, on_sample=lambda now_s: None)
    outcomes = collector.outcomes()
    new_tokens = np.maximum(outcomes.input_tokens - outcomes.reused_tokens, 1)
    slos = [targets[request.tenant].slo for request in arrivals]
    ttft_s = np.array([slo.ttft_target_s(int(new)) for slo, new in zip(slos, new_tokens, strict=True)])
    tbt_s = np.array([slo.tbt_s for slo in slos])
    in_time = outcomes.finished & (outcomes.ttft_s <= ttft_s + 1e-9)
    return outcomes, in_time & (outcomes.gap_p99_s <= tbt_s + 1e-9)


def good(flags: NDArray[np.bool_]) -> str:
    """A share in percent."""
    return f"{100.0 * float(flags.mean()):.1f}%" if len(flags) else "-"


def floods(policy: str, console: Console) -> None:
    """A tenant alone, and beside a flood."""
    table = Table(title=f"beside a flood, {policy}")
    for column in ("tenant", "flood", "alone", "beside it", "the flood's own"):
        table.add_column(column)
    for calm, flood in FLOODS:
        mine = requests(calm, "a", ALL_S)
        _, alone = run(policy, mine, {"a": TARGET})
        both = [*requests(calm, "a", ALL_S), *requests(flood, "b", FLOOD_S, FLOOD_FROM_S)]
        both.sort(key=lambda request: request.arrival_s)
        _, judged = run(policy, both, {"a": TARGET, "b": TARGET})
        is_mine = np.array([request.tenant == "a" for request in both])
        table.add_row(
            f"{calm[0]} {calm[1]:g}/s",
            f"{flood[0]} {flood[1]:g}/s",
            good(alone),
            good(judged[is_mine]),
            good(judged[~is_mine]),
        )
    console.print(table)


def weights(policy: str, console: Console) -> None:
    """Two tenants that send the same load past capacity, one of three times the other's weight."""
    both = [request for name in "ab" for request in requests(WEIGHTED, name, 240.0)]
    both.sort(key=lambda request: request.arrival_s)
    targets = {name: replace(TARGET, weight=weight) for name, weight in zip("ab", WEIGHTS, strict=True)}
    _, judged = run(policy, both, targets)
    of_first = np.array([request.tenant == "a" for request in both])
    console.print(
        f"{WEIGHTED[0]} {WEIGHTED[1]:g}/s each, weights {WEIGHTS[0]:g} and {WEIGHTS[1]:g}, {policy}: "
        f"{good(judged[of_first])} and {good(judged[~of_first])}"
    )


def overloads(policy: str, console: Console) -> None:
    """One tenant past capacity, by length."""
    table = Table(title=f"past capacity, {policy}")
    for column in (
        "load",
        "good",
        "by quartile of new tokens",
        "longest wait of a first token, s",
        "refused",
    ):
        table.add_column(column)
    for load in OVERLOADS:
        arrivals = requests(load, "a", 240.0)
        outcomes, judged = run(policy, arrivals, {"a": TARGET})
        lengths = np.maximum(outcomes.input_tokens - outcomes.reused_tokens, 1)
        quartile = np.searchsorted(np.quantile(lengths, [0.25, 0.5, 0.75]), lengths)
        longest_s = max((float(s) for s in outcomes.ttft_s if math.isfinite(s)), default=0.0)
        table.add_row(
            f"{load[0]} {load[1]:g}/s",
            good(judged),
            ", ".join(good(judged[quartile == part]) for part in range(4)),
            f"{longest_s:.0f}",
            f"{int(outcomes.failed.sum()):,} of {len(arrivals):,}",
        )
    console.print(table)


def main() -> None:
    """Print what was asked for, for each policy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", action="append", default=[], help="may be repeated (default: auto)")
    parser.add_argument("--only", action="append", choices=("floods", "weights", "overloads"))
    options = parser.parse_args()
    console = Console(width=120)
    for policy in options.policy or ["auto"]:
        for name in options.only or ("floods", "weights", "overloads"):
            {"floods": floods, "weights": weights, "overloads": overloads}[name](policy, console)


if __name__ == "__main__":
    main()
