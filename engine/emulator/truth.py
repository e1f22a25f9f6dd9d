"""What the emulated device really takes: a roofline, and decode steps as measured where they were."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pdmuxd.engine.core.latency import DecodeCoefficients
from pdmuxd.engine.core.roofline import Cost, RooflineModel
from pdmuxd.engine.core.types import DecodeShape

_SHORTEST_S = 1e-5


@dataclass(frozen=True, kw_only=True)
class Truth(RooflineModel):
    """A roofline whose decode steps are those of a measured profile on the SM counts that it has.

    On few SMs a roofline is no guide to decode: products of few rows leave part of every tile empty, by which
    a batch of 128 takes half as long again as it says (one H200, Llama-8B, 20 to 36 SMs, 2026-11-21).
    """

    decode: Mapping[int, DecodeCoefficients] = field(default_factory=dict)

    def decode_cost(self, shape: DecodeShape, sms: int) -> Cost:
        """One decode step on the device, without the host's part."""
        roofline = super().decode_cost(shape, sms)
        measured = self.decode.get(sms)
        if measured is None or not shape.bs:
            return roofline
        device_s = measured.predict_s(shape) - self.overheads.graph_launch_s - self.overheads.host_step_s
        return Cost(seconds=max(device_s, _SHORTEST_S), hbm_bytes=roofline.hbm_bytes)

    def decode_s(self, shape: DecodeShape, sms: int) -> float:
        """Device step, graph launch and host work."""
        o = self.overheads
        return self.decode_cost(shape, sms).seconds + o.graph_launch_s + o.host_step_s
