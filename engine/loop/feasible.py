"""Decisions that no engine carries out as they are, and what is done in their place."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from itertools import takewhile

from pdmuxd.engine.core.partitions import PartitionTable
from pdmuxd.engine.core.policies.fusedsteps import FIXED_STEP_TOKENS, LARGE_CHUNK_TOKENS
from pdmuxd.engine.core.types import (
    Decision,
    DecisionNumbers,
    Mode,
    Observation,
    PrefillMode,
    PrefillView,
    Reason,
)


def feasible(decision: Decision, obs: Observation, table: PartitionTable, layers: int) -> Decision:
    """What an engine does: nothing that memory does not hold, no chunk beside decode, and nothing beside
    prompts that are prefilled whole."""
    whole = {r.request_id: r.new_tokens for r in obs.waiting if r.is_whole} if decision.admit else {}
    if whole:
        decision = _of_one_kind(decision, whole)
        if decision.admit[0] in whole:
            if decision.mode is not Mode.FUSED:
                return _without_a_chunk_beside(decision, obs, table, layers)
            if _chunked(obs) is None or decision.preempt:
                return _by_themselves(decision, obs, sum([whole[name] for name in decision.admit]))
            decision = replace(decision, admit=(), chunk_last=False)
    return _without_a_chunk_beside(_within_memory(decision, obs, table), obs, table, layers)


def _of_one_kind(decision: Decision, whole: Collection[str]) -> Decision:
    """Only the first of those that are admitted that are prefilled whole, or only the first that are not.
    SGLang's Gemma 3 ends the engine where a batch has prompts with images and without."""
    is_whole = decision.admit[0] in whole
    return replace(decision, admit=tuple(takewhile(lambda name: (name in whole) is is_whole, decision.admit)))


def _by_themselves(decision: Decision, obs: Observation, tokens: int) -> Decision:
    """Prefill them in place of a fused step: decode waits, and so does a prompt in chunks. Nothing is
    predicted, since nobody knows what the encoder of images takes."""
    return replace(
        decision,
        reason=Reason.IMAGES_WHOLE,
        decode_steps=0,
        token_budget=tokens,
        chunk_last=True,
        sits_out=(),
        prefill_graph=None,
        numbers=DecisionNumbers(tbt_target_s=obs.tbt_target_s),
        rejected=(),
    )


def admitted_tokens(decision: Decision, obs: Observation) -> int:
    """New tokens of the requests that it admits, as far as they are known before."""
    return sum(request.new_tokens for request in obs.waiting if request.request_id in decision.admit)


def _within_memory(decision: Decision, obs: Observation, table: PartitionTable) -> Decision:
    """A prompt whose activations memory does not hold at once is prefilled in chunks, one per fused step,
    whatever the policy knows of that: `auto` does, the others would run it whole."""
    limits, bs, chunked = obs.limits, obs.decode.bs, _chunked(obs)
    if limits.max_whole_tokens is None:
        return decision
    most = limits.max_whole_tokens + bs
    if decision.mode is Mode.FUSED and decision.token_budget:
        return decision if decision.token_budget <= most else replace(decision, token_budget=most)
    begun = chunked is not None and not limits.holds(chunked.shape.new_tokens)
    if not begun and (not decision.admit or limits.holds(admitted_tokens(decision, obs))):
        return decision
    return Decision(
        mode=Mode.FUSED,
        partition_id=table.decode_only,
        reason=Reason.TOO_LONG_FOR_MEMORY,
        decode_steps=min(1, bs),
        token_budget=min(max(FIXED_STEP_TOKENS, 2 * bs) if bs else LARGE_CHUNK_TOKENS, most),
        admit=() if begun else decision.admit,
        deprioritize=decision.deprioritize,
        numbers=DecisionNumbers(tbt_target_s=obs.tbt_target_s),
    )


def _without_a_chunk_beside(
    decision: Decision, obs: Observation, table: PartitionTable, layers: int
) -> Decision:
    """A chunk of prompt tokens beside decode: chunks run in fused steps only (decision 0006).

    A batch at its start is prefilled whole on the partition, its layers spread over the decode steps that
    the chunk was to take. A prompt whose chunks have begun cannot be divided by layers any more: its next
    chunk is fused, though the policy would rather have had it aside.
    """
    if decision.mode is not Mode.SPLIT or not decision.token_budget:
        return decision
    steps = min(1, decision.decode_steps)
    if _chunked(obs) is not None:
        return replace(
            decision,
            mode=Mode.FUSED,
            partition_id=table.decode_only,
            decode_steps=steps,
            token_budget=decision.token_budget + obs.decode.bs,
        )
    share = layers if decision.prefill_graph is not None else -(-layers // max(1, decision.decode_steps))
    return replace(decision, decode_steps=steps, prefill_layers=share, token_budget=0)


def nothing_begun(decision: Decision, obs: Observation) -> Decision:
    """While another policy waits for the prefills under way: who overtakes them, which their deadlines bound,
    and prompts that the step in which the chunks end holds whole. What would be under way after them does
    not begin, or the other policy would never come in force under load."""
    if not decision.admit or decision.preempt or (obs.set_aside and not decision.mode.is_one_batch):
        return decision
    running, admit = _chunked(obs), []
    if running is not None and decision.mode.is_one_batch:
        left = decision.token_budget - obs.decode.bs - (running.shape.new_tokens - running.done_tokens)
        lengths = {request.request_id: request.new_tokens for request in obs.waiting}
        for request_id in decision.admit:
            left -= lengths[request_id]
            if left < 0:
                break
            admit.append(request_id)
    return replace(decision, admit=tuple(admit))


def _chunked(obs: Observation) -> PrefillView | None:
    """The prompt whose chunks have begun."""
    return obs.prefill if obs.prefill is not None and obs.prefill.mode is PrefillMode.CHUNKED else None
