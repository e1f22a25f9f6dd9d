"""How much two streams slow each other beyond sharing bandwidth: what the emulated device is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from pdmuxd.engine.core.roofline import RooflineModel
from pdmuxd.engine.profiling.colocation import Pair
from pdmuxd.engine.profiling.points import Point
from pdmuxd.engine.profiling.regression import Floats

HIGHEST = 1.0
"""Of each: what the emulated device accepts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interference:
    """Slowdowns beyond 1, typical ones."""

    decode_ratio: float = 0.0
    """Of decode beside any prefill."""
    decode_sms_ratio: float = 0.0
    """Of decode, per share of the SMs that prefill has."""
    contention_ratio: float = 0.0
    """Of decode, per share of the bandwidth that prefill moves."""
    prefill_ratio: float | None = None
    """Of prefill, per share of the bandwidth that decode moves, times the root of decode's share of the SMs;
    None if no pair tells. Without the root, prefill on 96 and 112 SMs of 132 was 5 to 11% too slow, and on 32
    to 64 up to 10% too fast (four models on one H200, 2026-11-22)."""


def interference_of(pairs: Sequence[Pair], roofline: RooflineModel) -> Interference:
    """Least squares of what the sharing of bandwidth does not explain.

    Either slows the other only while both are on the device: of a decode step that is `busy`, its share.
    """
    points = [pair.point for pair in pairs]
    shares = np.array([_bandwidth_shares(roofline, point) for point in points])
    prefill_share, decode_share = shares[:, 0], shares[:, 1]
    busy = np.array([_busy_share(roofline, point) for point in points])
    sms = np.array([(point.prefill_sms, point.decode_sms) for point in points], dtype=np.float64)
    decode_sms_share = sms[:, 1] / sms.sum(axis=1)
    on_device = (np.array([pair.typical for pair in pairs]) - 1.0) / busy + 1.0
    excess = on_device / np.maximum(1.0, shares.sum(axis=1)) - 1.0
    terms = np.column_stack([np.ones(len(pairs)), 1.0 - decode_sms_share, prefill_share])
    (fixed, per_sms, per_share), _ = nnls(terms, np.maximum(0.0, excess))
    return Interference(
        decode_ratio=_within(float(fixed)),
        decode_sms_ratio=_within(float(per_sms)),
        contention_ratio=_within(float(per_share)),
        prefill_ratio=_prefill_ratio(
            decode_share * np.sqrt(decode_sms_share) * busy, np.array([pair.prefill for pair in pairs])
        ),
    )


def _prefill_ratio(weights: Floats, slowdowns: Floats) -> float | None:
    known = np.isfinite(slowdowns)
    if not known.any():
        return None
    weight, excess = weights[known], slowdowns[known] - 1.0
    return _within(float(weight @ excess / max(1e-9, float(weight @ weight))))


def _bandwidth_shares(roofline: RooflineModel, point: Point) -> tuple[float, float]:
    """The share of the device's bandwidth that prefill, and that decode asks for when alone."""
    prefill, decode = point.prefill_shape, point.decode_shape
    prefill_bytes = roofline.prefill_cost(prefill, point.prefill_sms).hbm_bytes
    prefill_s = roofline.prefill_s(prefill, point.prefill_sms)
    decode_cost = roofline.decode_cost(decode, point.decode_sms)
    most = roofline.device.bytes_per_s
    return (
        min(1.0, prefill_bytes / prefill_s / most),
        min(1.0, decode_cost.hbm_bytes / decode_cost.seconds / most),
    )


def _busy_share(roofline: RooflineModel, point: Point) -> float:
    """Of a decode step's time, what it is on the device; the rest is the host's."""
    shape, sms = point.decode_shape, point.decode_sms
    return roofline.decode_cost(shape, sms).seconds / roofline.decode_s(shape, sms)


def _within(ratio: float) -> float:
    return min(HIGHEST, max(0.0, ratio))
