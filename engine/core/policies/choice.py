"""Fused steps or a split for the next prefill batch: the one place of `auto` that decides it.

Where nobody waits behind the batch, whichever is predicted to finish it sooner. Where others wait, they are
to be served as well, and what counts is when the next batch can begin:

- A split that goes on needs no wait: the next batch is launched behind the last. A batch ends with a decode
  step, so that it takes one at least. With its requests decoding, it may need another split; what is in
  flight has to end before that (invariant 2), and the prefill's SMs idle for a step.
- To leave a split for fused steps costs the same step: they have all SMs. It is paid once, and shared by the
  batches like this one that wait. Charged to each in full it kept small batches in splits, one after the
  other, whose layers take as long to launch as those of large ones.
- Each request also holds a decode slot, for as many steps as its answer has tokens. Where that takes longer
  than the prefill, it is what the next batch waits for.

Decode that is faster than its tokens are asked for gains nothing else that lasts: it empties its batch, and
small batches read the weights more often (docs/decisions/0040-the-slower-of-prefill-and-slots.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pdmuxd.engine.core.partitions import PartitionTable
from pdmuxd.engine.core.policies.base import Plan, PlanKind, PolicyContext
from pdmuxd.engine.core.policies.slots import SlotUse
from pdmuxd.engine.core.types import Alternative, DecodeShape, Observation, PrefillShape, WaitingRequest

LAUNCH_BOUND = 0.8
"""With nothing to decode, a batch that takes at most this share of its layers' time in one fused step, which
is replayed, would wait for its layers to be launched: it runs fused."""

MERGE_STEPS = 0.2
"""Of a decode step, what a batch in a split takes beside its own time while others wait: it is handed over at
its end, and lets nobody in before, where fused steps let others in with each. It decides between plans that
are predicted to take the same (emulator, Llama-8B on an H200: between 1.2 steps less and 0.2 more than the
split alone, by what came next)."""

FUSED_LIMIT_S = 2.0
"""A chunked prompt cannot be preempted: one that takes longer than this runs layer by layer instead."""


def fused_or_split(
    obs: Observation,
    batch: tuple[WaitingRequest, ...],
    split: Plan,
    fused: Plan | None,
    *,
    context: PolicyContext,
    table: PartitionTable,
    prefill_ratio: float,
    slot_use: SlotUse | None = None,
) -> tuple[Plan, tuple[Alternative, ...]]:
    """The plan that is taken for `batch`, and what it was preferred to. `slot_use`: while slots are short."""
    if fused is None:
        return split, split.rejected
    is_steady = split.meets and (split.worst_gap_s or 0.0) <= split.most_s  # else if chunks take too long
    predicted_s, fused_s = split.finish_s or 0.0, fused.finish_s or 0.0
    split_s = predicted_s * prefill_ratio
    if fused.kind is PlanKind.WHOLE:
        is_fused = fused_s <= LAUNCH_BOUND * split_s
        was_moved = is_fused != (fused_s <= LAUNCH_BOUND * predicted_s)
        return _told(fused if is_fused else split, prefill_ratio if was_moved else None), ()
    moved_by = None
    if not is_steady or (fused.meets and fused_s <= FUSED_LIMIT_S):
        step_s = split.numbers.predicted_decode_s or 0.0
        can_go_on, split_slots_s, next_fused_s = None, 0.0, fused_s
        if len(obs.waiting) > len(batch):
            can_go_on = _can_go_on(obs, batch, split, context, table)
            if obs.partition_id in table.split_indices:
                next_fused_s += step_s / _batches_like(batch, obs.waiting)
            if slot_use is not None:
                split_slots_s, fused_slots_s = slots_occupied_s(
                    obs, len(batch), split, fused, slot_use, context=context, table=table
                )
                next_fused_s = max(next_fused_s, fused_slots_s)
        is_fused = not is_steady or next_fused_s <= max(_next_s(split_s, step_s, can_go_on), split_slots_s)
        if is_steady and prefill_ratio != 1.0:
            as_predicted_s = max(_next_s(predicted_s, step_s, can_go_on), split_slots_s)
            moved_by = prefill_ratio if is_fused != (next_fused_s <= as_predicted_s) else None
        if is_fused:
            return _told(fused, moved_by), (Alternative(label="split", predicted_s=split_s),)
    return _told(split, moved_by), (*split.rejected, Alternative(label="fused", predicted_s=fused_s))


def _next_s(split_s: float, step_s: float, can_go_on: bool | None) -> float:
    """When the next batch can begin behind a split of so many seconds. `can_go_on`: whether it needs no other
    split; None where nobody waits."""
    if can_go_on is None:
        return split_s + step_s
    return (max(split_s, step_s) if can_go_on else split_s + step_s) + MERGE_STEPS * step_s


def _told(plan: Plan, prefill_ratio: float | None) -> Plan:
    """The plan, which tells by which ratio it was chosen, if the other one would have been without it."""
    if prefill_ratio is None:
        return plan
    return plan._replace(numbers=replace(plan.numbers, prefill_ratio=prefill_ratio))


def _batches_like(batch: tuple[WaitingRequest, ...], waiting: Sequence[WaitingRequest]) -> float:
    """How many batches of as many tokens are to be had of those that wait, this one among them. Prompts that
    are longer than any in it do not count: they may be split again."""
    longest, tokens = max([r.new_tokens for r in batch]), sum([r.new_tokens for r in batch])
    return max(1.0, sum([r.new_tokens for r in waiting if r.new_tokens <= longest]) / max(1, tokens))


def slots_occupied_s(
    obs: Observation,
    requests: int,
    split: Plan,
    fused: Plan,
    slot_use: SlotUse,
    *,
    context: PolicyContext,
    table: PartitionTable,
) -> tuple[float, float]:
    """Seconds of all decode slots that so many requests take in the split, and in fused steps as large as the
    plan's, of which more decoding requests leave less to prompts."""
    latency, decode = context.latency, slot_use.all_decoding(obs.decode)
    decode_s = latency.decode_s(decode, table.groups[split.partition_id].decode_sms)
    tokens = max(1, fused.prompt_tokens + obs.decode.bs - decode.bs)
    fused_s = latency.fused_s(PrefillShape.of([(tokens, 0)]), decode, table.rules.total_sms)
    decode_s, fused_s = decode_s * slot_use.split_step_ratio, fused_s * slot_use.fused_step_ratio
    return (
        slot_use.occupied_s(requests, decode_s, split.finish_s or 0.0),
        slot_use.occupied_s(requests, fused_s, fused_s),
    )


def _can_go_on(
    obs: Observation,
    batch: tuple[WaitingRequest, ...],
    split: Plan,
    context: PolicyContext,
    table: PartitionTable,
) -> bool:
    """Whether decode is fast enough on the same SMs when the batch's requests have joined it."""
    decode, decode_sms = obs.decode, table.groups[split.partition_id].decode_sms
    contexts = [request.new_tokens + request.reused_tokens for request in batch]
    grown = DecodeShape(
        bs=decode.bs + len(contexts),
        reused_tokens=decode.reused_tokens + sum(contexts),
        max_context_tokens=max(decode.max_context_tokens, *contexts),
    )
    step_s = context.latency.decode_s(grown, decode_sms) * (split.numbers.guard_ratio or 1.0)
    return step_s <= min(context.planned_tbt_s(obs.tbt_target_s), split.most_s)
