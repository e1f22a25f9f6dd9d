"""Which steps stalled, whatever policy decides.

A stall is a step further off what is expected of it than scatter explains (decision 0024): more than eight
mean deviations. What is expected of a fused step is its prediction times what is typical of its size; of a
decode step, in a split or by itself, times what was typical of such steps of late.
"""

from __future__ import annotations

from pdmuxd.engine.core.estimates.latency_margin import STALL_STEPS, LatencyMargin
from pdmuxd.engine.core.estimates.steps import FusedEstimate
from pdmuxd.engine.core.latency import LatencyModel
from pdmuxd.engine.core.running_mean import LAST_20, blended
from pdmuxd.engine.core.types import Mode, Reason
from pdmuxd.engine.loop.decode import Step, StepTiming

LEAST_STALL_S = 0.005
"""Half of the shortest that was seen: launches stood still for 10 to 24 ms (one H200, Llama-8B, SGLang
0.5.23, 2026-11-22). Where steps hardly scatter, one can be off by eight mean deviations, and what was wrong
is the prediction."""


class StallWatch:
    """Learns what steps take, and tells those that took far longer. `auto` learns the same of fused steps for
    its plans; under other policies steps stall as well."""

    def __init__(self) -> None:
        self._fused = FusedEstimate()
        self._decode = {mode: _Typical() for mode in (Mode.SPLIT, Mode.DECODE)}

    def excess_s(self, step: Step, timing: StepTiming, latency: LatencyModel, sms: int) -> float:
        """Seconds that a step took beyond what was expected of it, if it stalled; else 0. Learns from it.

        `latency` and `sms`, the device's, predict steps for which the policy had no prediction.
        """
        numbers, decode, prefill = step.decision.numbers, step.decode, step.prefill
        measured_s = timing.gap_s
        if measured_s <= 0.0:
            return 0.0
        if step.decision.mode is Mode.FUSED and prefill is not None:
            predicted_s = numbers.predicted_fused_s or latency.fused_s(prefill, decode, sms)
            before, tokens = self._fused, prefill.new_tokens + decode.bs
            self._fused = before.after(tokens, predicted_s=predicted_s, measured_s=measured_s)
            return _excess_s(self._fused.margin, before.expected_s(predicted_s, tokens), measured_s)
        if not decode.bs:
            return 0.0
        is_split = step.decision.mode is Mode.SPLIT and prefill is not None
        # While a group drains, what is predicted is of the group to come.
        is_predicted = is_split and step.decision.reason is not Reason.SWITCH_WHEN_DRAINED
        predicted_s = (numbers.predicted_decode_s if is_predicted else None) or latency.decode_s(
            decode, step.decode_sms or sms
        )
        return self._decode[Mode.SPLIT if is_split else Mode.DECODE].excess_s(predicted_s, measured_s)


class _Typical:
    """Sums up decode steps of one kind: what is typical over their prediction, and their scatter around
    it."""

    def __init__(self) -> None:
        self._margin = LatencyMargin()
        self._ratio: float | None = None

    def excess_s(self, predicted_s: float, measured_s: float) -> float:
        seen = measured_s / predicted_s
        ratio = seen if self._ratio is None else self._ratio
        self._margin = self._margin.after(predicted_s=ratio * predicted_s, measured_s=measured_s)
        excess_s = _excess_s(self._margin, ratio * predicted_s, measured_s)
        self._ratio = ratio if excess_s else blended(ratio, seen, LAST_20)
        return excess_s


def _excess_s(margin: LatencyMargin, expected_s: float, measured_s: float) -> float:
    """A margin that has just learned of a stall expects the next one for so many steps."""
    excess_s = measured_s - expected_s
    return excess_s if margin.expected_stalls == STALL_STEPS and excess_s > LEAST_STALL_S else 0.0
