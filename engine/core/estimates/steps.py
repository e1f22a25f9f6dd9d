"""What each kind of work takes over its prediction: one value, learned from each step that was measured.

Policies plan with these numbers by name:

- `fused`: fused steps. Bias of all and by size, scatter, the host's floor, stalls.
- `split_ratio`, `guard`: decode steps beside layers, the typical one and the worst to expect of each pair.
- `prefill_ratio`: prefills by layers.
- `breaker`: whether predictions can be used at all.

Sources: MuxWise section 3.3.2 (the guard); the others are this project's own, each beside its class
(docs/decisions/0084-one-place-for-what-steps-took.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from pdmuxd.engine.core.estimates.batch_size_correction import BatchSizeCorrection
from pdmuxd.engine.core.estimates.latency_margin import HOST_RATIO, LatencyMargin
from pdmuxd.engine.core.estimates.misprediction_breaker import WRONG_RATIO, MispredictionBreaker
from pdmuxd.engine.core.guard import ContentionGuard, guard_cell
from pdmuxd.engine.core.running_mean import LAST_20, LAST_50, blended, weight_after, within
from pdmuxd.engine.core.slo import DEFAULT_SLO
from pdmuxd.engine.core.types import Feedback, Mode, PrefillFeedback

SPLIT_RATIO = 1.2
"""Of decode steps beside layers at first: 1.22 on chat and 1.30 on summaries (emulator with the profile of
partition kernels, Llama-8B on an H200, 2026-11-25)."""

GUARD_RISE = 0.1
"""By this share a step raises its cell of the guard at most; what it took beyond is a stall."""
ASSUMED_RISE = 0.6
"""The same where the ratio was assumed and not seen: decode on 16 SMs took 1.4 times what a roofline and the
assumed ratio said (one H200, Llama-8B, 2026-11-23). A stall can be no shorter than that either, so that none
is expected for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedEstimate:
    """What fused steps take over their prediction."""

    ratio: float = 1.0
    """Typical over predicted seconds, of steps of all sizes."""
    sizes: BatchSizeCorrection = field(default_factory=BatchSizeCorrection)
    """The same by size."""
    margin: LatencyMargin = field(default_factory=LatencyMargin)
    """Scatter, floor and stalls, beyond what is typical of a size."""

    def expected_s(self, predicted_s: float, tokens: int) -> float:
        """What a step of so many tokens typically takes."""
        return predicted_s * self.sizes.ratio(tokens)

    def margin_ratio(self, tokens: int) -> float:
        """Few steps of so many tokens take longer than this many times their prediction."""
        return self.sizes.ratio(tokens) * self.margin.ratio

    def after(
        self,
        tokens: int,
        *,
        predicted_s: float,
        measured_s: float,
        attainment_ratio: float = DEFAULT_SLO.attainment_ratio,
        follows_split: bool = False,
        has_decode: bool = True,
    ) -> FusedEstimate:
        """The estimate after one more step.

        A step that waited for the host, or for the layers of a split, says nothing about its size. A step
        without decoding requests says nothing about the margin: nobody waited for its tokens.
        """
        ratio, margin, expected_s = self.ratio, self.margin, self.expected_s(predicted_s, tokens)
        if measured_s <= HOST_RATIO * expected_s and not follows_split:
            sizes = self.sizes.after(tokens, predicted_s=predicted_s, measured_s=measured_s)
        else:
            sizes = self.sizes.passed(measured_s)
        if has_decode:
            margin = margin.after(
                predicted_s=expected_s, measured_s=measured_s, attainment_ratio=attainment_ratio
            )
        if not follows_split:
            ratio = blended(ratio, within(measured_s / predicted_s), LAST_50)
        return FusedEstimate(ratio=ratio, sizes=sizes, margin=margin)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEstimates:
    """What was learned of the device that serves, beside its profile."""

    guard: ContentionGuard
    """How much decode suffers from prefill in a split, at worst."""
    split_ratio: float = SPLIT_RATIO
    """Typical over predicted seconds of decode steps beside layers."""
    fused: FusedEstimate = field(default_factory=FusedEstimate)
    prefill_ratio: float = 1.0
    """Typical over predicted seconds of prefills by layers. It follows what fused steps take, the less the
    more of its own were seen: a device that is slower than its profile is so for both, and what was not tried
    must not look better for it."""
    prefills: int = 0
    """Seen by layers, counted as far as it matters."""
    breaker: MispredictionBreaker = field(default_factory=MispredictionBreaker)

    def after(self, feedback: Feedback, decode_sms: int, *, uses_guard: bool) -> StepEstimates:
        """The value after a step, with decode on so many SMs. Each step that took far longer than was
        foreseen of it costs trust."""
        if feedback.predicted_s <= 0.0:
            return self
        if feedback.mode is Mode.FUSED:
            after, foreseen_s = self._after_fused(feedback)
        else:
            after, foreseen_s = self._after_split(feedback, decode_sms if uses_guard else None)
        breaker = self.breaker.after(predicted_s=foreseen_s, measured_s=feedback.measured_s)
        return after if breaker is self.breaker else replace(after, breaker=breaker)

    def after_prefill(self, feedback: PrefillFeedback, colocated_ratio: float) -> StepEstimates:
        """The value after a prefill by layers; `colocated_ratio` is what the profile says of one that did not
        run alone."""
        predicted_s = (feedback.predicted_s or 0.0) * (1.0 if feedback.was_alone else colocated_ratio)
        if predicted_s <= 0.0:
            return self
        weight = weight_after(self.prefills + 1)  # what was assumed counts as one
        ratio = blended(self.prefill_ratio, within(feedback.measured_s / predicted_s), weight)
        return replace(self, prefill_ratio=ratio, prefills=self.prefills + (weight > LAST_20))

    def _after_fused(self, feedback: Feedback) -> tuple[StepEstimates, float]:
        """The value after a fused step, and the seconds that were foreseen: those of a slow host are."""
        before, tokens = self.fused, feedback.prefill.new_tokens + feedback.decode.bs
        foreseen_s = max(before.expected_s(feedback.predicted_s, tokens), before.margin.floor_s)
        fused = before.after(
            tokens,
            predicted_s=feedback.predicted_s,
            measured_s=feedback.measured_s,
            attainment_ratio=feedback.attainment_ratio,
            follows_split=feedback.follows_split,
            has_decode=feedback.decode.bs > 0,
        )
        if feedback.follows_split:
            return replace(self, fused=fused), foreseen_s
        follows = (fused.ratio / before.ratio) ** (1.0 / (1 + self.prefills))
        prefill_ratio = within(self.prefill_ratio * follows)
        guard = self.guard.on_device(fused.ratio)
        return replace(self, fused=fused, prefill_ratio=prefill_ratio, guard=guard), foreseen_s

    def _after_split(self, feedback: Feedback, decode_sms: int | None) -> tuple[StepEstimates, float]:
        """The value after a decode step in a split, and the seconds that were foreseen: those of the guard
        are. A violation raises the guard (MuxWise 3.3.2), unless the step stalled. `decode_sms`: None where
        no guard is used."""
        predicted_s, measured_s, fused = feedback.predicted_s, feedback.measured_s, self.fused
        guard, split_ratio, sizes, instead_s = self.guard, self.split_ratio, fused.sizes, 0.0
        if feedback.prefill.new_tokens:
            split_ratio = blended(split_ratio, within(measured_s / predicted_s), LAST_50)
            sizes, instead_s = sizes.passed(measured_s), measured_s
        margin = fused.margin.without_a_step(instead_s=instead_s)
        foreseen_s = predicted_s
        if decode_sms is not None:
            pair = decode_sms, feedback.prefill, feedback.decode
            bound_s, is_known = predicted_s * guard.ratio(*pair), guard.is_known(*pair)
            foreseen_s = max(predicted_s, bound_s / WRONG_RATIO)
            most_s = bound_s * (1.0 + (GUARD_RISE if is_known else ASSUMED_RISE))
            if measured_s > most_s and is_known:
                margin = margin.stalled(measured_s - bound_s)
            guard = guard.learned_for_all(guard_cell(*pair), min(measured_s, most_s) / predicted_s)
        fused = replace(fused, sizes=sizes, margin=margin)
        return replace(self, guard=guard, split_ratio=split_ratio, fused=fused), foreseen_s
