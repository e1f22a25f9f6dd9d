"""Time one decision of every policy: `make bench-core`.

The situations are those of a busy engine: a long queue, a decode batch, a prefill in progress; for `auto`
also overload, two TBT targets in one batch, and prefills set aside. Target: a median under 100 microseconds
per decision in CPython, for any policy and situation.

Beside the median and p99 of the wall clock there is the least CPU time of a decision, over runs of 50: what
else the machine does changes that little, so two commits can be compared by it on a busy one.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
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
    DecodingRequest,
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
RUN = 50
"""Decisions whose CPU time is taken together."""
TARGET_S, STRICT_SHARE = 0.2, 1 / 16
"""The relaxed TBT target of a batch with two, and the part of it that is strict."""


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
        set_aside=(),
        waiting=queue,
        waiting_count=5000,
        kv_free_tokens=400_000,
        limits=EngineLimits(),
        settings_version=1,
    )


def eight_set_aside(busy: Observation) -> Observation:
    """64 wait, some of them with no time for the prefill that runs, and eight more have been overtaken: all
    that `auto` may have to look at."""
    if busy.prefill is None or busy.prefill.mode is PrefillMode.CHUNKED:
        return busy
    shape = PrefillShape.of([(60_000, 1024)])
    unit = replace(busy.prefill, shape=shape, was_preempted=True, earliest_deadline_s=300.0)
    return replace(
        busy,
        waiting=busy.waiting[:64],
        prefill=unit,
        set_aside=(unit,) * 8,
        limits=replace(busy.limits, max_set_aside=9),
    )


def situations(policy: AnyPolicy) -> dict[str, Observation]:
    """What a policy is timed on."""
    busy = busy_observation(policy)
    return {
        "both": busy,
        "admit": replace(busy, prefill=None),
        "admit of 64": replace(busy, prefill=None, waiting=busy.waiting[:64]),
        "8 set aside": eight_set_aside(busy),
        "prefill alone": replace(busy, decode=NO_DECODE, tbt_target_s=None, partition_id=0),
        "decode alone": replace(busy, prefill=None, waiting=()),
    }


def further_situations(policy: AnyPolicy) -> dict[str, tuple[Observation, object]]:
    """What else `auto` is timed on, and the state that it is in."""
    busy, state = busy_observation(policy), policy.initial_state()
    admit = replace(busy, prefill=None)
    too_late = tuple(replace(request, deadline_s=busy.now_s) for request in busy.waiting[::4])
    _, overloaded = policy.decide(replace(admit, waiting=too_late), state)
    long = replace(busy.waiting[0], new_tokens=3000)
    last_chunk = PrefillView(
        batch_id=1,
        mode=PrefillMode.CHUNKED,
        requests=(long,),
        shape=PrefillShape.of([(long.new_tokens, long.reused_tokens)]),
        earliest_deadline_s=30.0,
        layers_launched=0,
        layers_done=0,
        done_tokens=2500,
    )
    return {
        "the last chunk, 64 wait": (replace(admit, prefill=last_chunk, waiting=busy.waiting[:64]), state),
        "admit in overload": (admit, overloaded),
        "two targets in 64": (two_targets(policy, admit, 64), state),
        "two targets in 256": (two_targets(policy, admit, 256), state),
    }


def two_targets(policy: AnyPolicy, obs: Observation, bs: int) -> Observation:
    """A decode batch with two TBT targets, of which a step within the strict one does not hold all."""
    contexts = [1000 + 10 * i for i in range(bs)]
    shape, total_sms = DecodeShape.of(contexts), policy.table.rules.total_sms
    strict_s = policy.context.latency.decode_s(shape, total_sms)
    every = round(1 / STRICT_SHARE)
    targets_s = [TARGET_S if i % every else strict_s for i in range(bs)]
    decoding = tuple(
        DecodingRequest(f"d{i}", target_s, context, obs.last_token_s - 0.01 * (i % 10))
        for i, (target_s, context) in enumerate(zip(targets_s, contexts, strict=True))
    )
    limits = replace(obs.limits, max_decode_bs=2 * bs)
    return replace(obs, decode=shape, tbt_target_s=strict_s, decoding=decoding, limits=limits)


def time_decisions(policy: AnyPolicy, obs: Observation, state: object) -> dict[str, float]:
    """Microseconds of one `decide`."""
    wall_us, least_cpu_us = [], float("inf")
    for _ in range(DECISIONS // RUN):
        begun_ns = time.thread_time_ns()
        for _ in range(RUN):
            start_ns = time.perf_counter_ns()
            policy.decide(obs, state)
            wall_us.append((time.perf_counter_ns() - start_ns) / 1000.0)
        least_cpu_us = min(least_cpu_us, (time.thread_time_ns() - begun_ns) / 1000.0 / RUN)
    p99_us = statistics.quantiles(wall_us, n=100)[98]
    timed_us = {"median_us": statistics.median(wall_us), "p99_us": p99_us, "least_cpu_us": least_cpu_us}
    return {name: round(us, 1) for name, us in timed_us.items()}


def shown(timed: dict[str, float]) -> str:
    """As the tables have it."""
    return f"{timed['median_us']:.1f} / {timed['p99_us']:.1f} / {timed['least_cpu_us']:.1f}"


def main() -> int:
    """Print the table; with --enforce, exit 1 if a median misses the target."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--enforce", action="store_true", help=f"exit 1 if a median is over {TARGET_US:g} us")
    arguments = parser.parse_args()
    gc.collect()
    gc.freeze()  # as the engine's loop does
    context = load_profile("h200-llama-8b").policy_context
    specs = [info.example for info in known_policies()] + ["muxwise:preempt"]
    figures: dict[str, dict[str, dict[str, float]]] = {}
    title = f"One decision, microseconds (median / p99 / least CPU; target median < {TARGET_US:g})"
    table = Table("policy", title=title)
    for spec in specs:
        policy = build_policy(spec, context)
        state, cases = policy.initial_state(), situations(policy)
        if not figures:
            for name in cases:
                table.add_column(name, justify="right")
        figures[spec] = {name: time_decisions(policy, obs, state) for name, obs in cases.items()}
        table.add_row(spec, *map(shown, figures[spec].values()))
    further = Table("auto", title, title="Where auto has more to decide")
    auto = build_policy("auto", context)
    for name, (obs, state) in further_situations(auto).items():
        figures["auto"][name] = time_decisions(auto, obs, state)
        further.add_row(name, shown(figures["auto"][name]))
    Console(width=160).print(table, further)
    if arguments.json:
        versions = {"python": platform.python_version(), "machine": platform.machine()}
        document = {"versions": versions, "load": round(os.getloadavg()[0], 1), "policies": figures}
        arguments.json.write_text(json.dumps(document, indent=1) + "\n")
    worst_us = max(case["median_us"] for cases in figures.values() for case in cases.values())
    return 1 if arguments.enforce and worst_us >= TARGET_US else 0


if __name__ == "__main__":
    sys.exit(main())
