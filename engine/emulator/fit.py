"""Derive a profile from the roofline: `python -m pdmuxd.engine.emulator.fit [NAME] > profiles/NAME.json`.

Until a GPU has been measured, the solo-run coefficients are least-squares fits (weighted for relative
error) to the roofline over a grid of batches, per SM count.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable

import msgspec
import numpy as np

from pdmuxd.engine.core.latency import DecodeCoefficients, PrefillCoefficients
from pdmuxd.engine.core.roofline import RooflineModel
from pdmuxd.engine.core.shapes import DeviceShape, ModelShape, Overheads
from pdmuxd.engine.core.types import DecodeShape, PrefillShape
from pdmuxd.engine.emulator.profile import DEFAULT_PROFILE, FORMAT, Profile, SoloRunFit

LLAMA_8B = ModelShape(
    name="llama-8b",
    layers=32,
    hidden=4096,
    intermediate=14336,
    heads=32,
    kv_heads=8,
    head_dim=128,
    vocab=128256,
    max_context_tokens=131072,
)

# NVIDIA's H200 data sheet: 989 TFLOP/s dense bf16, 4.8 TB/s HBM3e, 132 SMs; taken at 70% and 85% of peak.
# Bandwidth curvature: 20% of the SMs reach 60% of the bandwidth (DuetServe figure 4).
H200 = DeviceShape(
    name="NVIDIA H200",
    total_sms=132,
    min_sms=8,
    multiple_sms=8,
    flops=0.70 * 989e12,
    bytes_per_s=0.85 * 4.8e12,
    bandwidth_curvature=4.5,
)

# MuxWise 3.2.2: a captured decode step launches in under 0.5 ms, the 80 layers of a 70B prefill in tens of
# milliseconds. host_step_s: upstream pdmux decodes 1.5 to 2 ms slower per step than stock at low load.
OVERHEADS = Overheads(
    graph_launch_s=0.0004,
    layer_launch_s=0.0003,
    host_step_s=0.0018,
    layer_fixed_s=0.00002,
    switch_s=0.00005,
)

HBM_BYTES = 141e9
MEMORY_SHARE_FOR_KV_AND_WEIGHTS = 0.88
PREFILL_NEW_TOKENS = (128, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)
PREFILL_REUSED_TOKENS = (0, 1024, 8192, 32768)
DECODE_BATCH_SIZES = (1, 8, 32, 64, 128, 256)
DECODE_CONTEXT_TOKENS = (256, 1024, 4096, 16384)
SMS_STEP = 4


def derive(name: str) -> Profile:
    """The roofline-derived profile of Llama-8B on one H200."""
    weights_bytes = 2.0 * (LLAMA_8B.layers * LLAMA_8B.layer_weights + 2 * LLAMA_8B.hidden * LLAMA_8B.vocab)
    kv_bytes = HBM_BYTES * MEMORY_SHARE_FOR_KV_AND_WEIGHTS - weights_bytes
    truth = RooflineModel(model=LLAMA_8B, device=H200, overheads=OVERHEADS)
    sizes = range(H200.min_sms, H200.total_sms + 1, SMS_STEP)
    return Profile(
        format=FORMAT,
        name=name,
        provenance=(
            "derived: roofline (DuetServe 4.1) at 70% of 989 TFLOP/s and 85% of 4.8 TB/s, "
            "H200 data sheet; overheads from MuxWise 3.2.2; not measured"
        ),
        model=LLAMA_8B,
        device=H200,
        overheads=OVERHEADS,
        kv_capacity_tokens=int(kv_bytes // LLAMA_8B.kv_bytes_per_token),
        guard_default_ratio=1.3,
        contention_ratio=0.15,
        solo_run=tuple(
            SoloRunFit(sms=sms, prefill=_fit_prefill(truth, sms), decode=_fit_decode(truth, sms))
            for sms in sizes
        ),
    )


def _fit_prefill(truth: RooflineModel, sms: int) -> PrefillCoefficients:
    shapes = [PrefillShape.of([(n, r)]) for n in PREFILL_NEW_TOKENS for r in PREFILL_REUSED_TOKENS]
    rows = ((s.sum_new_squared, s.sum_new_times_reused, s.new_tokens, 1.0) for s in shapes)
    a, b, c, d = _relative_fit(rows, (truth.prefill_s(s, sms) for s in shapes))
    return PrefillCoefficients(per_new_squared_s=a, per_new_times_reused_s=b, per_new_s=c, fixed_s=d)


def _fit_decode(truth: RooflineModel, sms: int) -> DecodeCoefficients:
    shapes = [
        DecodeShape(bs=b, reused_tokens=b * c) for b in DECODE_BATCH_SIZES for c in DECODE_CONTEXT_TOKENS
    ]
    rows = ((s.reused_tokens, s.bs, 1.0) for s in shapes)
    a, b, c = _relative_fit(rows, (truth.decode_s(s, sms) for s in shapes))
    return DecodeCoefficients(per_reused_s=a, per_request_s=b, fixed_s=c)


def _relative_fit(rows: Iterable[tuple[float, ...]], seconds: Iterable[float]) -> list[float]:
    """Non-negative least squares of relative error, by dropping negative terms one at a time."""
    target = np.fromiter(seconds, dtype=np.float64)
    design = np.array(list(rows), dtype=np.float64) / target[:, None]
    scale = np.abs(design).max(axis=0)
    design = design / scale
    kept = list(range(design.shape[1]))
    while True:
        solution, *_ = np.linalg.lstsq(design[:, kept], np.ones_like(target), rcond=None)
        if (solution >= 0.0).all():
            break
        kept.pop(int(solution.argmin()))
    result = np.zeros(design.shape[1])
    result[kept] = solution
    return [float(x) for x in result / scale]


def main(arguments: list[str], write: Callable[[str], object] = sys.stdout.write) -> None:
    """Print the derived profile as JSON."""
    name = arguments[0] if arguments else DEFAULT_PROFILE
    write(msgspec.json.format(msgspec.json.encode(derive(name)), indent=1).decode() + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
