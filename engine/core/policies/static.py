"""`static:P,D`: one fixed split whenever decode and prefill are both there."""

from __future__ import annotations

from dataclasses import dataclass

from pdmuxd.engine.core.partitions import Partition, PartitionTable
from pdmuxd.engine.core.policies.base import Plan, PlanKind, PolicyContext, Stateless
from pdmuxd.engine.core.policies.layerwise import (
    Work,
    layers_for,
    next_work,
    prefill_alone,
    split_decision,
    without_prefill,
)
from pdmuxd.engine.core.types import Decision, DecisionNumbers, Observation, Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticPolicy(Stateless):
    """A fixed (prefill_sms, decode_sms) pair; layers per step as MuxWise sizes them."""

    name: str
    context: PolicyContext
    table: PartitionTable

    @classmethod
    def build(cls, context: PolicyContext, prefill_sms: int, decode_sms: int) -> StaticPolicy:
        """Raises: PartitionError if the device cannot make the split."""
        split = Partition(prefill_sms=prefill_sms, decode_sms=decode_sms)
        table = PartitionTable(rules=context.rules, splits=(split,))
        return cls(name=f"static:{prefill_sms},{decode_sms}", context=context, table=table)

    def decide(self, obs: Observation, state: None) -> tuple[Decision, None]:
        """The one split if both phases have work, all SMs for the one that has."""
        work = next_work(obs, self.context.layers)
        if work is None:
            return without_prefill(obs, self.table), state
        return split_decision(obs, work, self._plan(obs, work)), state

    def plans(self, obs: Observation, state: None) -> tuple[Plan, ...]:  # noqa: ARG002 - the interface
        """The one there is."""
        work = next_work(obs, self.context.layers)
        return (self._plan(obs, work),) if work is not None else ()

    def _plan(self, obs: Observation, work: Work) -> Plan:
        if not obs.decode.bs:
            return prefill_alone(self.context, self.table, work)
        latency, layers, split = self.context.latency, self.context.layers, self.table.splits[0]
        decode_s = latency.decode_s(obs.decode, split.decode_sms)
        prefill_s = latency.prefill_s(work.shape, split.prefill_sms)
        worst_s = decode_s * self.context.guard.ratio(split.decode_sms, work.shape, obs.decode)
        target_s = obs.tbt_target_s
        return Plan(
            kind=PlanKind.SPLIT,
            partition_id=1,
            reason=Reason.FIXED_SPLIT,
            meets=target_s is None or worst_s <= target_s,
            worst_gap_s=worst_s,
            decode_steps=1,
            prefill_layers=max(0, layers_for(worst_s, prefill_s, layers) - work.layers_in_flight),
            numbers=DecisionNumbers(
                predicted_decode_s=decode_s, predicted_prefill_s=prefill_s, tbt_target_s=target_s
            ),
        )
