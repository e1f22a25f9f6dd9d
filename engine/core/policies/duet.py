"""`duet[:N]`: one fused batch on all SMs while it is predicted to meet the TBT target; else the split of
highest predicted token throughput, with k decode steps launched ahead of one chunk of prefill.

Source: DuetServe section 4, algorithm 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pdmuxd.engine.core.partitions import Partition, PartitionTable, SmRules
from pdmuxd.engine.core.policies.base import Plan, PlanKind, PolicyContext, Stateless
from pdmuxd.engine.core.policies.chunked import predicted_step
from pdmuxd.engine.core.policies.fusedsteps import (
    LARGE_CHUNK_TOKENS,
    chunk_lengths,
    decode_alone,
)
from pdmuxd.engine.core.policies.layerwise import layers_for
from pdmuxd.engine.core.queueing import form_prefill_batch
from pdmuxd.engine.core.types import (
    Alternative,
    Decision,
    DecisionNumbers,
    Mode,
    Observation,
    PrefillMode,
    PrefillShape,
    PrefillView,
    Reason,
    WaitingRequest,
)

DEFAULT_TOKEN_BUDGET = LARGE_CHUNK_TOKENS


def every_legal_split(rules: SmRules) -> PartitionTable:
    """All splits that the device can make: DuetServe searches at its finest granularity."""
    pairs = sorted(rules.legal_pairs(), key=lambda pair: pair[1])
    return PartitionTable(rules=rules, splits=tuple(Partition(prefill_sms=p, decode_sms=d) for p, d in pairs))


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A split with its look-ahead and its predicted throughput in tokens per second."""

    partition_id: int
    decode_steps: int
    decode_s: float
    prefill_s: float
    tokens_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DuetPolicy(Stateless):
    """Aggregate unless at risk."""

    name: str
    context: PolicyContext
    table: PartitionTable
    token_budget: int
    look_ahead: bool

    @classmethod
    def build(
        cls, name: str, context: PolicyContext, token_budget: int, *, look_ahead: bool = True
    ) -> DuetPolicy:
        """Groups at every size that the device can make."""
        table = every_legal_split(context.rules)
        return cls(name=name, context=context, table=table, token_budget=token_budget, look_ahead=look_ahead)

    def decide(self, obs: Observation, state: None) -> tuple[Decision, None]:
        """Algorithm 1."""
        return self._decide(obs), state

    def plans(self, obs: Observation, state: None) -> tuple[Plan, ...]:  # noqa: ARG002 - the interface
        """The fused step, and the splits that meet the target; none while a prefill runs layer by layer."""
        if obs.prefill is not None and obs.prefill.mode is PrefillMode.LAYERWISE:
            return ()
        fused = predicted_step(obs, self.context, self.table, self.token_budget, Reason.FUSED_FITS)
        if not fused or obs.tbt_target_s is None:
            return fused
        chunk = self._chunk(obs, form_prefill_batch(obs))
        splits = tuple(self._candidates(obs, chunk, obs.tbt_target_s))
        if not splits:
            return (*fused, self._plan(self._widest(obs), meets=False))
        return (*fused, *(self._plan(each, meets=True) for each in splits))

    def _plan(self, split: Candidate, *, meets: bool) -> Plan:
        return Plan(
            kind=PlanKind.SPLIT,
            partition_id=split.partition_id,
            reason=Reason.HIGHEST_THROUGHPUT if meets else Reason.TBT_INFEASIBLE,
            meets=meets,
            worst_gap_s=split.decode_s,
            finish_s=split.prefill_s,
            decode_steps=split.decode_steps,
            numbers=DecisionNumbers(predicted_decode_s=split.decode_s, predicted_prefill_s=split.prefill_s),
        )

    def _chunk(self, obs: Observation, batch: tuple[WaitingRequest, ...]) -> PrefillShape:
        return PrefillShape.of(chunk_lengths(obs.prefill, batch, self.token_budget - obs.decode.bs))

    def _decide(self, obs: Observation) -> Decision:
        running = obs.prefill
        if running is not None and running.mode is PrefillMode.LAYERWISE:
            return Decision(
                mode=Mode.SPLIT,
                partition_id=obs.partition_id,
                decode_steps=1 if obs.decode.bs else 0,
                prefill_layers=self._layers(obs, running),
                reason=Reason.WAIT_FOR_PREFILL,
            )
        batch = form_prefill_batch(obs)
        chunk = self._chunk(obs, batch)
        admit = tuple(request.request_id for request in batch)
        if not chunk.new_tokens:
            return decode_alone(obs, self.table)
        total_sms = self.table.rules.total_sms
        fused_s = self.context.latency.fused_s(chunk, obs.decode, total_sms)
        target_s = obs.tbt_target_s
        if target_s is None or fused_s <= target_s:
            numbers = DecisionNumbers(
                predicted_fused_s=fused_s,
                tbt_target_s=target_s,
                tbt_slack_s=None if target_s is None else target_s - fused_s,
            )
            return Decision(
                mode=Mode.FUSED,
                partition_id=self.table.decode_only,
                reason=Reason.FUSED_FITS,
                decode_steps=1 if obs.decode.bs else 0,
                token_budget=self.token_budget,
                admit=admit,
                numbers=numbers,
            )
        return self._split(obs, chunk, admit, fused_s, target_s)

    def _layers(self, obs: Observation, running: PrefillView) -> int:
        """Layers for an engine that cannot run a chunk on a partition and prefills the batch whole, layer by
        layer: as many layers as a decode step covers, less those in flight."""
        layers, split = self.context.layers, self.table.groups[obs.partition_id]
        left = layers - running.layers_launched
        if not (obs.decode.bs and split.prefill_sms and split.decode_sms):
            return left
        decode_s = self.context.latency.decode_s(obs.decode, split.decode_sms)
        prefill_s = self.context.latency.prefill_s(running.shape, split.prefill_sms)
        return min(left, max(0, layers_for(decode_s, prefill_s, layers) - running.layers_in_flight))

    def _split(
        self, obs: Observation, chunk: PrefillShape, admit: tuple[str, ...], fused_s: float, target_s: float
    ) -> Decision:
        best = max(self._candidates(obs, chunk, target_s), key=lambda c: c.tokens_per_s, default=None)
        reason = Reason.HIGHEST_THROUGHPUT
        if best is None:
            best, reason = self._widest(obs), Reason.TBT_INFEASIBLE
        numbers = DecisionNumbers(
            predicted_decode_s=best.decode_s,
            predicted_prefill_s=best.prefill_s,
            predicted_fused_s=fused_s,
            tbt_target_s=target_s,
            tbt_slack_s=target_s - best.decode_s,
        )
        return Decision(
            mode=Mode.SPLIT,
            partition_id=best.partition_id,
            reason=reason,
            decode_steps=best.decode_steps,
            token_budget=chunk.new_tokens,
            admit=admit,
            numbers=numbers,
            rejected=(Alternative(label="fused", predicted_s=fused_s),),
        )

    def _widest(self, obs: Observation) -> Candidate:
        """The most decode SMs, for when no split meets the target."""
        widest = self.table.split_indices[-1]
        decode_s = self.context.latency.decode_s(obs.decode, self.table.groups[widest].decode_sms)
        return Candidate(
            partition_id=widest, decode_steps=1, decode_s=decode_s, prefill_s=0.0, tokens_per_s=0.0
        )

    def _candidates(self, obs: Observation, chunk: PrefillShape, target_s: float) -> Iterator[Candidate]:
        """Lines 8 to 21: every (S_p, S_d, k) that meets the target."""
        latency = self.context.latency
        for partition_id in self.table.split_indices:
            split = self.table.groups[partition_id]
            decode_s = latency.decode_s(obs.decode, split.decode_sms)
            if decode_s > target_s:
                continue
            prefill_s = latency.prefill_s(chunk, split.prefill_sms)
            fits = int(prefill_s / decode_s)
            for steps in (fits, fits + 1) if self.look_ahead else (1,):
                if steps < 1:
                    continue
                span_s = max(steps * decode_s, prefill_s)
                tokens_per_s = (steps * obs.decode.bs + chunk.new_tokens) / span_s
                yield Candidate(
                    partition_id=partition_id,
                    decode_steps=steps,
                    decode_s=decode_s,
                    prefill_s=prefill_s,
                    tokens_per_s=tokens_per_s,
                )
