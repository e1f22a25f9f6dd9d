"""The emulated engine on the requests of `late-behind`, beside what was measured on a GPU.

    python tests/lab emulated-late-behind [--rows docs/measurements/h100/late-behind.jsonl.gz]
        [--device served-h100] [--in-flight 256] [--throttle-s 10 --throttle-ratio 1.3] [--stall-ratio 0.02]

Virtual time. The requests are drawn as `late-behind` draws them; one that comes while `--in-flight` others
are in the engine is refused, as by the tenant's limit. Emulated beside measured: TTFT, gaps between tokens,
the share of good requests of those answered. With `--throttle-s` all takes `--throttle-ratio` times as long
until then, as on a GPU that is too hot at first; what was measured beside it was not throttled. With
`--stall-ratio` that share of steps stands still for `--stall-ms` as well, as on a slow host.
"""

from __future__ import annotations

import argparse
import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from late_behind import drawn
from rich.console import Console
from rich.table import Table
from served import SERVED_H100, device
from tenant_floods import TARGET

from pdmuxd.daemon.replay.collect import Collector
from pdmuxd.engine.emulator.engine import EmulatedEngine
from pdmuxd.engine.emulator.profile import Profile
from pdmuxd.engine.emulator.requests import EmulatedRequest

ROWS = Path(__file__).parents[2] / "docs/measurements/h100/late-behind.jsonl.gz"
MODEL = "llama-8b"
TBT_S = 0.05


def emulated(row: dict[str, Any], profile: Profile, args: argparse.Namespace) -> dict[str, float]:
    """One measured row's load and policy, in virtual time."""
    arrivals = [
        EmulatedRequest(
            request_id=str(number),
            tenant="a",
            arrival_s=answer.due_s,
            input_tokens=answer.prompt,
            output_tokens=answer.tokens,
        )
        for number, answer in enumerate(
            drawn(row["load"], row.get("seconds", args.seconds), row["seed"], row.get("rate"))
        )
    ]
    tbt_s = row.get("tbt_ms", 1e3 * TBT_S) / 1e3
    collector = Collector(arrivals, tbt_s)
    engine = EmulatedEngine(profile=profile, policy=row["policy"], observer=collector)
    slo = replace(TARGET.slo, ttft_fixed_s=1.0, ttft_per_1k_new_tokens_s=1.0, tbt_s=tbt_s)
    engine.apply_settings(version=1, policy=row["policy"], slos={"a": replace(TARGET, slo=slo)})
    collector.attach(engine.token_times)
    taken = np.zeros(len(arrivals), dtype=bool)
    for number, request in enumerate(arrivals):
        engine.throttle(args.throttle_ratio if request.arrival_s < args.throttle_s else 1.0)
        engine.advance(request.arrival_s)
        counters = engine.counters()
        if counters.running + counters.waiting + counters.prefilling < args.in_flight:
            taken[number] = True
            engine.submit(request, request.arrival_s)
    while (next_s := engine.next_event_s()) < float("inf"):
        engine.advance(next_s)
    outcomes = collector.outcomes()
    ttft_s, gaps_s = outcomes.ttft_s[taken], outcomes.gaps_s
    in_time = (ttft_s <= 1.0 + outcomes.input_tokens[taken] / 1000.0) & outcomes.finished[taken]
    good = in_time & (outcomes.gap_p99_s[taken] <= tbt_s)
    return {
        "ttft_p50_ms": 1e3 * float(np.median(ttft_s)),
        "ttft_p99_ms": 1e3 * float(np.quantile(ttft_s, 0.99)),
        "gap_p50_ms": 1e3 * float(np.median(gaps_s)),
        "gap_p99_ms": 1e3 * float(np.quantile(gaps_s, 0.99)),
        "good": 100.0 * float(good.mean()),
        "refused": 100.0 * float(1.0 - taken.mean()),
    }


def main() -> None:
    """Read the flags, emulate each row, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=Path, default=ROWS)
    parser.add_argument("--device", default=SERVED_H100)
    parser.add_argument("--in-flight", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--fused-step-us", type=float, help="of each fused step, in place of the device's")
    parser.add_argument("--throttle-s", type=float, default=0.0)
    parser.add_argument("--throttle-ratio", type=float, default=1.0)
    parser.add_argument("--stall-ratio", type=float, default=0.0)
    parser.add_argument("--stall-ms", type=float, default=20.0)
    args = parser.parse_args()
    table = Table(title=f"{args.device} / measured; ms and %")
    for column in (
        "load, policy, way, seed",
        "TTFT p50",
        "TTFT p99",
        "gap p50",
        "gap p99",
        "good, %",
        "refused, %",
    ):
        table.add_column(column)
    console, profile = Console(width=150), device(args.device)
    if args.fused_step_us is not None:
        launches = replace(profile.launches, fused_step_s=args.fused_step_us * 1e-6)
        profile = replace(profile, launches=launches)
    noise = replace(profile.noise, stall_ratio=args.stall_ratio, stall_s=1e-3 * args.stall_ms)
    profile = replace(profile, noise=noise)
    for line in gzip.decompress(args.rows.read_bytes()).splitlines():
        row = json.loads(line)
        if row["model"] != MODEL or row.get("is_slow_host"):
            continue
        found = emulated(row, profile, args)
        answered = row["answers"] - row["errors"]
        seen = row | {
            "good": 100.0 * row["good_by_client"] * row["answers"] / answered,
            "refused": 100.0 * row["errors"] / row["answers"],
        }
        way = row["arm"].partition("/")[2]
        cells = [f"{found[key]:.1f} / {seen[key]:.1f}" for key in found]
        title = f"{row['load']} {row.get('rate') or ''}".strip()
        table.add_row(f"{title}, {row['policy']}, {way}, {row['seed']}", *cells)
    console.print(table)


if __name__ == "__main__":
    main()
