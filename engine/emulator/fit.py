"""Derive a profile from the roofline: `python -m pdmuxd.engine.emulator.fit [NAME] > profiles/NAME.json`.

Until a GPU has been measured, the solo-run coefficients are least-squares fits (weighted for relative
error) to the roofline over a grid of batches, per SM count.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import replace

import msgspec
import numpy as np

from pdmuxd.engine.core.errors import ProfileError
from pdmuxd.engine.core.latency import DecodeCoefficients, PrefillCoefficients
from pdmuxd.engine.core.roofline import RooflineModel
from pdmuxd.engine.core.types import DecodeShape, PrefillShape
from pdmuxd.engine.emulator.digits import rounded
from pdmuxd.engine.emulator.profile import FORMAT, Profile
from pdmuxd.engine.emulator.shapes import BANDWIDTH_SHARE, COMPUTE_SHARE, DEPLOYMENTS, OVERHEADS
from pdmuxd.engine.emulator.truth import SoloRunFit

MEMORY_SHARE_FOR_KV_AND_WEIGHTS = 0.88
PREFILL_NEW_TOKENS = (128, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)
PREFILL_REUSED_TOKENS = (0, 1024, 8192, 32768)
DECODE_BATCH_SIZES = (1, 8, 32, 64, 128, 256)
DECODE_CONTEXT_TOKENS = (256, 1024, 4096, 16384)
SMS_STEP = 4


def derive(name: str) -> Profile:
    """The roofline-derived profile of a known deployment. Raises: ProfileError listing the known ones."""
    deployment = DEPLOYMENTS.get(name)
    if deployment is None:
        raise ProfileError(f"unknown deployment {name!r}; known are {', '.join(DEPLOYMENTS)}")
    model, device, parallel = deployment.model, deployment.device, deployment.tensor_parallel
    memory_bytes = parallel.gpus * deployment.hbm_bytes * MEMORY_SHARE_FOR_KV_AND_WEIGHTS
    kv_bytes = memory_bytes - model.all_weights_bytes
    truth = RooflineModel(model=model, device=device, overheads=OVERHEADS, tensor_parallel=parallel)
    sizes = range(device.min_sms, device.total_sms + 1, SMS_STEP)
    return Profile(
        format=FORMAT,
        name=name,
        provenance=(
            f"derived: roofline (DuetServe 4.1) of {parallel.gpus} x {device.name} at "
            f"{COMPUTE_SHARE:.0%} of data-sheet compute and {BANDWIDTH_SHARE:.0%} of bandwidth; "
            "overheads from MuxWise 3.2.2; not measured"
        ),
        model=model,
        device=device,
        overheads=OVERHEADS,
        tensor_parallel=parallel,
        kv_capacity_tokens=int(kv_bytes // model.kv_bytes_per_token),
        guard_default_ratio=deployment.guard_default_ratio,
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
    line = DecodeCoefficients(per_reused_s=a, per_request_s=b, fixed_s=c)
    if truth.model.experts is None:
        return line
    # What a batch reads of experts bends: at each size, what the line misses.
    missed = [(s.bs, truth.decode_s(s, sms) - line.predict_s(s)) for s in shapes]
    return replace(
        line,
        curve=tuple(
            (float(size), float(np.mean([seconds for bs, seconds in missed if bs == size])))
            for size in DECODE_BATCH_SIZES
        ),
    )


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
    name = arguments[0] if arguments else next(iter(DEPLOYMENTS))
    write(msgspec.json.encode(rounded(msgspec.to_builtins(derive(name)))).decode() + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
