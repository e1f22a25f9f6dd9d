"""What it gives to set aside what has overtaken another: `python tests/lab preempt-depth`.

Emulated engine, virtual time. Long prompts with short ones between them, near capacity, on three devices,
served by `auto` without preemption, with one prefill set aside at a time (`auto:nonest`), and with several.
Two kinds of TTFT targets: the default, which grows with the prompt, and tight ones for whoever is short.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from rich.console import Console
from rich.table import Table
from tenant_floods import MOST_TOKENS, Load, requests, run

from pdmuxd.daemon.replay.generate import Lengths
from pdmuxd.engine.core.slo import DEFAULT_SLO
from pdmuxd.engine.emulator.profile import load_profile
from pdmuxd.engine.emulator.requests import EmulatedRequest
from pdmuxd.engine.loop.requests import Target

POLICIES = ("auto:nopreempt", "auto:nonest", "auto")
SCALES: Sequence[tuple[float, Lengths]] = (
    (0.6, Lengths(median=200, sigma=0.8, most=2_000)),
    (0.3, Lengths(median=8_000, sigma=0.4, most=20_000)),
    (0.1, Lengths(median=60_000, sigma=0.3, most=110_000)),
)
"""Shares and lengths of the load `scales`."""
OUTPUT = Lengths(median=80, sigma=0.7, most=400)
SHORT_TOKENS, MEDIUM_TOKENS = 4_000, 20_000
TIGHT_TTFT_S = {"short": (0.25, 0.1), "medium": (0.5, 0.15), "long": (5.0, 1.0)}
"""Fixed part, and per 1,000 new tokens."""
CASES: Sequence[tuple[str, Sequence[Load], Sequence[Load]]] = (
    (
        "h200-llama-8b-measured",
        (("documents", 3.0), ("tools", 2.0), ("scales", 2.2), ("agents", 0.6)),
        (("documents", 2.5), ("tools", 1.6), ("scales", 1.5)),
    ),
    (
        "h200-codellama-34b-measured",
        (("documents", 0.6), ("tools", 0.45), ("scales", 0.35), ("agents", 0.12)),
        (("documents", 0.4), ("tools", 0.35), ("scales", 0.3)),
    ),
    (
        "8xa100-llama-70b",
        (("documents", 1.2), ("tools", 0.9), ("scales", 0.8), ("agents", 0.25)),
        (("documents", 1.0), ("tools", 0.6), ("scales", 0.6)),
    ),
)
"""A profile, loads with the default targets, and loads with tight ones."""


def arrivals(load: Load, duration_s: float, seed: int) -> list[EmulatedRequest]:
    """Requests whose tenant says how long they are."""
    kind, rate_per_s = load
    made = (
        _scales(rate_per_s, duration_s, seed)
        if kind == "scales"
        else requests(load, "", duration_s, seed=seed)
    )
    for request in made:
        new_tokens = request.input_tokens
        request.tenant = (
            "short" if new_tokens < SHORT_TOKENS else "medium" if new_tokens < MEDIUM_TOKENS else "long"
        )
    return made


def _scales(rate_per_s: float, duration_s: float, seed: int) -> list[EmulatedRequest]:
    """Prompts of three lengths."""
    rng = random.Random(f"scales/{rate_per_s:g}/{duration_s:g}/{seed}")
    made: list[EmulatedRequest] = []
    at_s = 0.0
    while (at_s := at_s + rng.expovariate(rate_per_s)) < duration_s:
        lengths = rng.choices([part for _, part in SCALES], weights=[share for share, _ in SCALES])[0]
        made.append(
            EmulatedRequest(
                request_id="",
                tenant="",
                arrival_s=at_s,
                input_tokens=min(lengths.draw(rng), MOST_TOKENS),
                output_tokens=OUTPUT.draw(rng),
            )
        )
    return made


def targets(*, tight: bool) -> dict[str, Target]:
    """By length."""
    found = {}
    for name, (fixed_s, per_1k_s) in TIGHT_TTFT_S.items():
        slo = replace(DEFAULT_SLO, ttft_fixed_s=fixed_s, ttft_per_1k_new_tokens_s=per_1k_s)
        found[name] = Target(slo=slo if tight else DEFAULT_SLO, version=1)
    return found


def shares(policy: str, profile: str, load: Load, *, tight: bool, duration_s: float, seeds: int) -> str:
    """Good requests in percent, and by length."""
    judged, tenants = [], []
    for seed in range(1, seeds + 1):
        asked = arrivals(load, duration_s, seed)
        judged.append(run(policy, asked, targets(tight=tight), load_profile(profile))[1])
        tenants += [request.tenant for request in asked]
    all_judged, by = np.concatenate(judged), np.array(tenants)
    parts = [
        f"{100.0 * float(all_judged[by == name].mean()):.1f}" for name in TIGHT_TTFT_S if (by == name).any()
    ]
    return f"{100.0 * float(all_judged.mean()):.1f} ({', '.join(parts)})"


def main() -> None:
    """Print a table as its rows come."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", action="append", default=[], help="of these alone; may be repeated")
    parser.add_argument("--policy", action="append", default=[], help="in place of the three")
    parser.add_argument("--duration-s", type=float, default=300.0)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    policies = options.policy or POLICIES
    table = Table(title="good requests in %, and by length (short, medium, long)")
    for column in ("profile", "load", "targets", *policies):
        table.add_column(column)
    console = Console(width=140)
    for profile, *kinds in CASES:
        if options.profile and profile not in options.profile:
            continue
        for tight, loads in enumerate(kinds):
            for load in loads:
                name = f"{load[0]} {load[1]:g}/s"
                cells = []
                for policy in policies:
                    text = shares(
                        policy,
                        profile,
                        load,
                        tight=bool(tight),
                        duration_s=options.duration_s,
                        seeds=options.seeds,
                    )
                    cells.append(text)
                    console.print(f"{profile} {name} {'tight' if tight else 'default'} {policy}: {text}")
                table.add_row(profile, name, "tight" if tight else "default", *cells)
    console.print(table)


if __name__ == "__main__":
    main()
