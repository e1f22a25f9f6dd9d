"""`chunked:N`: one fused batch on all SMs, decode tokens first, prefill chunks up to N tokens in all.

Source: Sarathi-Serve's token budget, as MuxWise 2.3.2 and DuetServe 3.1 describe it; SGLang's
`--chunked-prefill-size N --enable-mixed-chunk` counts decode tokens against the same budget.
"""

from __future__ import annotations

from dataclasses import dataclass

from pdmuxd.engine.core.partitions import PartitionTable
from pdmuxd.engine.core.policies.base import Plan, PolicyContext, Stateless
from pdmuxd.engine.core.policies.fusedsteps import FusedSteps, chunk_lengths, decode_alone
from pdmuxd.engine.core.queueing import form_prefill_batch
from pdmuxd.engine.core.types import Decision, DecisionNumbers, Mode, Observation, PrefillShape, Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkedPolicy(Stateless):
    """A fixed token budget per step, whatever the TBT target."""

    name: str
    context: PolicyContext
    table: PartitionTable
    token_budget: int

    @classmethod
    def build(cls, context: PolicyContext, token_budget: int) -> ChunkedPolicy:
        """The table needs no splits."""
        table = PartitionTable(rules=context.rules, splits=())
        return cls(name=f"chunked:{token_budget}", context=context, table=table, token_budget=token_budget)

    def decide(self, obs: Observation, state: None) -> tuple[Decision, None]:
        """Fuse whatever is there; the chunk in progress comes before new requests."""
        batch = form_prefill_batch(obs)
        if obs.prefill is None and not batch:
            return decode_alone(obs, self.table), state
        decision = Decision(
            mode=Mode.FUSED,
            partition_id=self.table.decode_only,
            reason=Reason.TOKEN_BUDGET,
            decode_steps=1 if obs.decode.bs else 0,
            token_budget=self.token_budget,
            admit=tuple(r.request_id for r in batch),
            numbers=DecisionNumbers(tbt_target_s=obs.tbt_target_s),
        )
        return decision, state

    def plans(self, obs: Observation, state: None) -> tuple[Plan, ...]:  # noqa: ARG002 - the interface
        """The one step, with what is predicted of it: the budget follows no prediction."""
        return predicted_step(obs, self.context, self.table, self.token_budget, Reason.TOKEN_BUDGET)


def predicted_step(
    obs: Observation, context: PolicyContext, table: PartitionTable, token_budget: int, reason: Reason
) -> tuple[Plan, ...]:
    """What a step of a fixed token budget, decoding requests included, is predicted to take; empty without a
    prefill."""
    batch = form_prefill_batch(obs)
    chunk = PrefillShape.of(chunk_lengths(obs.prefill, batch, token_budget - obs.decode.bs))
    if not chunk.new_tokens:
        return ()
    fused, target_s = FusedSteps(context=context, table=table), obs.tbt_target_s
    step_s = context.latency.fused_s(chunk, obs.decode, table.rules.total_sms)
    meets = target_s is None or step_s <= target_s
    bound_s = step_s if obs.decode.bs else None
    return (
        fused.plan(obs, chunk.new_tokens, step_s, meets=meets)._replace(reason=reason, worst_gap_s=bound_s),
    )
