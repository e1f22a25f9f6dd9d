"""What serving without a profile costs: `python tests/lab no-profile [--seeds 3 --load summaries:12]`.

Emulated engine, virtual time, the shipped profile of Llama-8B on an H200, on a device that takes longer:
decode beside prefill 1.45 times, fused steps 1.17 times what the profile says, which is about what an H200
took over the roofline (docs/measurements/h200-kernels.md, "Without a profile"). Good requests where policies
predict with the profile, and where they predict with the roofline alone, as an engine without one does: by
the rates fitted to the device, and by those of its data sheet.
Target: `auto` at least as good as the chunk in the same order.

`--noise 8,6,0.3`: the device is as the profile says, but for a bias, scatter and stalls in percent: as a
profile from another GPU of the kind serves. `--engine-splits`: policies without the profile choose among the
splits that an engine has on this GPU.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from rich.console import Console
from rich.table import Table
from tenant_floods import PROFILE, TARGET, Load, requests, run

from gpu_servers.options import cells
from pdmuxd.daemon.cli.trace_options import parse_noise
from pdmuxd.engine.core.guard import UNMEASURED_RATIO, ContentionGuard
from pdmuxd.engine.core.partitions import SmRules, aligned_decode
from pdmuxd.engine.core.policies.base import PolicyContext
from pdmuxd.engine.core.roofline import RooflineModel
from pdmuxd.engine.core.shapes import DeviceShape, Overheads
from pdmuxd.engine.emulator.noise import DeviceNoise
from pdmuxd.engine.emulator.profile import Profile, load_profile
from pdmuxd.engine.link.predictors import Predictors
from pdmuxd.engine.sglang.assumed_device import ASSUMED_OVERHEADS, from_data_sheet

SPLIT_RATIO, FUSED_RATIO = 1.45, 1.17
LOADS: Sequence[Load] = (
    *(("summaries", 10.0), ("summaries", 12.0), ("chat", 170.0)),
    *(("tools", 2.0), ("documents", 2.0)),
)
POLICIES = ("auto", "auto:nosplit", "slack/chunked:1024")
DURATION_S = 100.0


@dataclass(frozen=True, kw_only=True)
class Unprofiled(Profile):
    """The same device; policies are not told what was measured of it."""

    has_engine_splits: bool = False
    """Those of an engine on this GPU, finer than the profile's."""

    def context(self, predictors: Predictors | None = None) -> PolicyContext:
        """With the roofline, as `EngineInfo.context` makes it."""
        profiled = super().context(predictors)
        device, overheads = self.assumed(profiled.rules)
        roofline = RooflineModel(
            model=self.model,
            device=device,
            overheads=overheads,
            tensor_parallel=self.tensor_parallel,
            fused_tile_rows=self.fused_tile_rows,
        )
        return PolicyContext(
            rules=profiled.rules,
            layers=profiled.layers,
            latency=roofline,
            guard=ContentionGuard(default_ratio=UNMEASURED_RATIO),
            splits=aligned_decode(profiled.rules).splits if self.has_engine_splits else None,
        )

    def assumed(self, rules: SmRules) -> tuple[DeviceShape, Overheads]:
        """The rates that were fitted to the device."""
        return self.device, self.overheads


@dataclass(frozen=True, kw_only=True)
class BySheet(Unprofiled):
    """With the data sheet's rates."""

    def assumed(self, rules: SmRules) -> tuple[DeviceShape, Overheads]:
        """As of a GPU that nobody measured."""
        overheads = replace(ASSUMED_OVERHEADS, fused_graph_tokens=self.overheads.fused_graph_tokens)
        return from_data_sheet("NVIDIA H200", rules), overheads


def devices(noise: DeviceNoise | None, seed: int, *, engine_splits: bool) -> tuple[Profile, ...]:
    """The device with its profile, and without by either's rates."""
    shipped = load_profile(PROFILE)
    values = {field.name: getattr(shipped, field.name) for field in fields(shipped)}
    if noise is None:
        values["colocated_serving_ratio"] = min(2.0, SPLIT_RATIO * shipped.colocated_serving_ratio)
        values["fused_serving_ratio"] = FUSED_RATIO
    else:
        values["noise"] = replace(noise, seed=seed)
    return (
        Profile(**values),
        Unprofiled(**values, has_engine_splits=engine_splits),
        BySheet(**values, has_engine_splits=engine_splits),
    )


def main() -> None:
    """Print a row for each load and policy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--policy", action="append", help="may be repeated")
    parser.add_argument("--load", type=cells, help="KIND:RATE, with commas between them")
    parser.add_argument("--seeds", type=int, choices=range(1, 21), default=3, metavar="1..20")
    parser.add_argument(
        "--noise", type=parse_noise, help="bias, scatter and stalls instead of a slower device"
    )
    parser.add_argument("--engine-splits", action="store_true")
    options = parser.parse_args()
    loads = [(cell.workload, cell.rate) for cell in options.load] if options.load else LOADS
    console, table = Console(width=130), Table(title="good requests, by seed")
    for column in ("load", "policy", "with the profile", "fitted rates", "data sheet"):
        table.add_column(column)
    for load in loads:
        for policy in options.policy or POLICIES:
            by_device: list[list[float]] = [[], [], []]
            for seed in range(1, options.seeds + 1):
                modelled = devices(options.noise, seed, engine_splits=options.engine_splits)
                for shares, device in zip(by_device, modelled, strict=True):
                    with console.status(f"{load[0]} {load[1]:g}/s, {policy}, seed {seed}"):
                        arrivals = requests(load, "a", DURATION_S, seed=seed)
                        _, judged = run(policy, arrivals, {"a": TARGET}, device)
                    shares.append(100.0 * float(judged.mean()))
            row = [
                f"{float(np.mean(shares)):.1f}% ({', '.join(f'{share:.1f}' for share in shares)})"
                for shares in by_device
            ]
            table.add_row(f"{load[0]} {load[1]:g}/s", policy, *row)
    console.print(table)


if __name__ == "__main__":
    main()
