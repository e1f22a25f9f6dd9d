"""The emulated engine on the requests of `late-behind`, beside what was measured on a GPU.

    python tests/lab emulated-late-behind [--rows docs/measurements/h100/late-behind.jsonl.gz]
        [--device served-h100 | --profile own.profile.json] [--in-flight 256]
        [--throttle-s 10 --throttle-ratio 1.3] [--noise 0,0,2] [--noise-seed 1] [--no-host]

Virtual time. The requests are drawn as `late-behind` draws them, cut as it cuts them and judged by its own
code; one that comes while `--in-flight` others are in the engine is refused, as by the tenant's limit. Rows
are its `--json`, or of docs/measurements. `--profile FILE` takes the device from a campaign of the same host
in place of `--device`; nothing is fitted to the rows. At the end: how far off the arms are, beside the aims.
With `--throttle-s` all takes `--throttle-ratio` times as long until then, as on a GPU that is too hot at
first; what was measured beside it was not throttled. `--noise` is that of `pdmuxd replay`: `0,0,30ms@1.6s` is
a slow host. With `--no-host` the host takes no time, and tokens are at the client when their step is read.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from late_behind import DRAIN_S, drawn, judged
from rich.console import Console
from rich.table import Table
from served import SERVED_H100, device, measured
from tenant_floods import TARGET

from pdmuxd.daemon.cli.trace_options import parse_noise
from pdmuxd.daemon.replay.collect import TokenTimes
from pdmuxd.engine.emulator.engine import EmulatedEngine
from pdmuxd.engine.emulator.launches import NO_TIME
from pdmuxd.engine.emulator.profile import Profile
from pdmuxd.engine.emulator.requests import EmulatedRequest, Phase

ROWS = Path(__file__).parents[2] / "docs/measurements/h100/late-behind.jsonl.gz"
MODEL = "llama-8b"
TBT_S = 0.05
AIMS = {
    "ttft_p50_ms": 0.10,
    "ttft_p99_ms": 0.15,
    "gap_p50_ms": 0.05,
    "gap_p99_ms": 0.10,
    "input_tps": 0.03,
    "good": 5.0,
}
"""How far the emulator may be off, as a geometric mean of ratios; of good requests in points."""


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Of Llama-8B on a host that was not slowed: a list, or one a line."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    rows = json.loads(text) if text.startswith("[") else [json.loads(line) for line in text.splitlines()]
    return [row for row in rows if row.get("model", MODEL) == MODEL and not row.get("is_slow_host")]


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
    engine = EmulatedEngine(profile=profile, policy=row["policy"])
    slo = replace(TARGET.slo, ttft_fixed_s=1.0, ttft_per_1k_new_tokens_s=1.0, tbt_s=tbt_s)
    engine.apply_settings(version=1, policy=row["policy"], slos={"a": replace(TARGET, slo=slo)})
    refused: set[str] = set()
    for request in arrivals:
        engine.throttle(args.throttle_ratio if request.arrival_s < args.throttle_s else 1.0)
        engine.advance(request.arrival_s)
        counters = engine.counters()
        if counters.running + counters.waiting + counters.prefilling < args.in_flight:
            engine.submit(request, request.arrival_s)
        else:
            refused.add(request.request_id)
    end_s = arrivals[-1].arrival_s + DRAIN_S
    while (next_s := engine.next_event_s()) <= end_s:
        engine.advance(next_s)
    seen = list(_seen(engine.token_times, arrivals, refused, end_s))
    last_s = max((request.end_s or 0.0 for request in arrivals), default=end_s)
    prompts = sum(one["prompt"] for one in seen if one["ttft_s"] is not None)
    found = judged(seen, tbt_s)
    of_answered = 100.0 * found["answers"] / (found["answers"] - found["errors"])
    by_steps = judged(list(_seen(engine.step_times, arrivals, refused, end_s)), tbt_s)
    return {name: found[name] for name in list(AIMS)[:4]} | {
        "input_tps": prompts / last_s,
        "good": of_answered * found["good_by_client"],
        "by_steps": of_answered * by_steps["good_by_client"],
        "refused": 100.0 * found["errors"] / found["answers"],
    }


def _seen(
    times_of: TokenTimes, arrivals: Sequence[EmulatedRequest], refused: set[str], end_s: float
) -> Iterator[dict[str, Any]]:
    """What was seen of each, until the client cuts what is left."""
    for request in arrivals:
        times_s = [float(at_s) for at_s in times_of(request) if at_s <= end_s]
        yield {
            "prompt": request.input_tokens,
            "ttft_s": times_s[0] - request.arrival_s if times_s else None,
            "gaps_s": [late - early for early, late in pairwise(times_s)],
            "done": request.phase is Phase.FINISHED,
            "error": request.request_id in refused or request.phase is Phase.REFUSED,
            "sent_late_s": 0.0,
        }


def told_off(pairs: Sequence[tuple[Mapping[str, float], Mapping[str, float]]]) -> Iterator[str]:
    """How far off each figure is over all arms, and the worst of them."""
    for name, aim in AIMS.items():
        if name == "good":
            points = [abs(ours[name] - theirs[name]) for ours, theirs in pairs]
            mean = sum(points) / len(points)
            yield f"good: off by {mean:.1f} points, at most {max(points):.1f} (aim {aim:g})"
            continue
        logs = [abs(math.log(max(ours[name], 1e-9) / theirs[name])) for ours, theirs in pairs if theirs[name]]
        off, worst = math.expm1(sum(logs) / len(logs)), math.expm1(max(logs))
        yield f"{name}: off by {off:.1%} (geometric mean), at most {worst:.1%} (aim {aim:.0%})"


def main() -> None:
    """Read the flags, emulate each row, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=Path, default=ROWS)
    parser.add_argument("--device", default=SERVED_H100)
    parser.add_argument("--profile", type=Path, help="of a campaign on the host of the rows")
    parser.add_argument("--in-flight", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--fused-step-us", type=float, help="of each fused step, in place of the device's")
    parser.add_argument("--throttle-s", type=float, default=0.0)
    parser.add_argument("--throttle-ratio", type=float, default=1.0)
    parser.add_argument("--noise", type=parse_noise, help="as of pdmuxd replay, in place of the device's")
    parser.add_argument("--noise-seed", type=int, default=0)
    parser.add_argument("--no-host", action="store_true", help="no host time and no delivery")
    args = parser.parse_args()
    table = Table(title=f"{args.profile or args.device} / measured; ms and %")
    for column in (
        "load, policy, way, seed",
        "TTFT p50",
        "TTFT p99",
        "gap p50",
        "gap p99",
        "input tokens/s",
        "good, %",
        "by steps, %",
        "refused, %",
    ):
        table.add_column(column)
    console = Console(width=170)
    profile = device(args.device) if args.profile is None else measured(args.profile)
    if args.fused_step_us is not None:
        launches = replace(profile.launches, fused_step_s=args.fused_step_us * 1e-6)
        profile = replace(profile, launches=launches)
    noise = profile.noise if args.noise is None else args.noise
    profile = replace(profile, noise=replace(noise, seed=args.noise_seed))
    if args.no_host:
        profile = replace(profile, host=NO_TIME, delivery=None)
    pairs = []
    for row in rows_of(args.rows):
        answered = row["answers"] - row["errors"]
        seen = row | {
            "input_tps": row["prompt_tokens"] / row["seconds_to_the_last_answer"],
            "good": 100.0 * row["good_by_client"] * row["answers"] / answered,
            "by_steps": 100.0 * row["good_by_steps"],
            "refused": 100.0 * row["errors"] / row["answers"],
        }
        pairs.append((emulated(row, profile, args), seen))
        way = row["arm"].partition("/")[2]
        cells = [f"{found:,.1f} / {seen[key]:,.1f}" for key, found in pairs[-1][0].items()]
        title = f"{row['load']} {row.get('rate') or ''}".strip()
        table.add_row(f"{title}, {row['policy']}, {way}, {row['seed']}", *cells)
    console.print(table)
    print("\n".join(told_off(pairs)))


if __name__ == "__main__":
    main()
