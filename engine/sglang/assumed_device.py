"""What is assumed of a GPU before anything is measured on it: the roofline's rates and launching times."""

from __future__ import annotations

from dataclasses import replace

from pdmuxd.engine.core.partitions import SmRules
from pdmuxd.engine.core.shapes import DeviceShape, Overheads

_DATA_SHEET = {"H200": (989e12, 4.8e12), "H100": (989e12, 3.35e12), "A100": (312e12, 2.039e12)}
"""Dense bf16 FLOP/s and HBM bytes/s (NVIDIA's data sheets)."""
_COMPUTE_SHARE, _BANDWIDTH_SHARE = 0.70, 0.85
"""The shares of the data sheet's peak that large matrix products and streaming reads reach."""
ASSUMED_OVERHEADS = Overheads(
    graph_launch_s=0.0001,
    layer_launch_s=0.00055,
    host_step_s=0.0001,
    layer_fixed_s=0.00001,
    switch_s=0.00005,
)
"""Steps are launched ahead, so that the host's part hardly shows. Launching a layer took 0.3 to 0.66 ms in
six campaigns on H200s, mostly 0.55 and more."""


def assumed_device(name: str, rules: SmRules) -> DeviceShape:
    """A GPU by its name; the A100's rates for one that is not known."""
    by_vendor = from_data_sheet(name, rules)
    if "H200" in name:
        # As fitted to Llama-8B's steps on partitions with kernels of their own. For other models these rates
        # are nearer than the data sheet's, too (docs/measurements/h200-kernels.md, "Rates for any model").
        return replace(
            by_vendor,
            flops=680e12,
            bytes_per_s=3.37e12,
            bandwidth_curvature=5.89,
            compute_curvature=0.32,
            serial_ratio=0.49,
        )
    return by_vendor


def from_data_sheet(name: str, rules: SmRules) -> DeviceShape:
    """The device by what its vendor says of it."""
    flops, bytes_per_s = next((v for k, v in _DATA_SHEET.items() if k in name), _DATA_SHEET["A100"])
    return DeviceShape(
        name=name,
        total_sms=rules.total_sms,
        min_sms=rules.min_sms,
        multiple_sms=rules.multiple_sms,
        flops=_COMPUTE_SHARE * flops,
        bytes_per_s=_BANDWIDTH_SHARE * bytes_per_s,
        bandwidth_curvature=4.5,
    )
