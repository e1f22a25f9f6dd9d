"""What changed from one profile to another, in numbers that people can judge."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pdmuxd.engine.core.types import DecodeShape, PrefillShape
from pdmuxd.engine.profiling.document import MeasuredProfile

PREFILL = PrefillShape.of([(2048, 0)])
DECODE = DecodeShape(bs=32, reused_tokens=32 * 1024)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One quantity of two profiles; None where a profile has none."""

    quantity: str
    unit: str
    before: float | None
    after: float | None


def differences(before: MeasuredProfile, after: MeasuredProfile) -> tuple[Difference, ...]:
    """Quantities that differ, and those that only one has."""
    ours, theirs = dict(_quantities(before)), dict(_quantities(after))
    return tuple(
        Difference(quantity=name, unit=unit, before=ours.get((name, unit)), after=theirs.get((name, unit)))
        for name, unit in dict.fromkeys([*ours, *theirs])
        if ours.get((name, unit)) != theirs.get((name, unit))
    )


def _quantities(profile: MeasuredProfile) -> Iterator[tuple[tuple[str, str], float]]:
    device, overheads = profile.device, profile.overheads
    yield ("GPUs", ""), float(profile.tensor_parallel.gpus)
    yield ("compute", "TFLOP/s"), device.flops / 1e12
    yield ("bandwidth", "TB/s"), device.bytes_per_s / 1e12
    yield ("bandwidth curvature", ""), device.bandwidth_curvature
    yield ("compute curvature", ""), device.compute_curvature
    yield ("not overlapped", "ratio"), device.serial_ratio
    yield ("launching a layer", "ms"), overheads.layer_launch_s * 1000.0
    yield ("launching a graph", "ms"), overheads.graph_launch_s * 1000.0
    yield ("host work of a step", "ms"), overheads.host_step_s * 1000.0
    yield ("guard where nothing is known", "ratio"), profile.guard_default_ratio
    if profile.guard_cells:
        ratios = [ratio for _, ratio in profile.guard_cells]
        yield ("guard, mean of its cells", "ratio"), sum(ratios) / len(ratios)
        yield ("guard, highest cell", "ratio"), max(ratios)
    for fit in profile.solo_run:
        if fit.prefill is not None:
            seconds = fit.prefill.predict_s(PREFILL)
            yield (f"prefill of 2048 tokens on {fit.sms} SMs", "ms"), seconds * 1000.0
            if fit.prefill.colocated_ratio:
                yield (f"prefill beside decode on {fit.sms} SMs", "times alone"), fit.prefill.colocated_ratio
        if fit.decode is not None:
            seconds = fit.decode.predict_s(DECODE, profile.captured_decode_bs)
            yield (f"decode step of 32 x 1024 tokens on {fit.sms} SMs", "ms"), seconds * 1000.0
    for errors in profile.fits:
        where = f" on {errors.sms} SMs" if errors.sms else ""
        yield (f"p90 error of {errors.predictor}{where}", "%"), errors.errors.p90 * 100.0
