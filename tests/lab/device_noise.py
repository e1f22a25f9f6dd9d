"""What a device costs that differs from its profile.

    python tests/lab device-noise [--noise 8,6,0.3 --load chat:190 --tbt-ms 20 --seeds 6]
        [--known] [--out FILE] [--against FILE]

Emulated engine, virtual time, the shipped profile of Llama-8B on an H200, generated loads below and near
capacity, each seed with arrivals and a noise of its own: the share of good requests by the profile, and with
bias, scatter and stalls, by themselves and together. Target: noise costs no more than 2 points.

`--known`: the profile has the bias as well, so that what is lost is what a slower device cannot serve.
`--out` keeps the shares; `--against` what another commit kept: then the mean change on the same seeds is
shown as well, with half of its 95% interval (t).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table
from tenant_floods import PROFILE, TARGET, Load, requests, run

from gpu_servers.options import cells
from pdmuxd.daemon.cli.trace_options import parse_noise
from pdmuxd.daemon.compare.statistics import estimate
from pdmuxd.engine.emulator.noise import DeviceNoise
from pdmuxd.engine.emulator.profile import load_profile

NOISES = ("0,0,0", "8,0,0", "0,6,0", "0,0,0.3", "8,6,0.3")
"""Bias, scatter, stalls in percent."""
LOADS: Sequence[Load] = (
    *(("chat", 170.0), ("chat", 190.0), ("summaries", 9.5), ("summaries", 10.5)),
    *(("tools", 1.7), ("tools", 2.0), ("documents", 1.7), ("documents", 2.0)),
)

Shares = dict[str, list[float]]
"""Of good requests in percent, by seed; by load, target, duration, policy and noise."""


def good_by_seed(
    load: Load,
    policy: str,
    noise: DeviceNoise,
    *,
    tbt_ms: float,
    duration_s: float,
    seeds: int,
    is_known: bool = False,
) -> list[float]:
    """The share of good requests in percent.

    `is_known`: seconds are as much longer as the device is slower, so that by the same profile requests come
    faster and have less time.
    """
    slo, longer = replace(TARGET.slo, tbt_s=tbt_ms / 1000.0), 1.0
    if is_known:
        longer = 1.0 + noise.bias_ratio
        noise = replace(noise, bias_ratio=0.0, stall_s=noise.stall_s / longer)
        slo = replace(
            slo,
            tbt_s=slo.tbt_s / longer,
            ttft_fixed_s=slo.ttft_fixed_s / longer,
            ttft_per_1k_new_tokens_s=slo.ttft_per_1k_new_tokens_s / longer,
        )
    target, found = replace(TARGET, slo=slo), []
    for seed in range(1, seeds + 1):
        arrivals = requests(load, "a", duration_s, seed=seed)
        for request in arrivals:
            request.arrival_s /= longer
        device = replace(load_profile(PROFILE), noise=replace(noise, seed=seed))
        _, judged = run(policy, arrivals, {"a": target}, device)
        found.append(100.0 * float(judged.mean()))
    return found


def shown(now: Sequence[float], before: Sequence[float] | None) -> str:
    """The mean, and how it changed."""
    text = f"{estimate(now).mean:.1f}%"
    if before is None or len(before) != len(now):
        return text
    change = estimate([one - was for one, was in zip(now, before, strict=True)])
    half = "" if change.half_width_95 is None else f" ± {change.half_width_95:.1f}"
    return f"{text} ({change.mean:+.1f}{half})"


def noise_of(text: str) -> DeviceNoise:
    """As `--noise` of `pdmuxd replay`."""
    try:
        return parse_noise(text)
    except typer.BadParameter as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _load(text: str) -> Load:
    (cell,) = cells(text)
    return cell.workload, cell.rate


def main() -> None:
    """Print a row for each load and policy."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--policy", action="append", default=[], help="may be repeated (default: auto)")
    parser.add_argument("--load", type=_load, action="append", help="KIND:RATE; may be repeated")
    parser.add_argument("--noise", action="append", help="BIAS,SCATTER,STALLS; may be repeated")
    parser.add_argument("--tbt-ms", type=float, default=50.0)
    parser.add_argument("--duration-s", type=float, default=180.0)
    parser.add_argument("--seeds", type=int, choices=range(1, 21), default=1, metavar="1..20")
    parser.add_argument("--known", action="store_true")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--against", type=Path)
    options = parser.parse_args()
    before: Shares = json.loads(options.against.read_text()) if options.against else {}
    kept: Shares = {}
    names: list[str] = options.noise or list(NOISES)
    noises = [noise_of(name) for name in names]
    console, table = Console(width=130), Table(title=f"good requests at {options.tbt_ms:g} ms")
    for column in ("load", "policy", *names):
        table.add_column(column)
    for load in options.load or LOADS:
        for policy in options.policy or ["auto"]:
            row = []
            for name, noise in zip(names, noises, strict=True):
                title = f"{load[0]} {load[1]:g}/s"
                with console.status(f"{title}, {policy}, {name}"):
                    found = good_by_seed(
                        load,
                        policy,
                        noise,
                        tbt_ms=options.tbt_ms,
                        duration_s=options.duration_s,
                        seeds=options.seeds,
                        is_known=options.known,
                    )
                key = f"{title}, {options.tbt_ms:g} ms, {options.duration_s:g} s, {policy}, {name}"
                key += ", known" if options.known else ""
                kept[key] = found
                row.append(shown(found, before.get(key)))
            table.add_row(title, policy, *row)
            if options.out:
                options.out.write_text(json.dumps(kept, indent=1) + "\n")
    console.print(table)


if __name__ == "__main__":
    main()
