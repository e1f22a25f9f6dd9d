"""The emulated engine on the very requests of runs that were measured on a GPU, in virtual time.

    python tests/lab emulated-vs-measured --traces traces.json [--profile h200-llama-8b-measured]
    python tests/lab emulated-vs-measured --traces traces.json --runs third-host
    python tests/lab emulated-vs-measured --traces traces.json --runs partition-kernels \\
        --profile partition-kernels.json --duration-s 18 --drain-s 6 --with-auto
    python tests/lab emulated-vs-measured --traces traces.json --policies static:96,36 --tbt-ms 20,50

`traces.json` is as `python tests/lab prepare-traces` makes it, the profile of partition kernels as
tests/lab/ship_profile.py does. Rows are those of docs/measurements/h200/RUNS.runs.jsonl.gz that are of the
profile's model; `runs` is the file without a name before it. Policies that look at targets are left out
without `--with-auto`: the engine has changed since most of them were measured. With `--policies` those are
emulated instead, on the requests of each measured cell, and the share that is good at each target is printed.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

from gpu_servers.options import numbers
from pdmuxd.daemon.bench.arms import split_names
from pdmuxd.daemon.bench.load import score
from pdmuxd.daemon.bench.load.client import Seen
from pdmuxd.daemon.bench.load.workload import Cell, Request, build
from pdmuxd.engine.core.slo import Slo
from pdmuxd.engine.core.types import EngineLimits
from pdmuxd.engine.emulator.engine import EmulatedEngine
from pdmuxd.engine.emulator.launches import Launches
from pdmuxd.engine.emulator.noise import DeviceNoise
from pdmuxd.engine.emulator.profile import DEFAULT_PROFILE, Profile, load_profile
from pdmuxd.engine.emulator.requests import EmulatedRequest, Phase
from pdmuxd.engine.loop.requests import Target

FOLDER = Path(__file__).parents[2] / "docs/measurements/h200"
SGLANG = {
    "chunk-256": "chunked:256",
    "chunk-512": "chunked:512",
    "chunk-1024": "chunked:1024",
    "chunk-2048": "chunked:2048",
    "stock": "prefill-first:8192",
    "pdmux": "upstream",
}
"""SGLang's own arms, and the policy that decides as they do."""
FIXED = ("ours:chunked:", "ours:static:", "ours:slack/chunked:")
"""Ours that do not look at a TBT target."""
SEGMENTS = Launches(fused_layer_s=50e-6, fused_layer_request_s=0.45e-6)
"""SGLang launches attention between the segments of a graph, and puts together what it divided for every
request (docs/decisions/0009). Fitted to its chunk of 512 on conversation 24/s and code 15/s, Llama-8B, seed
1, on an H200 (2026-11-22): steps are 1.8 and 3.0 ms longer than whole graphs, with 6 and 81 that decode."""
WITHOUT_OVERLAP = Launches(decode_step_s=4e-3)
"""SGLang's pdmux needs `--disable-overlap-schedule`: its host's work is between two steps. Fitted to code
15/s, Llama-8B, seed 1, of the same day."""
SCATTER = DeviceNoise(scatter_ratio=0.035)
"""Of decode steps in fixed splits, over their prediction: (p90 / p10) of six runs of Llama-8B, seed 1, less
what the emulated device has without it (median)."""
RECORDED_TTFT = {"floor": (1.0, 0.0), "slope": (0.001, 1.0)}
"""Fixed seconds, and seconds per 1,000 new tokens: the records' engines planned for the larger of 1 s and 1 s
per 1,000 new tokens, as two tenants."""
FLOOR_TOKENS = 1_000
MAX_DECODE_BS = 256
BLOCK_TOKENS = 512
WITHIN = 1.15
"""Further off is set in bold."""
FIGURES = ("ttft_p50_ms", "ttft_p99_ms", "tbt_p50_ms", "tbt_p99_ms", "input_tps", "within_ratio")


def emulated(
    profile: Profile,
    policy: str,
    requests: Sequence[Request],
    *,
    tbt_ms: float,
    end_s: float,
) -> dict[str, Any]:
    """One run, recorded as a measured one is."""
    limits = EngineLimits(max_decode_bs=MAX_DECODE_BS)
    engine = EmulatedEngine(profile=profile, policy=policy, limits=limits, block_tokens=BLOCK_TOKENS)
    slos = {
        name: Slo(
            ttft_fixed_s=fixed_s,
            ttft_per_1k_new_tokens_s=per_1k_s,
            tbt_s=tbt_ms / 1e3,
            attainment_ratio=0.99,
        )
        for name, (fixed_s, per_1k_s) in RECORDED_TTFT.items()
    }
    targets = {name: Target(slo=slo, version=1) for name, slo in slos.items()}
    engine.apply_settings(version=1, policy=policy, slos=targets)
    sent: list[EmulatedRequest] = []
    for number, request in enumerate(requests):
        sent.append(
            EmulatedRequest(
                request_id=str(number),
                tenant="floor" if request.new_tokens <= FLOOR_TOKENS else "slope",
                arrival_s=request.at_s,
                input_tokens=request.input_tokens,
                output_tokens=request.output_tokens,
                block_keys=tuple(hash(block) for block in request.blocks),
            )
        )
        engine.submit(sent[-1], request.at_s)
    while math.isfinite(at_s := engine.next_event_s()) and at_s <= end_s:
        engine.advance(at_s)
    return score.record([_seen(engine, *pair, end_s) for pair in zip(requests, sent, strict=True)])


def _seen(engine: EmulatedEngine, request: Request, sent: EmulatedRequest, end_s: float) -> Seen:
    times_s = [float(at_s) for at_s in engine.token_times(sent) if at_s <= end_s]
    return Seen(
        request,
        ttft_s=None if sent.first_token_s is None else sent.first_token_s - request.at_s,
        gaps_s=[late - early for early, late in pairwise(times_s)],
        tokens=len(times_s),
        cached_tokens=sent.reused_tokens,
        outcome="done" if sent.phase is Phase.FINISHED else "cut",
        waited_s=(sent.end_s or end_s) - request.at_s,
    )


def policy_of(arm: str, *, with_auto: bool) -> str | None:
    """The policy that an arm is emulated with; None if it is not."""
    if arm.startswith("ours:") and (with_auto or arm.startswith(FIXED)):
        return arm.removeprefix("ours:")
    return SGLANG.get(arm)


def launched_as(profile: Profile, arm: str) -> Profile:
    """The profile with what the host of that arm's engine adds to its steps."""
    if arm == "pdmux":
        return replace(profile, launches=WITHOUT_OVERLAP)
    return replace(profile, launches=SEGMENTS) if arm in SGLANG else profile


def line(arm: str, cell: str, ours: Mapping[str, float], theirs: Mapping[str, float]) -> str:
    """A row of the table: emulated / measured (ratio)."""
    cells = [
        f"{ours[name]:,.4g} / {theirs[name]:,.4g}"
        + (f" ({ours[name] / theirs[name]:.2f})" if theirs[name] else "")
        for name in FIGURES
    ]
    return " | ".join((f"| {cell}, {arm}", *cells)) + " |"


def print_means(ratios: Mapping[tuple[str, str], Sequence[Sequence[float]]]) -> None:
    """Emulated over measured by cell and arm: geometric mean of the seeds and, of several, their range; how
    many arms are within some percent, and the geometric mean of how far off they are."""
    print("\n| cell, arm |", " | ".join(FIGURES[:5]), "|\n|---|---:|---:|---:|---:|---:|")
    means: list[list[float]] = []
    for (cell, arm), of_seeds in sorted(ratios.items()):
        by_figure = [*zip(*of_seeds, strict=True)]
        means.append([math.exp(math.fsum(map(math.log, each)) / len(each)) for each in by_figure])
        cells = []
        for mean, each in zip(means[-1], by_figure, strict=True):
            text = f"{mean:.2f}" if 1 / WITHIN <= mean <= WITHIN else f"**{mean:.2f}**"
            cells.append(text if len(each) == 1 else f"{text} ({min(each):.2f} to {max(each):.2f})")
        print(f"| {cell}, {arm} |", " | ".join(cells), "|")
    for name, each in zip(FIGURES[:5], zip(*means, strict=True), strict=True):
        within = ", ".join(
            f"{sum(1 / share <= mean <= share for mean in each)} within {share - 1:.0%}"
            for share in (1.03, 1.04, 1.05, 1.10, WITHIN)
        )
        off = math.exp(math.fsum(abs(math.log(mean)) for mean in each) / len(each)) - 1.0
        print(f"{name}: of {len(each)} arms {within}; off by {off:.0%} on average")


def print_policies(
    options: argparse.Namespace,
    profile: Profile,
    traces: Mapping[str, Any],
    runs: Sequence[Mapping[str, Any]],
) -> None:
    """Good shares by cell and policy, at each target as a mean over the seeds that were measured."""
    seeds: dict[str, set[int]] = {}
    for run in runs:
        seeds.setdefault(run["key"][2], set()).add(run["key"][3])
    for cell, policy, tbt_ms in product(seeds, options.policies, options.tbt_ms):
        good = []
        for seed in sorted(seeds[cell]):
            requests = build(Cell.parse(cell), traces, seed=seed, duration_s=options.duration_s)
            end_s = options.duration_s + options.drain_s
            record = emulated(profile, policy, requests, tbt_ms=tbt_ms, end_s=end_s)
            good.append(score.summary(record, tbt_ms=tbt_ms)["good_ratio"])
        print(f"{cell} {policy} @{tbt_ms:g}ms: good {sum(good) / len(good):.1%} of {len(good)} seeds")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--traces", type=Path, required=True)
    parser.add_argument("--profile", default=DEFAULT_PROFILE)
    parser.add_argument("--runs", default="runs", help="runs, third-host, second-gpu or partition-kernels")
    parser.add_argument("--seeds", type=numbers, default=[], help="only these")
    parser.add_argument("--duration-s", type=float, default=30.0)
    parser.add_argument("--drain-s", type=float, default=8.0)
    parser.add_argument("--with-auto", action="store_true", help="policies that look at targets as well")
    parser.add_argument("--policies", type=split_names, default=[])
    parser.add_argument("--tbt-ms", type=numbers, default=[50.0])
    options = parser.parse_args()
    profile, traces = load_profile(options.profile), json.loads(options.traces.read_text())
    name = "runs.jsonl.gz" if options.runs == "runs" else f"{options.runs}.runs.jsonl.gz"
    lines = gzip.decompress((FOLDER / name).read_bytes()).splitlines()
    runs = [found for found in map(json.loads, lines) if "key" in found]
    runs = [run for run in runs if run["key"][0] == profile.model.name and "decode" not in run["key"][2]]
    if options.policies:
        print_policies(options, profile, traces, runs)
        return
    profile = replace(profile, noise=SCATTER)
    print("| run |", " | ".join(FIGURES), "|")
    ratios: dict[tuple[str, str], list[list[float]]] = {}
    for run in runs:
        _, arm, cell, seed, target_ms = run["key"]
        policy, tbt_ms = policy_of(arm, with_auto=options.with_auto), target_ms or 50.0
        if policy is None or (options.seeds and seed not in options.seeds):
            continue
        requests = build(Cell.parse(cell), traces, seed=seed, duration_s=options.duration_s)
        end_s = options.duration_s + options.drain_s
        record = emulated(launched_as(profile, arm), policy, requests, tbt_ms=tbt_ms, end_s=end_s)
        figures = [score.summary(one, tbt_ms=tbt_ms) for one in (record, run)]
        if any(one[name] is None for one in figures for name in FIGURES):
            print(f"| {cell}, {arm} | left out: no request of it had several tokens |")
            continue
        print(line(arm, cell, *figures), flush=True)
        ours, theirs = figures
        ratios.setdefault((cell, arm), []).append([ours[name] / theirs[name] for name in FIGURES[:5]])
    print_means(ratios)


if __name__ == "__main__":
    main()
