"""How far rooflines are off on what was measured, by model and rates.

    python tests/lab roofline-rates

All campaigns of H200s that are in docs/measurements. "Llama-8B's" rates are what an engine on an H200 assumes
before anything is measured (`engine/sglang/assumed_device.py`); they were fitted to the first row's samples,
the others are models and kernels that they were not fitted to. Median of the error with its sign, and p90 of
its size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from pdmuxd.engine.core.partitions import SmRules
from pdmuxd.engine.core.roofline import RooflineModel
from pdmuxd.engine.core.shapes import DeviceShape, Overheads
from pdmuxd.engine.profiling.document import MeasuredProfile, read_file
from pdmuxd.engine.profiling.hardware import predict_s
from pdmuxd.engine.profiling.measurement import Sample
from pdmuxd.engine.sglang.assumed_device import ASSUMED_OVERHEADS, assumed_device, from_data_sheet

FOLDER = Path(__file__).parents[2] / "docs/measurements/h200"
PROFILES = (
    *("llama-8b.partition-kernels", "llama-8b", "qwen3-8b", "qwen3-14b", "codellama-34b", "llama-8b-tp2"),
)
RULES = SmRules(total_sms=132, min_sms=8, multiple_sms=8)
SHEET_OVERHEADS = Overheads(
    graph_launch_s=0.0001, layer_launch_s=0.0004, host_step_s=0.0002, layer_fixed_s=0.00002, switch_s=0.00005
)
"""As they were assumed before."""
FEW_SMS = 36


def is_prefill(sample: Sample) -> bool:
    """A prefill by layers, alone."""
    return sample.point.mode == "prefill"


def is_decode_on_few(sample: Sample) -> bool:
    """A decode step on the SMs that a split gives it."""
    return sample.point.mode == "decode" and sample.point.decode_sms <= FEW_SMS


def is_decode_on_more(sample: Sample) -> bool:
    """A decode step on more, up to all."""
    return sample.point.mode == "decode" and sample.point.decode_sms > FEW_SMS


KINDS: dict[str, Callable[[Sample], bool]] = {
    "prefill": is_prefill,
    f"decode on up to {FEW_SMS} SMs": is_decode_on_few,
    "decode on more": is_decode_on_more,
}


def errors(
    profile: MeasuredProfile, device: DeviceShape, overheads: Overheads, kind: Callable[[Sample], bool]
) -> str:
    """Of the predictions of its samples."""
    roofline = RooflineModel(
        model=profile.model,
        device=device,
        overheads=replace(overheads, fused_graph_tokens=profile.overheads.fused_graph_tokens),
        tensor_parallel=profile.tensor_parallel,
        fused_tile_rows=profile.fused_tile_rows,
    )
    samples = [one for one in profile.samples if kind(one)]
    measured = np.array([one.decode_s or one.prefill_s for one in samples], float)
    predicted = np.array([predict_s(roofline, one.point, profile.captured_decode_bs) for one in samples])
    off = predicted / measured - 1.0
    return f"{np.median(off):+.0%} / {np.quantile(np.abs(off), 0.9):.0%}"


def main() -> None:
    """Print a row for each campaign."""
    table = Table(title="error of the roofline: median / p90 of its size")
    table.add_column("campaign")
    for kind in KINDS:
        table.add_column(f"{kind}: data sheet")
        table.add_column("Llama-8B's rates")
    device = "NVIDIA H200"
    for name in PROFILES:
        profile = read_file(FOLDER / f"{name}.profile.json.gz")
        row = []
        for kind in KINDS.values():
            row.append(errors(profile, from_data_sheet(device, RULES), SHEET_OVERHEADS, kind))
            row.append(errors(profile, assumed_device(device, RULES), ASSUMED_OVERHEADS, kind))
        table.add_row(name, *row)
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
