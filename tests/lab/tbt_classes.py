"""A tenant with a strict TBT target beside one with a relaxed one.

    python tests/lab tbt-classes [--duration-s 200] [--seeds 6] [--mix chat:0.5,reasoning:10]
        [--noise 8,6,0.3]

Emulated engine, virtual time, the shipped profile of Llama-8B on an H200. Each mix is served with the two
targets, and the relaxed tenant by itself as well: what the strict one costs it. Target: 99% good for both.
Of several seeds: the means.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

import numpy as np
from device_noise import noise_of
from rich.console import Console
from rich.table import Table
from tenant_floods import PROFILE, Load, requests, run

from gpu_servers.options import cells
from pdmuxd.daemon.replay.generate import KINDS
from pdmuxd.engine.core.slo import DEFAULT_SLO
from pdmuxd.engine.emulator.noise import NO_NOISE, DeviceNoise
from pdmuxd.engine.emulator.profile import load_profile
from pdmuxd.engine.loop.requests import Target

STRICT, RELAXED = "strict", "relaxed"
TBT_S = {STRICT: 0.020, RELAXED: 0.200}
Mix = tuple[Load, Load]
"""The strict tenant's and the relaxed one's."""
MIXES: Sequence[Mix] = (
    (("chat", 0.5), ("summaries", 12.5)),
    (("summaries", 0.5), ("summaries", 11.0)),
    (("summaries", 0.5), ("summaries", 12.5)),
    (("summaries", 0.5), ("reasoning", 10.0)),
    (("chat", 0.5), ("tools", 2.0)),
)


TARGETS = {name: Target(slo=replace(DEFAULT_SLO, tbt_s=tbt_s), version=1) for name, tbt_s in TBT_S.items()}


def mixed(
    policy: str, mix: Mix, duration_s: float, seeds: int = 1, noise: DeviceNoise = NO_NOISE
) -> tuple[str, str, str]:
    """Good requests of the relaxed tenant by itself, of the strict one, and of the relaxed one beside it."""
    found = [_judged(policy, mix, duration_s, seed, noise) for seed in range(1, seeds + 1)]
    alone, strict, relaxed = (f"{100.0 * fmean(shares):.1f}%" for shares in zip(*found, strict=True))
    return alone, strict, relaxed


def _judged(
    policy: str, mix: Mix, duration_s: float, seed: int, noise: DeviceNoise
) -> tuple[float, float, float]:
    strict, relaxed = mix
    profile = load_profile(PROFILE)
    device = profile if noise == NO_NOISE else replace(profile, noise=replace(noise, seed=seed))
    _, alone = run(policy, requests(relaxed, RELAXED, duration_s, seed=seed), TARGETS, device)
    # Made anew: a request that was served keeps what became of it.
    both = [
        *requests(strict, STRICT, duration_s, seed=seed),
        *requests(relaxed, RELAXED, duration_s, seed=seed),
    ]
    both.sort(key=lambda request: request.arrival_s)
    _, judged = run(policy, both, TARGETS, device)
    is_strict = np.array([request.tenant == STRICT for request in both])
    return float(alone.mean()), float(judged[is_strict].mean()), float(judged[~is_strict].mean())


def one_mix(text: str) -> Mix:
    """`STRICT:RATE,RELAXED:RATE`."""
    found = cells(text)
    if len(found) != 2 or any(cell.workload not in KINDS for cell in found):
        raise argparse.ArgumentTypeError(
            f"{text!r}: two generated loads ({', '.join(KINDS)}), as chat:0.5,tools:2"
        )
    strict, relaxed = ((cell.workload, cell.rate) for cell in found)
    return strict, relaxed


def mixes(policy: str, options: argparse.Namespace, console: Console) -> None:
    """Each mix, and the relaxed tenant of it by itself."""
    table = Table(title=f"strict beside relaxed, {policy}")
    for column in ("strict, 20 ms", "relaxed, 200 ms", "relaxed alone", "strict", "relaxed"):
        table.add_column(column)
    for strict, relaxed in options.mix or MIXES:
        with console.status(f"{strict[0]} beside {relaxed[0]}"):
            shares = mixed(policy, (strict, relaxed), options.duration_s, options.seeds, options.noise)
        table.add_row(f"{strict[0]} {strict[1]:g}/s", f"{relaxed[0]} {relaxed[1]:g}/s", *shares)
    console.print(table)


def main() -> None:
    """Print a table for each policy."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--policy", action="append", default=[], help="may be repeated")
    parser.add_argument("--duration-s", type=float, default=500.0)
    parser.add_argument("--seeds", type=int, choices=range(1, 21), default=1, metavar="1..20")
    parser.add_argument(
        "--mix", type=one_mix, action="append", help="STRICT:RATE,RELAXED:RATE; may be repeated"
    )
    parser.add_argument("--noise", type=noise_of, default=NO_NOISE, help="BIAS,SCATTER,STALLS in percent")
    options = parser.parse_args()
    for policy in options.policy or ["auto:noclasses", "auto"]:
        mixes(policy, options, Console(width=120))


if __name__ == "__main__":
    main()
