"""Time one decision of every policy: `make bench-core`.

The situations are those of a busy engine: a long queue, a decode batch, a prefill in progress. Target: a
median under 100 microseconds per decision in CPython, for any policy and situation.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from pdmuxd.engine.core.policies.base import AnyPolicy
from pdmuxd.engine.core.policies.registry import build_policy, known_policies
from pdmuxd.engine.core.types import (
    NO_DECODE,
    DecodeShape,
    EngineLimits,
    Observation,
    PrefillMode,
    PrefillShape,
    PrefillView,
    WaitingRequest,
)
from pdmuxd.engine.emulator.profile import load_profile

TARGET_US = 100.0
DECISIONS = 20_000


def busy_observation(policy: AnyPolicy) -> Observation:
    """64 decoding requests, a 12K-token prefill under way, a full waiting window."""
    queue = tuple(
        WaitingRequest(
            request_id=f"r{i}",
            tenant=f"t{i % 8}",
            arrival_s=i * 0.01,
            deadline_s=i * 0.01 + 2.0,
            new_tokens=200 + 37 * i,
            reused_tokens=512,
            tbt_target_s=0.05,
        )
        for i in range(EngineLimits().waiting_window)
    )
    chunked = not policy.table.split_indices
    prefill = PrefillView(
        batch_id=1,
        mode=PrefillMode.CHUNKED if chunked else PrefillMode.LAYERWISE,
        requests=queue[:1],
        shape=PrefillShape.of([(12_000, 1024)]),
        earliest_deadline_s=30.0,
        layers_launched=0 if chunked else 8,
        layers_done=0 if chunked else 8,
    )
    return Observation(
        now_s=1.0,
        partition_id=0 if chunked else policy.table.split_indices[0],
        decode=DecodeShape(bs=64, reused_tokens=90_000),
        tbt_target_s=0.05,
        last_token_s=0.98,
        prefill=prefill,
        preempted=None,
        waiting=queue,
        waiting_count=5000,
        kv_free_tokens=400_000,
        limits=EngineLimits(),
        settings_version=1,
    )


def situations(policy: AnyPolicy) -> dict[str, Observation]:
    """What a policy is timed on."""
    busy = busy_observation(policy)
    return {
        "both": busy,
        "admit": replace(busy, prefill=None),
        "admit of 64": replace(busy, prefill=None, waiting=busy.waiting[:64]),
        "prefill alone": replace(busy, decode=NO_DECODE, tbt_target_s=None, partition_id=0),
        "decode alone": replace(busy, prefill=None, waiting=()),
    }


def time_decisions(policy: AnyPolicy, obs: Observation) -> tuple[float, float]:
    """(median, p99) microseconds of one `decide`."""
    state = policy.initial_state()
    samples_us = []
    for _ in range(DECISIONS):
        start_ns = time.perf_counter_ns()
        policy.decide(obs, state)
        samples_us.append((time.perf_counter_ns() - start_ns) / 1000.0)
    return statistics.median(samples_us), statistics.quantiles(samples_us, n=100)[98]


def main() -> int:
    """Print the table; with --enforce, exit 1 if a median misses the target."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--enforce", action="store_true", help=f"exit 1 if a median is over {TARGET_US:g} us")
    arguments = parser.parse_args()
    context = load_profile("h200-llama-8b").policy_context
    specs = [info.example for info in known_policies()] + ["muxwise:preempt"]
    table = Table(
        title=f"One decision, microseconds (median / p99 of {DECISIONS:,}; target median < {TARGET_US:g})"
    )
    table.add_column("policy")
    figures: dict[str, dict[str, dict[str, float]]] = {}
    for spec in specs:
        policy = build_policy(spec, context)
        cases = situations(policy)
        if not figures:
            for name in cases:
                table.add_column(name, justify="right")
        timed = {name: time_decisions(policy, obs) for name, obs in cases.items()}
        figures[spec] = {name: {"median_us": m, "p99_us": p} for name, (m, p) in timed.items()}
        table.add_row(spec, *(f"{m:.1f} / {p:.1f}" for m, p in timed.values()))
    Console().print(table)
    if arguments.json:
        versions = {"python": platform.python_version(), "machine": platform.machine()}
        arguments.json.write_text(json.dumps({"versions": versions, "policies": figures}, indent=1))
    worst_us = max(case["median_us"] for cases in figures.values() for case in cases.values())
    return 1 if arguments.enforce and worst_us >= TARGET_US else 0


if __name__ == "__main__":
    sys.exit(main())
