"""Fused steps: decode by itself as all policies on one stream run it; and, as `auto` decides them, how many
prompt tokens go with a decode batch, and what that takes.

Sources: DuetServe section 4.2 (a token budget that the TBT target leaves), Sarathi-Serve's fixed chunk for
while predictions cannot be trusted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from pdmuxd.engine.core.batch_size_correction import BatchSizeCorrection
from pdmuxd.engine.core.batching import form_prefill_batch
from pdmuxd.engine.core.fusing import chunk_lengths, fused_budget, fused_total_s
from pdmuxd.engine.core.latency_margin import HOST_RATIO, LatencyMargin
from pdmuxd.engine.core.partitions import PartitionTable
from pdmuxd.engine.core.policies.base import PolicyContext
from pdmuxd.engine.core.types import (
    Alternative,
    Decision,
    DecisionNumbers,
    Feedback,
    Mode,
    Observation,
    PrefillShape,
    Reason,
    WaitingRequest,
)

FIXED_BUDGET = 512
"""Tokens of a fused step while predictions cannot be trusted: the fixed chunk that did best on chat (H200,
Llama-8B and CodeLlama-34B, SGLang 0.5.23)."""


def decode_alone(obs: Observation, table: PartitionTable) -> Decision:
    """Decode by itself runs as stock SGLang does, its host work overlapped; idle if nothing decodes."""
    if not obs.decode.bs:
        return Decision(mode=Mode.IDLE, partition_id=obs.partition_id, reason=Reason.NOTHING_TO_DO)
    return Decision(
        mode=Mode.FUSED, partition_id=table.decode_only, decode_steps=1, reason=Reason.DECODE_ALONE
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedSteps:
    """On all SMs of the table."""

    context: PolicyContext
    table: PartitionTable

    def budget(
        self,
        obs: Observation,
        latency_margin: LatencyMargin,
        size_correction: BatchSizeCorrection,
        batch: tuple[WaitingRequest, ...],
        *,
        must: bool,
    ) -> tuple[int, float]:
        """A step's token budget and predicted seconds; what few steps exceed still meets the target."""
        return fused_budget(
            obs,
            batch,
            self.context.latency,
            self.table.rules.total_sms,
            target_s=self.context.planned_tbt_s(obs.tbt_target_s),
            latency_margin=latency_margin,
            size_correction=size_correction,
            must=must,
        )

    def total_s(
        self, obs: Observation, size_correction: BatchSizeCorrection, shape: PrefillShape, budget: int
    ) -> float:
        """What a whole batch typically takes in steps of this budget."""
        latency, sms = self.context.latency, self.table.rules.total_sms
        return fused_total_s(obs, shape, budget, latency, sms, size_correction=size_correction)

    def learn(
        self, feedback: Feedback, latency_margin: LatencyMargin, size_correction: BatchSizeCorrection
    ) -> tuple[float, LatencyMargin, BatchSizeCorrection]:
        """After a fused step: the seconds that were to be expected, and what is known of fused steps now.

        A step that waited for the host tells nothing of its size, and one with nobody to wait for its tokens
        nothing of what few steps exceed.
        """
        predicted_s, measured_s = feedback.predicted_s, feedback.measured_s
        floor_s = latency_margin.floor_s
        tokens = feedback.prefill.new_tokens + feedback.decode.bs
        expected_s = predicted_s * size_correction.ratio(tokens)
        if measured_s <= HOST_RATIO * expected_s:
            size_correction = size_correction.after(tokens, predicted_s=predicted_s, measured_s=measured_s)
        if feedback.decode.bs:
            latency_margin = latency_margin.after(predicted_s=expected_s, measured_s=measured_s)
        return max(expected_s, floor_s), latency_margin, size_correction

    def step_s(self, obs: Observation, budget: int, batch: Iterable[WaitingRequest]) -> float:
        """Predicted for a step of the chunk in progress and these requests, within a budget."""
        chunk = PrefillShape.of(chunk_lengths(obs.prefill, batch, budget))
        return self.context.latency.fused_s(chunk, obs.decode, self.table.rules.total_sms)

    def step(
        self,
        obs: Observation,
        budget: int,
        step_s: float,
        batch: tuple[WaitingRequest, ...],
        *,
        rejected: tuple[Alternative, ...] = (),
    ) -> Decision:
        """Decode and `budget` tokens of the chunk in progress and of these requests."""
        target_s = obs.tbt_target_s
        return Decision(
            mode=Mode.FUSED,
            partition_id=self.table.PREFILL_ONLY,
            reason=Reason.FUSED_FITS,
            decode_steps=1 if obs.decode.bs else 0,
            token_budget=budget + obs.decode.bs,
            admit=tuple(request.request_id for request in batch),
            numbers=DecisionNumbers(
                predicted_fused_s=step_s,
                tbt_target_s=target_s,
                tbt_slack_s=None if target_s is None else target_s - step_s,
            ),
            rejected=rejected,
        )

    def fixed(self, obs: Observation) -> Decision:
        """While predictions prove wrong: the best fixed plan, in order of arrival."""
        batch = form_prefill_batch(obs)
        if obs.prefill is None and not batch:
            return decode_alone(obs, self.table)
        budget = FIXED_BUDGET - obs.decode.bs
        decision = self.step(obs, budget, self.step_s(obs, budget, batch), batch)
        return replace(decision, reason=Reason.PREDICTIONS_WRONG)
