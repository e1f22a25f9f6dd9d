"""What the emulated device really takes: what was measured where it was, what follows from that on other SM
counts, and a roofline elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from pdmuxd.engine.core.latency import DecodeCoefficients, FusedCoefficients, PrefillCoefficients
from pdmuxd.engine.core.roofline import Cost, RooflineModel
from pdmuxd.engine.core.sm_counts import predict_s
from pdmuxd.engine.core.types import DecodeShape, PrefillShape
from pdmuxd.engine.emulator.launches import PDMUXD, Launches

_SHORTEST_S = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class SoloRunFit:
    """The fitted predictors of one SM count (MuxWise eq. 1 and 2); None where the roofline predicts."""

    sms: int
    prefill: PrefillCoefficients | None = None
    decode: DecodeCoefficients | None = None
    fused: FusedCoefficients | None = None


@dataclass(frozen=True, kw_only=True)
class Truth(RooflineModel):
    """A roofline, but for what a measured profile has of the SM counts that it measured, and what follows
    from these for other counts (`core/sm_counts.py`).

    No roofline knows which kernels are chosen. On few SMs products of few rows leave part of every tile
    empty: a decode batch of 128 takes half as long again as a roofline says (one H200, Llama-8B, 20 to 36
    SMs, 2026-11-21). Kernels that were chosen for 132 SMs need two rounds on 112: prefills of 512 to 2,048
    tokens take 13 to 29% longer there. Fused batches of 512 and 1,024 tokens take 7 to 11% less.
    """

    measured: Mapping[int, SoloRunFit] = field(default_factory=dict)
    """By SM count."""
    fused_serving_ratio: float = 1.0
    """As the profile's."""
    launches: Launches = PDMUXD

    @cached_property
    def _decode(self) -> dict[int, DecodeCoefficients]:
        return {sms: fit.decode for sms, fit in self.measured.items() if fit.decode is not None}

    @cached_property
    def _prefill(self) -> dict[int, PrefillCoefficients]:
        return {sms: fit.prefill for sms, fit in self.measured.items() if fit.prefill is not None}

    def decode_cost(self, shape: DecodeShape, sms: int) -> Cost:
        """One decode step on the device, without the host's part."""
        cost_on = super().decode_cost
        roofline, o = cost_on(shape, sms), self.overheads
        if not shape.bs:
            return roofline

        def measured_s(known: int) -> float:
            device_s = self._decode[known].predict_s(shape) - o.graph_launch_s - o.host_step_s
            return max(device_s, _SHORTEST_S)

        if sms in self._decode:
            return Cost(seconds=measured_s(sms), hbm_bytes=roofline.hbm_bytes)
        device_s = predict_s(
            sms,
            self._decode,
            measured_s,
            lambda any_sms: cost_on(shape, any_sms).seconds,
            lambda any_sms: self.device.grouped_sms(any_sms, shape.bs),
        )
        return Cost(seconds=device_s, hbm_bytes=roofline.hbm_bytes)

    def decode_s(self, shape: DecodeShape, sms: int) -> float:
        """Device step, graph launch and host work."""
        o = self.overheads
        return self.decode_cost(shape, sms).seconds + o.graph_launch_s + o.host_step_s

    def prefill_cost(self, shape: PrefillShape, sms: int) -> Cost:
        """All layers of a prefill on the device, without launching them. What was measured before launching
        was told apart is no shorter than that."""
        cost_on = super().prefill_cost
        roofline = cost_on(shape, sms)
        if not shape.new_tokens:
            return roofline

        def measured_s(known: int) -> float:
            return max(self._prefill[known].device_s(shape), _SHORTEST_S)

        if sms in self._prefill:
            return Cost(seconds=measured_s(sms), hbm_bytes=roofline.hbm_bytes)
        device_s = predict_s(sms, self._prefill, measured_s, lambda any_sms: cost_on(shape, any_sms).seconds)
        return Cost(seconds=device_s, hbm_bytes=roofline.hbm_bytes)

    def prefill_s(self, shape: PrefillShape, sms: int) -> float:
        """Never faster than the CPU can launch the layers."""
        fit = self._prefill.get(sms)
        if fit is not None:
            return max(self.prefill_cost(shape, sms).seconds, fit.launch_s(shape))
        roofline_s = super().prefill_s
        return predict_s(
            sms,
            self._prefill,
            lambda known: self.prefill_s(shape, known),
            lambda any_sms: roofline_s(shape, any_sms),
        )

    def fused_s(self, prefill: PrefillShape, decode: DecodeShape, sms: int) -> float:
        """One mixed batch in a campaign; one without prompt tokens, which campaigns do not have, by the
        roofline."""
        fit = self.measured.get(sms)
        if fit is None or fit.fused is None or not prefill.new_tokens:
            return super().fused_s(prefill, decode, sms)
        return max(fit.fused.predict_s(prefill, decode), _SHORTEST_S)

    def fused_device_s(self, prefill: PrefillShape, decode: DecodeShape, sms: int) -> float:
        """One mixed batch in a campaign, without the host's launching."""
        fit = self.measured.get(sms)
        if fit is None or fit.fused is None or not prefill.new_tokens:
            return self.fused_cost(prefill, decode, sms).seconds + self.overheads.graph_launch_s
        return max(fit.fused.predict_s(prefill, decode), _SHORTEST_S)

    def serving_fused_s(self, prefill: PrefillShape, decode: DecodeShape, sms: int) -> float:
        """One mixed batch while serving."""
        solo_s = self.fused_s(prefill, decode, sms)
        if not prefill.new_tokens:
            return solo_s
        return solo_s * self.fused_serving_ratio + self.launches.fused_s(decode.bs, self.model.layers)
