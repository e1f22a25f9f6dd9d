"""Decisions that SGLang cannot carry out as they are, and what is done in their place."""

from __future__ import annotations

from dataclasses import replace

from pdmuxd.engine.core.partitions import PartitionTable
from pdmuxd.engine.core.types import Decision, Mode, Observation, PrefillMode


def feasible(decision: Decision, obs: Observation, layers: int) -> Decision:
    """A chunk of prompt tokens beside decode: SGLang runs chunks in fused steps only.

    A batch at its start is prefilled whole on the partition, its layers spread over the decode steps that
    the chunk was to take. A prompt whose chunks have begun cannot be divided by layers any more: its next
    chunk is fused, though the policy would rather have had it aside.
    """
    if decision.mode is not Mode.SPLIT or not decision.token_budget:
        return decision
    steps = min(1, decision.decode_steps)
    if obs.prefill is not None and obs.prefill.mode is PrefillMode.CHUNKED:
        return replace(
            decision,
            mode=Mode.FUSED,
            group=PartitionTable.PREFILL_ONLY,
            decode_steps=steps,
            token_budget=decision.token_budget + obs.decode.bs,
        )
    share = -(-layers // max(1, decision.decode_steps))
    return replace(decision, decode_steps=steps, prefill_layers=share, token_budget=0)
