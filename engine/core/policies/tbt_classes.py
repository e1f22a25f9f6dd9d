"""TBT classes: who decodes in a step when some of the batch may wait longer for a token than others.

The strictest TBT target bounds every step. If everybody decodes in each, many requests with a relaxed target
take longer than the strict one has. So the strict decode in every step, and of the relaxed as many as the
step has time for: those first whose next tokens are due first. Whoever is due now is in the step as long as
it keeps the strictest target, and beyond it if the next step would be too late.

Whoever can decode does. To leave more of them out, for the sake of prompts, gains nothing that lasts: a token
costs the same reading of weights and KV whenever it is made, and who was left out stays for longer
(docs/decisions/0021-tbt-classes.md).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate

from pdmuxd.engine.core.guard import ContentionGuard
from pdmuxd.engine.core.partitions import PartitionTable
from pdmuxd.engine.core.policies.base import PolicyContext
from pdmuxd.engine.core.types import DecodeShape, DecodingRequest, Observation, PrefillMode, PrefillShape

RELAXED_RATIO = 2.0
"""A target of so many times the strictest one is relaxed: it is met by who sits every second step out."""
DUE_RATIO = 0.8
"""Of a target, the time after which a relaxed request is due. Steps take about this share of a target at most
(a latency margin of 1.25), so that after one of them not all are due at once."""
DECODE_SHARE = 0.7
"""Of the strictest target: what decode alone may take of a step, all SMs together. The rest is for what it
takes longer than predicted, beside a prefill or with prompt tokens in the step. With 0.8 neither a split nor
a fused step meets the target (emulator, Llama-8B on an H200); with 0.5 the relaxed stay longer for nothing.
"""
ALONE_SHARE = 0.9
"""The same of a step that can hold no prompt: none waits, or no slot is left. The rest is for what it takes
longer than predicted."""

Fits = Callable[[DecodeShape], bool]
_Relaxed = tuple[float, int]
"""When it is due, and its place in the batch."""


def without_those_who_can_wait(
    obs: Observation,
    context: PolicyContext,
    table: PartitionTable,
    guard: ContentionGuard,
    *,
    beside: PrefillShape | None = None,
    margin_ratio: float = 1.0,
) -> tuple[Observation, tuple[str, ...]]:
    """The observation with a decode batch that a step within the strictest TBT target has time for, and the
    ids of those that are left out; unchanged, and none, if all fit or all are strict.

    `beside`: a prefill by layers that is to begin. `margin_ratio`: what few steps take over their prediction.
    """
    strictest_s = obs.tbt_target_s
    if not obs.decoding or strictest_s is None:
        return obs, ()
    fits, keeps_target = _fits(obs, context, table, guard, beside, margin_ratio)
    if fits(obs.decode):
        return obs, ()
    decoding, relaxed_s = obs.decoding, RELAXED_RATIO * strictest_s
    strict = [one.context_tokens for one in decoding if one.tbt_target_s < relaxed_s]
    if len(strict) == len(decoding):
        return obs, ()
    relaxed: list[_Relaxed] = []
    may_take_s = {target_s: context.planned_tbt_s(target_s) for target_s in {one[1] for one in decoding}}
    for target_s, planned_s in may_take_s.items():
        if target_s >= relaxed_s:
            due_s = DUE_RATIO * planned_s
            relaxed += [(one[3] + due_s, i) for i, one in enumerate(decoding) if one[1] == target_s]
    relaxed.sort()  # those due at the same time in the order of the batch
    step_s = context.planned_tbt_s(strictest_s)
    due = _due_now([request[0] for request in relaxed], obs.now_s, step_s)
    with_first = _growing(strict, relaxed, decoding)
    count = _most(fits, with_first, len(relaxed))
    if count < due:
        after_next_s = obs.now_s + 2.0 * step_s
        late_s = [decoding[i].last_token_s + may_take_s[decoding[i].tbt_target_s] for _, i in relaxed]
        late = [one for one, at_s in zip(relaxed, late_s, strict=True) if at_s < after_next_s]
        relaxed = late + [one for one, at_s in zip(relaxed, late_s, strict=True) if at_s >= after_next_s]
        with_first = _growing(strict, relaxed, decoding)
        count = max(len(late), _most(keeps_target, with_first, due))
    if count == len(relaxed):
        return obs, ()
    sits_out = tuple([decoding[i].request_id for _, i in relaxed[count:]])
    longest = max([*strict, *[decoding[i].context_tokens for _, i in relaxed[:count]]])
    decode = replace(with_first(count), max_context_tokens=longest)
    return replace(obs, decode=decode, sitting_out=len(sits_out)), sits_out


def _most(fits: Fits, with_first: Callable[[int], DecodeShape], end: int) -> int:
    """How many of the relaxed fit, `end` at most."""
    return bisect_right(range(end + 1), 0, lo=1, key=lambda count: not fits(with_first(count))) - 1


def _fits(
    obs: Observation,
    context: PolicyContext,
    table: PartitionTable,
    guard: ContentionGuard,
    beside: PrefillShape | None,
    margin_ratio: float,
) -> tuple[Fits, Fits]:
    """Whether a decode batch leaves time for prompts in a step within the strictest target, and whether the
    step keeps the target by itself.

    Beside layers it has the decode SMs of a split: while some are in flight of the group in force, which
    cannot change (invariant 2), else of the widest. With none, all SMs, and what prompts leave it of a step.
    """
    latency, planned_s = context.latency, context.planned_tbt_s(obs.tbt_target_s)
    running = obs.under_way[0] if obs.under_way else None
    if running is not None and running.mode is PrefillMode.LAYERWISE:
        beside = running.shape
    if beside is not None and table.split_indices:
        is_held = running is not None and running.layers_in_flight and obs.partition_id in table.split_indices
        sms = table.groups[obs.partition_id if is_held else table.split_indices[-1]].decode_sms
        shape = beside

        def fits_split(decode: DecodeShape) -> bool:
            return latency.decode_s(decode, sms) * guard.ratio(sms, shape, decode) <= planned_s

        return fits_split, fits_split
    may_hold_prompts = obs.under_way or (obs.waiting and obs.decode.bs < obs.limits.max_decode_bs)
    total_sms, alone_s = table.rules.total_sms, min(ALONE_SHARE, 1.0 / margin_ratio) * planned_s

    def keeps_target(decode: DecodeShape) -> bool:
        return latency.decode_s(decode, total_sms) <= alone_s

    def leaves_time(decode: DecodeShape) -> bool:
        return latency.decode_s(decode, total_sms) <= DECODE_SHARE * planned_s

    return leaves_time if may_hold_prompts else keeps_target, keeps_target


def _due_now(due_s: Sequence[float], now_s: float, step_s: float) -> int:
    """The fewest requests that every step must take, if steps take `step_s`, for all to be in time."""
    fewest, place = 0, 1
    while place <= len(due_s):
        steps = max(1, int((due_s[place - 1] - now_s) / step_s))
        if place > fewest * steps:
            fewest = -(-place // steps)
        place = max(place, fewest * steps) + 1  # until there all have steps enough: they are due later
    return fewest


def _growing(
    strict: Sequence[int], relaxed: Sequence[_Relaxed], decoding: Sequence[DecodingRequest]
) -> Callable[[int], DecodeShape]:
    """The batch of the strict, by their context tokens, and of so many of the relaxed. Nobody looks for the
    longest of the contexts, which decode by itself does not depend on."""
    bs, contexts = len(strict), [decoding[i].context_tokens for _, i in relaxed]
    sums = tuple(accumulate(contexts, initial=sum(strict)))
    return lambda count: DecodeShape(bs=bs + count, reused_tokens=sums[count])
