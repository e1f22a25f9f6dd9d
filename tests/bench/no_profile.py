"""What serving without a profile costs: `python tests/bench/no_profile.py [--seeds 3 --load summaries:12]`.

Emulated engine, virtual time, the shipped profile of Llama-8B on an H200, on a device that takes longer:
decode beside prefill 1.45 times, fused steps 1.17 times what the profile says, which is about what an H200
took over the roofline (docs/measurements/h200-kernels.md, "Without a profile"). Good requests where policies
predict with the profile, and where they predict with the roofline alone, as an engine without one does, with
the splits and the host's times that such an engine has.
Target: `auto` at least as good as the chunk in the same order.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from rich.console import Console
from rich.table import Table
from tenant_floods import PROFILE, TARGET, Load, requests, run

from pdmuxd.daemon.bench.options import cells
from pdmuxd.engine.core.guard import UNMEASURED_RATIO, ContentionGuard
from pdmuxd.engine.core.partitions import aligned_decode
from pdmuxd.engine.core.policies.base import PolicyContext
from pdmuxd.engine.core.roofline import RooflineModel
from pdmuxd.engine.core.shapes import Overheads
from pdmuxd.engine.emulator.profile import Profile, load_profile
from pdmuxd.engine.link.predictors import Predictors

SPLIT_RATIO, FUSED_RATIO = 1.45, 1.17
OVERHEADS = Overheads(
    graph_launch_s=0.0001,
    layer_launch_s=0.0004,
    host_step_s=0.0002,
    layer_fixed_s=0.00002,
    switch_s=0.00005,
)
"""What an engine says of its host before anything is measured (`engine/sglang/internals/describe.py`)."""
LOADS: Sequence[Load] = (
    *(("summaries", 10.0), ("summaries", 12.0), ("chat", 170.0)),
    *(("tools", 2.0), ("documents", 2.0)),
)
POLICIES = ("auto", "auto:nosplit", "slack/chunked:1024")
DURATION_S = 100.0


@dataclass(frozen=True, kw_only=True)
class Unprofiled(Profile):
    """The same device; policies are not told what was measured of it."""

    def context(self, predictors: Predictors | None = None) -> PolicyContext:
        """With the roofline, as `EngineInfo.context` makes it."""
        profiled = super().context(predictors)
        roofline = RooflineModel(
            model=self.model,
            device=self.device,
            overheads=replace(OVERHEADS, fused_graph_tokens=self.overheads.fused_graph_tokens),
            tensor_parallel=self.tensor_parallel,
            fused_tile_rows=self.fused_tile_rows,
        )
        return PolicyContext(
            rules=profiled.rules,
            layers=profiled.layers,
            latency=roofline,
            guard=ContentionGuard(default_ratio=UNMEASURED_RATIO),
            splits=aligned_decode(profiled.rules).splits,
        )


def devices() -> tuple[Profile, Profile]:
    """The slower device, with its profile and without."""
    shipped = load_profile(PROFILE)
    values = {field.name: getattr(shipped, field.name) for field in fields(shipped)}
    values["colocated_serving_ratio"] = min(2.0, SPLIT_RATIO * shipped.colocated_serving_ratio)
    values["fused_serving_ratio"] = FUSED_RATIO
    return Profile(**values), Unprofiled(**values)


def main() -> None:
    """Print a row for each load and policy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--policy", action="append", help="may be repeated")
    parser.add_argument("--load", type=cells, help="KIND:RATE, with commas between them")
    parser.add_argument("--seeds", type=int, choices=range(1, 21), default=3, metavar="1..20")
    options = parser.parse_args()
    loads = [(cell.workload, cell.rate) for cell in options.load] if options.load else LOADS
    console, table = Console(width=110), Table(title="good requests, by seed")
    for column in ("load", "policy", "with the profile", "without"):
        table.add_column(column)
    for load in loads:
        for policy in options.policy or POLICIES:
            row = []
            for device in devices():
                shares = []
                for seed in range(1, options.seeds + 1):
                    with console.status(f"{load[0]} {load[1]:g}/s, {policy}, seed {seed}"):
                        _, judged = run(
                            policy, requests(load, "a", DURATION_S, seed=seed), {"a": TARGET}, device
                        )
                    shares.append(100.0 * float(judged.mean()))
                each = ", ".join(f"{share:.1f}" for share in shares)
                row.append(f"{float(np.mean(shares)):.1f}% ({each})")
            table.add_row(f"{load[0]} {load[1]:g}/s", policy, *row)
    console.print(table)


if __name__ == "__main__":
    main()
