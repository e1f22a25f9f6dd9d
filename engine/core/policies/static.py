"""`static:P,D`: one fixed split whenever decode and prefill are both there."""

from __future__ import annotations

from dataclasses import dataclass

from pdmuxd.engine.core.partitions import Partition, PartitionTable
from pdmuxd.engine.core.policies.base import PolicyContext, Stateless
from pdmuxd.engine.core.policies.layerwise import (
    ALONE_SLICE_S,
    Plan,
    Work,
    decide_split,
    layers_for,
    next_work,
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
        latency, layers = self.context.latency, self.context.layers
        split = self.table.splits[0]

        def plan(work: Work) -> Plan:
            decode_s = latency.decode_s(obs.decode, split.decode_sms)
            prefill_s = latency.prefill_s(work.shape, split.prefill_sms)
            worst_s = decode_s * self.context.guard.ratio(split.decode_sms, work.shape, obs.decode)
            count = layers_for(worst_s, prefill_s, layers) - work.layers_in_flight
            numbers = DecisionNumbers(
                predicted_decode_s=decode_s, predicted_prefill_s=prefill_s, tbt_target_s=obs.tbt_target_s
            )
            return Plan(partition_id=1, layers=max(0, count), reason=Reason.FIXED_SPLIT, numbers=numbers)

        def alone(work: Work) -> int:
            prefill_s = latency.prefill_s(work.shape, self.table.rules.total_sms)
            return max(0, layers_for(ALONE_SLICE_S, prefill_s, layers) - work.layers_in_flight)

        work = next_work(obs, layers)
        return decide_split(obs, self.table, work, plan=plan, alone_layers=alone), state
