"""What the host takes to launch a prefill, layer by layer: a law of its own, beside what the device takes.

While serving, the longer of the two counts. It depends on the layers and a little on the requests of the
batch, never on what is computed; and it scatters far more than the device does, so its p95 is kept beside its
median.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np

from pdmuxd.engine.core.latency import PrefillCoefficients
from pdmuxd.engine.profiling.measurement import Sample
from pdmuxd.engine.profiling.regression import fit

MIN_LAUNCHES = 12
"""Fewer say nothing of a 95th percentile."""
HIGH_PERCENTILE = 95.0


class LaunchCost(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds that the host takes."""

    per_layer_s: float
    """The median, of a prefill of one request."""
    per_request_s: float
    """For each request beyond the first, all layers together."""
    high_ratio: float
    """The 95th percentile of launches over that."""
    launches: int

    def prefill_s(self, layers: int, requests: int = 1) -> float:
        """All layers of a batch, typically."""
        return self.per_layer_s * layers + self.per_request_s * max(0, requests - 1)


def fit_launching(samples: Sequence[Sample], layers: int) -> LaunchCost | None:
    """Fit the prefills whose launching was measured apart; None if those are too few."""
    launches = [
        (sample.point.prefill_shape.bs - 1, one)
        for sample in samples
        if sample.point.mode == "prefill"
        for one in sample.launch_s
    ]
    if len(launches) < MIN_LAUNCHES:
        return None
    rows = np.array([(1.0, float(more)) for more, _ in launches])
    seconds = np.array([one for _, one in launches])
    found = fit(rows, seconds).coefficients
    typical = rows @ found
    # The fit is of inliers, which is the median but for a host whose stalls are many.
    middle = float(np.median(seconds / typical))
    return LaunchCost(
        per_layer_s=float(found[0]) * middle / layers,
        per_request_s=float(found[1]) * middle,
        high_ratio=max(1.0, float(np.percentile(seconds / typical, HIGH_PERCENTILE)) / middle),
        launches=len(launches),
    )


def with_launching(device: PrefillCoefficients, launching: LaunchCost, layers: int) -> PrefillCoefficients:
    """A predictor of device time together with what launching takes."""
    return replace(
        device,
        floor_s=launching.prefill_s(layers),
        floor_per_request_s=launching.per_request_s,
        is_floor_apart=True,
    )
