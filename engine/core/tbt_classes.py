"""TBT classes: who decodes in a step when some of the batch may wait longer for a token than others.

The strictest TBT target bounds every step. If everybody decodes in each, many requests with a relaxed target
take longer than the strict one has. So the strict decode in every step, and of the relaxed as many as the
step has time for: those first whose next tokens are due first, and everybody who is due now.

Whoever can decode does. To leave more of them out, for the sake of prompts, gains nothing that lasts: a token
costs the same reading of weights and KV whenever it is made, and who was left out stays for longer
(docs/decisions/0021-tbt-classes.md).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace

from pdmuxd.engine.core.guard import ContentionGuard
from pdmuxd.engine.core.partitions import PartitionTable
from pdmuxd.engine.core.policies.base import PolicyContext
from pdmuxd.engine.core.types import DecodeShape, DecodingRequest, Observation

RELAXED_RATIO = 2.0
"""A target of so many times the strictest one is relaxed: it is met by who sits every second step out."""
DUE_RATIO = 0.8
"""Of a target, the time after which a relaxed request is due. Steps take about this share of a target at most
(`FUSED_MARGIN` over a latency margin of 1.18), so that after one of them not all are due at once."""
DECODE_SHARE = 0.7
"""Of the strictest target: what decode alone may take of a step, all SMs together. The rest is for what it
takes longer than predicted, beside a prefill or with prompt tokens in the step. With 0.8 neither a split nor
a fused step meets the target (emulator, Llama-8B on an H200); with 0.5 the relaxed stay longer for nothing.
"""


def without_those_who_can_wait(
    obs: Observation,
    context: PolicyContext,
    table: PartitionTable,
    guard: ContentionGuard,
) -> tuple[Observation, tuple[str, ...]]:
    """The observation with a decode batch that a step within the strictest TBT target has time for, and the
    ids of those that are left out; unchanged, and none, if all fit or all are strict."""
    strictest_s = obs.tbt_target_s
    if not obs.decoding or strictest_s is None:
        return obs, ()
    strict: list[DecodingRequest] = []
    relaxed: list[tuple[float, DecodingRequest]] = []
    for request in obs.decoding:
        target_s = request.tbt_target_s
        if target_s < RELAXED_RATIO * strictest_s:
            strict.append(request)
        else:
            due_s = request.last_token_s + DUE_RATIO * context.planned_tbt_s(target_s)
            relaxed.append((due_s, request))
    fits = _fits(obs, context, table, guard)
    if not relaxed or fits(obs.decode):
        return obs, ()
    relaxed.sort(key=_due_s)  # stable: those due at the same time in the order of the batch
    due = _due_now([due_s for due_s, _ in relaxed], obs.now_s, context.planned_tbt_s(strictest_s))
    shapes = _growing(strict, [request for _, request in relaxed])
    count = bisect_right(shapes, 0, lo=due + 1, key=lambda shape: not fits(shape)) - 1
    if count == len(relaxed):
        return obs, ()
    left_out = tuple(request.request_id for _, request in relaxed[count:])
    return replace(obs, decode=shapes[count]), left_out


def _fits(
    obs: Observation,
    context: PolicyContext,
    table: PartitionTable,
    guard: ContentionGuard,
) -> Callable[[DecodeShape], bool]:
    """Whether a decode batch leaves time in a step within the strictest target.

    While layers are in flight the group cannot change (invariant 2): what counts then are its decode SMs.
    """
    latency, planned_s = context.latency, context.planned_tbt_s(obs.tbt_target_s)
    running, sms = obs.prefill, table.groups[obs.partition_id].decode_sms
    if running is not None and running.layers_in_flight and sms:
        shape = running.shape
        return lambda decode: latency.decode_s(decode, sms) * guard.ratio(sms, shape, decode) <= planned_s
    total_sms, most_s = table.rules.total_sms, DECODE_SHARE * planned_s
    return lambda decode: latency.decode_s(decode, total_sms) <= most_s


def _due_now(due_s: Sequence[float], now_s: float, step_s: float) -> int:
    """The fewest requests that every step must take, if steps take `step_s`, for all to be in time."""
    fewest = 0
    for place, at_s in enumerate(due_s, start=1):
        steps = max(1, int((at_s - now_s) / step_s))
        if place > fewest * steps:
            fewest = -(-place // steps)
    return fewest


def _growing(strict: Sequence[DecodingRequest], relaxed: Sequence[DecodingRequest]) -> list[DecodeShape]:
    """The batch of the strict, and with each relaxed request that joins it."""
    shape = DecodeShape.of([request.context_tokens for request in strict])
    shapes = [shape]
    for request in relaxed:
        shape = DecodeShape(
            bs=shape.bs + 1,
            reused_tokens=shape.reused_tokens + request.context_tokens,
            max_context_tokens=max(shape.max_context_tokens, request.context_tokens),
        )
        shapes.append(shape)
    return shapes


def _due_s(entry: tuple[float, DecodingRequest]) -> float:
    return entry[0]
