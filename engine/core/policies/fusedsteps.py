"""Fused steps: what is in one, how many prompt tokens the TBT target leaves room for, and how long that
takes.

`auto` compares them with splits; every policy that uses one stream builds its steps from the functions here.
Sources: DuetServe section 4.2 (a token budget that the TBT target leaves), Sarathi-Serve (the fixed chunk
that is used while predictions cannot be trusted).
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import NamedTuple

from pdmuxd.engine.core.estimates.batch_size_correction import BatchSizeCorrection
from pdmuxd.engine.core.estimates.steps import FusedEstimate
from pdmuxd.engine.core.partitions import PartitionTable
from pdmuxd.engine.core.policies.base import Plan, PlanKind, PolicyContext
from pdmuxd.engine.core.policies.slots import SlotUse
from pdmuxd.engine.core.queueing import UNORDERED, OrderedQueue
from pdmuxd.engine.core.types import (
    NO_DECODE,
    Alternative,
    Decision,
    DecisionNumbers,
    Mode,
    Observation,
    PrefillShape,
    PrefillView,
    Reason,
    WaitingRequest,
)

STEP_TOKENS: tuple[int, ...] = (
    *range(32, 321, 32),
    *range(512, 1537, 128),
    *range(1792, 2561, 256),
    *(3072, 4096, 8192),
)
"""Tokens of a fused step that are considered, decoding requests included: sizes of graphs, which take the
same time whether their last rows are used or not. Not 384, which takes almost what 512 do (one H200,
Llama-8B, while serving: 13.9 and 14.6 ms, and 11.7 for 320): at a target of 20 ms its prompts are better
split (conversation at 24/s in the emulator: 92% good, and 82% with it)."""

LEAST_PROMPT_TOKENS = STEP_TOKENS[0]
"""Prompt tokens of a fused step that must be launched even if it misses the target, at least: a prefill that
has begun must end."""
LATE_RATIO = 1.1
"""Such a step has the most tokens that take at most so many times what the fewest do. Those take as long as
the weights are read, or layers launched: with 32 at a time a long prompt is late for hundreds of steps."""

FIXED_STEP_TOKENS = 512
"""Tokens of a step, decoding requests included, where no prediction can say how many: the fixed chunk that
did best on chat (H200, Llama-8B and CodeLlama-34B, SGLang 0.5.23), and the one that replays of traffic found
again on six loads of nine (decision 0019)."""

MOST_STEADY_TOKENS = 2048
"""A step that goes on while others wait is no larger than the best size up to this: in the profiles that are
shipped a token takes at most 6% less in any larger step, and decode gets one token for all of it."""

LAST_STEP_SHARE = 0.5
"""Of a step's tokens, what must still be within the target in the last step of a prompt, which reads all that
came before it. Else its steps hold fewer and fewer: at a target of 20 ms the last 9,000 tokens of a prompt of
41,737 took 3 s, 32 at a time, and all behind it waited (emulator, Llama-8B as served). With all of a step's
tokens documents at 50 ms lose 7 points: steps that shrink a little are no harm."""

LARGE_CHUNK_TOKENS = 8192
"""Prompt tokens that saturate compute: SGLang's chunk on an H200, and vLLM's token budget on an H100, which
DuetServe's evaluation takes over (section 3.1)."""


def decode_alone(obs: Observation, table: PartitionTable) -> Decision:
    """Decode by itself runs as stock SGLang does, its host work overlapped; idle if nothing decodes."""
    if not obs.decode.bs:
        return Decision(mode=Mode.IDLE, partition_id=obs.partition_id, reason=Reason.NOTHING_TO_DO)
    return Decision(
        mode=Mode.DECODE, partition_id=table.decode_only, decode_steps=1, reason=Reason.DECODE_ALONE
    )


def fixed_prompt_tokens(decode_bs: int) -> int:
    """What a step of `FIXED_STEP_TOKENS` leaves for the prompt; a large decode batch leaves the least."""
    return max(LEAST_PROMPT_TOKENS, FIXED_STEP_TOKENS - decode_bs)


def chunk_lengths(
    prefill: PrefillView | None,
    batch: Iterable[WaitingRequest],
    budget_tokens: int,
    *,
    chunk_last: bool = False,
) -> list[tuple[int, int]]:
    """(new, reused) of the requests in the next chunk: the prefill under way first, then `batch` in order; or
    `batch` first."""
    if chunk_last:
        lengths = chunk_lengths(None, batch, budget_tokens)
        return lengths + chunk_lengths(prefill, (), budget_tokens - sum([new for new, _ in lengths]))
    lengths = []
    if prefill is not None:
        done = prefill.done_tokens
        for request in prefill.requests:
            tokens = min(budget_tokens, request.new_tokens - done)
            if tokens > 0:
                budget_tokens -= tokens
                lengths.append((tokens, request.reused_tokens + done))
            done = 0
    for request in batch:
        tokens = request.new_tokens
        if tokens >= budget_tokens:
            tokens = budget_tokens
        if tokens <= 0:
            break
        budget_tokens -= tokens
        lengths.append((tokens, request.reused_tokens))
    return lengths


class StepBounds(NamedTuple):
    """What bounds a fused step beside its prediction."""

    estimate: FusedEstimate
    stall_s: float = 0.0
    """Left for a stall."""
    slot_use: SlotUse | None = None
    """While decode slots are short."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedSteps:
    """Plans of fused steps on all SMs of the table."""

    context: PolicyContext
    table: PartitionTable
    _products: tuple[tuple[int, float], ...] = field(default=(), init=False, repr=False, compare=False)
    """`STEP_TOKENS`, the largest first, each with the seconds of its products."""
    _steady_size: int = field(default=0, init=False, repr=False, compare=False)
    """The size up to `MOST_STEADY_TOKENS` whose products take the fewest seconds for a token."""

    def __post_init__(self) -> None:
        products = tuple([(size, self._products_s(size)) for size in reversed(STEP_TOKENS)])
        steady = [(size, seconds) for size, seconds in products if size <= MOST_STEADY_TOKENS]
        object.__setattr__(self, "_products", products)
        object.__setattr__(self, "_steady_size", min(steady, key=lambda of: round(of[1] / of[0], 12))[0])

    def steady_step_s(self, obs: Observation, shape: PrefillShape) -> float:
        """Typical seconds of a fused step of the best size, of prompts like these beside the decode batch.

        Longer steps prefill hardly faster, in a split or fused, and decode waits for them: its batch grows
        until slots or KV are short. So no plan has longer ones, however loose the TBT target is
        (docs/decisions/0069-a-loose-target-is-not-used-up.md).
        """
        bs = obs.decode.bs
        tokens = max(self._steady_size, 2 * bs) - bs
        return self._typical_step_s(obs, shape, tokens, _before(shape, tokens))

    def whole_batch(
        self, obs: Observation, batch: tuple[WaitingRequest, ...], shape: PrefillShape, bounds: StepBounds
    ) -> Plan | None:
        """A batch in steps that meet the target, if any do; whole in one step if nothing decodes."""
        bs = obs.decode.bs
        if not bs:
            whole_s = self.context.latency.fused_s(shape, NO_DECODE, self.table.rules.total_sms)
            plan = self.plan(obs, shape.new_tokens, whole_s)
            return plan._replace(kind=PlanKind.WHOLE, finish_s=whole_s)
        tokens, step_s = self.prompt_tokens(obs, batch, bounds, must=False)
        if not tokens:
            return None
        estimate = bounds.estimate
        ratio = estimate.sizes.ratio(tokens + bs)
        bound_s = estimate.margin.bound_s(step_s * ratio)
        total_s = self.total_s(obs, estimate.sizes, shape, tokens)
        left_s = estimate.margin.typical_s(self.context.planned_tbt_s(obs.tbt_target_s), bounds.stall_s)
        meets = self._last_step_s(obs, batch, int(LAST_STEP_SHARE * tokens)) * ratio <= left_s
        plan = self.plan(obs, tokens, step_s, bounds=bounds, meets=meets)
        return plan._replace(worst_gap_s=bound_s, finish_s=total_s)

    def _last_step_s(self, obs: Observation, batch: tuple[WaitingRequest, ...], tokens: int) -> float:
        """Predicted for a last step of so many tokens of the longest prompt, which reads all before it; 0 if
        it holds that prompt whole."""
        longest = max(batch, key=_new_tokens)
        before = longest.new_tokens - tokens
        if before <= 0:
            return 0.0
        chunk = PrefillShape.of([(tokens, longest.reused_tokens + before)])
        return self.context.latency.fused_s(chunk, obs.decode, self.table.rules.total_sms)

    def next_step(self, obs: Observation, batch: tuple[WaitingRequest, ...], bounds: StepBounds) -> Plan:
        """A step of a prefill that cannot run in any other way: within the target if some step is, else one
        that is hardly longer than the shortest."""
        tokens, step_s = self.prompt_tokens(obs, batch, bounds, must=True)
        if tokens:
            return self.plan(obs, tokens, step_s, bounds=bounds)
        least_s = self.step_s(obs, LEAST_PROMPT_TOKENS, batch)
        typical_s = bounds.estimate.expected_s(least_s, LEAST_PROMPT_TOKENS + obs.decode.bs)
        tokens, step_s = self._most_within(obs, batch, bounds.estimate.sizes, LATE_RATIO * typical_s)
        if tokens < LEAST_PROMPT_TOKENS:
            tokens, step_s = LEAST_PROMPT_TOKENS, least_s
        return self.plan(obs, tokens, step_s, bounds=bounds, meets=False)

    def holding(
        self, obs: Observation, plan: Plan, batch: Iterable[WaitingRequest], *, chunk_last: bool = False
    ) -> Plan:
        """The same step, of these requests."""
        step_s = self.step_s(obs, plan.prompt_tokens, batch, chunk_last=chunk_last)
        numbers = plan.numbers
        slack_s = None if numbers.tbt_target_s is None else numbers.tbt_target_s - step_s
        return plan._replace(numbers=replace(numbers, predicted_fused_s=step_s, tbt_slack_s=slack_s))

    def fixed_step(self, obs: Observation, batch: tuple[WaitingRequest, ...]) -> Plan:
        """A step of a fixed size, used while predictions prove wrong."""
        tokens = fixed_prompt_tokens(obs.decode.bs)
        step_s = self.step_s(obs, tokens, batch)
        return self.plan(obs, tokens, step_s)._replace(reason=Reason.PREDICTIONS_WRONG)

    def prompt_tokens(
        self,
        obs: Observation,
        batch: tuple[WaitingRequest, ...],
        bounds: StepBounds,
        *,
        must: bool,
    ) -> tuple[int, float]:
        """Prompt tokens of a step that meets the TBT target, and its predicted seconds; (0, 0) if none does.
        The step has the best size up to the one that holds all that wait, or the largest within the target.

        The step must meet the target even in the rare case that the latency margin covers. The part of the
        running gap that has passed already counts. `must`: where the host alone takes longer than the target,
        the most tokens that take no longer than the host. Never more tokens than wait by the estimate: if a
        prefix has left the cache since, the step must not become longer than planned.
        """
        left_s = self.context.planned_tbt_s(obs.tbt_target_s)
        gone_s = max(0.0, obs.now_s - obs.last_token_s) if obs.decode.bs else 0.0
        margin, sizes, slot_use = bounds.estimate.margin, bounds.estimate.sizes, bounds.slot_use
        if margin.floor_s > left_s - gone_s:
            if not must:
                return 0, 0.0
            left_s = margin.floor_s + gone_s
        left_s = margin.typical_s(left_s, bounds.stall_s) - gone_s
        bs = obs.decode.bs
        tokens, step_s = self._most_within(obs, batch, sizes, left_s)
        if not tokens:
            return 0, 0.0
        steady = max(self._steady_size, 2 * bs)
        most = STEP_TOKENS[bisect_left(STEP_TOKENS, min(tokens + bs, steady))]
        useful = math.inf
        if slot_use is not None and batch:
            useful = slot_use.useful_tokens(sum([r.new_tokens for r in batch]) / len(batch))
        size = self._best_size(most, bs, sizes, useful)
        return (tokens, step_s) if size >= tokens + bs else (size - bs, self.step_s(obs, size - bs, batch))

    def _most_within(
        self,
        obs: Observation,
        batch: tuple[WaitingRequest, ...],
        sizes: BatchSizeCorrection,
        limit_s: float,
    ) -> tuple[int, float]:
        """The prompt tokens in the largest of the sizes that take at most so long and its predicted seconds;
        0 tokens if none does."""
        latency, total_sms, bs = self.context.latency, self.table.rules.total_sms, obs.decode.bs
        low, tokens, step_s = bisect_right(STEP_TOKENS, bs), 0, 0.0
        high = len(STEP_TOKENS)
        while low < high:
            middle = (low + high) // 2
            chunk = PrefillShape.of(chunk_lengths(obs.prefill, batch, STEP_TOKENS[middle] - bs))
            predicted_s = latency.fused_s(chunk, obs.decode, total_sms)
            if predicted_s * sizes.ratio(chunk.new_tokens + bs) <= limit_s:
                low, tokens, step_s = middle + 1, chunk.new_tokens, predicted_s
            else:
                high = middle
        return tokens, step_s

    def _best_size(self, most: int, decode_bs: int, sizes: BatchSizeCorrection, useful_tokens: float) -> int:
        """The size of a step, of `most` tokens or fewer, whose products take the fewest seconds for a token
        that is of use; the largest of several.

        They do not grow evenly with it: Llama-8B takes 26 ms for 1,152 tokens and 32 for 1,280 (one H200,
        2026-11-22). A decode token counts as a prompt token does, and attention does not count: each token
        has to be computed and to read its context once, in steps of any size. Prompts have half of the step,
        or of the tokens that they have in the largest one, so that they do not starve beside a large decode
        batch.
        """
        enough, best, best_s = min((most + decode_bs) / 2, 2 * decode_bs), most, math.inf
        for size, products_s in self._products:
            if size > most:
                continue
            if size < enough:
                break
            useful = min(size, useful_tokens)
            token_s = products_s * sizes.hoped(size) / useful
            if token_s < best_s and (token_s := round(token_s, 12)) < best_s:
                best, best_s = size, token_s
        return best

    def _products_s(self, tokens: int) -> float:
        """Seconds of a step of so many tokens without their attention."""
        chunk = PrefillShape(
            bs=1, new_tokens=tokens, reused_tokens=0, sum_new_squared=0, sum_new_times_reused=0
        )
        return self.context.latency.fused_s(chunk, NO_DECODE, self.table.rules.total_sms)

    def step_s(
        self, obs: Observation, budget: int, batch: Iterable[WaitingRequest], *, chunk_last: bool = False
    ) -> float:
        """Predicted for a step of the chunk in progress and these requests, up to so many prompt tokens."""
        chunk = PrefillShape.of(chunk_lengths(obs.prefill, batch, budget, chunk_last=chunk_last))
        return self.context.latency.fused_s(chunk, obs.decode, self.table.rules.total_sms)

    def total_s(
        self, obs: Observation, sizes: BatchSizeCorrection, shape: PrefillShape, budget: int
    ) -> float:
        """What a whole batch typically takes in steps of this budget; the last has what is left of it, or,
        where others wait, is filled with them and counts by the batch's part of it.

        A token attends to its own prompt alone. So a step holds several prompts of the usual length, or a
        chunk of one, which also reads what came before it: half of the rest of that prompt on average. The
        usual length is the mean over tokens, of which a long prompt has more than a short one.
        """
        new, bs = shape.new_tokens, obs.decode.bs
        steps, left = divmod(new, budget)
        if steps or len(obs.waiting) > shape.bs:
            step_s = self._typical_step_s(obs, shape, budget, _before(shape, budget))
            step_s *= sizes.hoped(budget + bs)
            if len(obs.waiting) > shape.bs:
                return step_s * new / budget
            if not left:
                return step_s * steps
        last_s = self._typical_step_s(obs, shape, left, 2 * _before(shape, left))
        last_s *= sizes.hoped(left + bs)
        return steps * step_s + last_s if steps else last_s

    def _typical_step_s(self, obs: Observation, shape: PrefillShape, tokens: int, before: float) -> float:
        """Predicted for a step of so many tokens of such prompts, of which `before` were prefilled before."""
        own = min(shape.sum_new_squared / shape.new_tokens, tokens)
        before += shape.sum_new_times_reused / shape.new_tokens
        chunk = PrefillShape(
            bs=max(1, round(tokens / own)),
            new_tokens=tokens,
            reused_tokens=round(tokens / own * before),
            sum_new_squared=round(tokens * own),
            sum_new_times_reused=round(tokens * before),
        )
        return self.context.latency.fused_s(chunk, obs.decode, self.table.rules.total_sms)

    def plan(
        self,
        obs: Observation,
        prompt_tokens: int,
        step_s: float,
        *,
        bounds: StepBounds | None = None,
        meets: bool = True,
    ) -> Plan:
        """Steps of so many prompt tokens, and what bounded them."""
        target_s, margin_ratio, stall_room_s = obs.tbt_target_s, None, None
        if bounds is not None:
            margin_ratio = bounds.estimate.margin_ratio(prompt_tokens + obs.decode.bs)
            stall_room_s = bounds.stall_s or None
        return Plan(
            kind=PlanKind.FUSED,
            partition_id=self.table.decode_only,
            reason=Reason.FUSED_FITS,
            meets=meets,
            decode_steps=1 if obs.decode.bs else 0,
            prompt_tokens=prompt_tokens,
            numbers=DecisionNumbers(
                predicted_fused_s=step_s,
                tbt_target_s=target_s,
                delivery_s=self.context.left_for_delivery_s(target_s),
                tbt_slack_s=None if target_s is None else target_s - step_s,
                margin_ratio=margin_ratio,
                stall_room_s=stall_room_s,
            ),
        )


_new_tokens = attrgetter("new_tokens")


def _before(shape: PrefillShape, tokens: int) -> float:
    """Tokens of a prompt of the usual length that chunks of so many read again, on average."""
    return max(0.0, shape.sum_new_squared / shape.new_tokens - tokens) / 2


def fused_decision(
    obs: Observation,
    plan: Plan,
    batch: tuple[WaitingRequest, ...],
    rejected: tuple[Alternative, ...] = (),
    queue: OrderedQueue = UNORDERED,
) -> Decision:
    """Decode and the plan's tokens of the chunk in progress and of these requests, taken from `queue`."""
    return Decision(
        mode=Mode.FUSED,
        partition_id=plan.partition_id,
        reason=plan.reason,
        decode_steps=plan.decode_steps,
        token_budget=plan.prompt_tokens + obs.decode.bs,
        admit=tuple([request.request_id for request in batch]),
        deprioritize=queue.unreachable,
        refuse=queue.refused,
        order=queue.by,
        numbers=plan.numbers,
        rejected=rejected,
    )
