"""`prefill-first[:N]`: stock SGLang. Whatever waits is prefilled first, in chunks of N; decode runs between.

Source: SGLang 0.5.23's default scheduler, `--chunked-prefill-size` 8192 on an H200, overlap scheduling on.
"""

from __future__ import annotations

from dataclasses import dataclass

from pdmuxd.engine.core.partitions import PartitionTable
from pdmuxd.engine.core.policies.base import Plan, PolicyContext, Stateless
from pdmuxd.engine.core.policies.chunked import predicted_step
from pdmuxd.engine.core.policies.fusedsteps import LARGE_CHUNK_TOKENS, decode_alone
from pdmuxd.engine.core.queueing import form_prefill_batch
from pdmuxd.engine.core.types import Decision, Mode, Observation, Reason

DEFAULT_CHUNK_TOKENS = LARGE_CHUNK_TOKENS


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillFirstPolicy(Stateless):
    """Decode waits as long as anything can be prefilled."""

    name: str
    context: PolicyContext
    table: PartitionTable
    chunk_tokens: int

    @classmethod
    def build(cls, name: str, context: PolicyContext, chunk_tokens: int) -> PrefillFirstPolicy:
        """The table needs no splits."""
        table = PartitionTable(rules=context.rules, splits=())
        return cls(name=name, context=context, table=table, chunk_tokens=chunk_tokens)

    def decide(self, obs: Observation, state: None) -> tuple[Decision, None]:
        """A chunk of prefill if there is any, else a decode step, each on all SMs."""
        batch = form_prefill_batch(obs)
        if obs.prefill is None and not batch:
            return decode_alone(obs, self.table), state
        decision = Decision(
            mode=Mode.FUSED,
            partition_id=self.table.decode_only,
            reason=Reason.PREFILL_FIRST,
            token_budget=self.chunk_tokens,
            admit=tuple(request.request_id for request in batch),
        )
        return decision, state

    def plans(self, obs: Observation, state: None) -> tuple[Plan, ...]:  # noqa: ARG002 - the interface
        """The one chunk, with what is predicted of it and the decode step that waits for it."""
        budget = self.chunk_tokens + obs.decode.bs
        return predicted_step(obs, self.context, self.table, budget, Reason.PREFILL_FIRST)
