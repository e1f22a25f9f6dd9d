"""`upstream`: the rule of SGLang's own `--enable-pdmux`, as a baseline.

Source: SGLang 0.5.23, `multiplex/multiplexing_mixin.py` and `pdmux_context.py`, with their defaults: six
splits, chosen by decode batch size alone when a prefill starts, and a budget of 65,536 token-layers per
step whether or not anything decodes.
"""

from __future__ import annotations

from dataclasses import dataclass

from pdmuxd.engine.core.partitions import Partition, PartitionTable, SmRules
from pdmuxd.engine.core.policies.base import Plan, PlanKind, PolicyContext, Stateless
from pdmuxd.engine.core.policies.layerwise import SplitPlans, Work, next_work, split_decision, without_prefill
from pdmuxd.engine.core.types import Decision, DecisionNumbers, Observation, Reason

TOKEN_LAYERS_PER_STEP = 65536
DECODE_BS_DIVISOR = 36
SPLITS = 6
MIN_DECODE_SMS = 16


def upstream_table(rules: SmRules) -> PartitionTable:
    """Upstream's `divide_sm`: decode gets at least 16 SMs and never more than prefill."""
    total = rules.total_sms
    sizes = [
        p
        for p in range(rules.min_sms, total - rules.min_sms + 1, rules.multiple_sms)
        if p >= total - p and total - p >= MIN_DECODE_SMS
    ]
    if len(sizes) >= SPLITS:
        sizes = sizes[:: max(1, len(sizes) // SPLITS)][:SPLITS]
    return PartitionTable(
        rules=rules,
        splits=tuple(Partition(prefill_sms=p, decode_sms=total - p) for p in reversed(sizes)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamPolicy(Stateless):
    """No target, no predictor: the decode batch size picks the group."""

    name: str
    context: PolicyContext
    table: PartitionTable

    @classmethod
    def build(cls, context: PolicyContext) -> UpstreamPolicy:
        """Raises: PartitionError if the device is too small for the rule."""
        return cls(name="upstream", context=context, table=upstream_table(context.rules))

    def decide(self, obs: Observation, state: None) -> tuple[Decision, None]:
        """A group is picked when a prefill starts and kept until it merges or decode empties."""
        work = next_work(obs, self.context.layers)
        if work is None:
            return without_prefill(obs, self.table), state
        return split_decision(obs, work, self._plan(obs, work)), state

    def plans(self, obs: Observation, state: None) -> tuple[Plan, ...]:  # noqa: ARG002 - the interface
        """The one plan that the rule names. The rule predicts nothing; the predictions are added for
        comparison."""
        work = next_work(obs, self.context.layers)
        if work is None:
            return ()
        plan = self._plan(obs, work)
        predicted = SplitPlans(context=self.context, table=self.table).every(obs, work, self.context.guard)
        return tuple(
            each._replace(reason=plan.reason, prefill_layers=plan.prefill_layers)
            for each in predicted
            if each.partition_id == plan.partition_id
        )

    def _plan(self, obs: Observation, work: Work) -> Plan:
        layers = max(1, TOKEN_LAYERS_PER_STEP // max(1, work.shape.new_tokens))
        if not obs.decode.bs:
            return Plan(
                kind=PlanKind.SPLIT,
                partition_id=self.table.PREFILL_ONLY,
                reason=Reason.PREFILL_ALONE,
                prefill_layers=layers,
            )
        splits, partition_id = len(self.table.splits), obs.partition_id
        if work.is_new or partition_id not in self.table.split_indices:
            partition_id = max(1, min(splits, obs.decode.bs * splits // DECODE_BS_DIVISOR))
        return Plan(
            kind=PlanKind.SPLIT,
            partition_id=partition_id,
            reason=Reason.DECODE_BS_RULE,
            decode_steps=1,
            prefill_layers=layers,
            numbers=DecisionNumbers(tbt_target_s=obs.tbt_target_s),
        )
