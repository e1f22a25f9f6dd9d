"""Decides which requests may go ahead of a prefill that is under way: invariants 3 and 4 are kept here.

Each overtaking saves a deadline that would else be missed, and leaves every prefill under way time for its
own, however often it is overtaken. Prefills by layers are a stack: what overtakes is overtaken itself by the
same rule, and who was set aside last goes on first, unless others overtake it at that moment. One whose
target is unreachable anyway is set aside once if it runs by layers, and sits out every second step at most
if it runs in chunks. Sources: MuxWise section 3.4 (preemption, one level deep); the stack resource policy
(Baker 1991) for why a stack needs no order of its own. `overload.py` says whose turn it is in overload.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from pdmuxd.engine.core.latency import LatencyModel
from pdmuxd.engine.core.policies.base import Plan
from pdmuxd.engine.core.policies.fusedsteps import LEAST_PROMPT_TOKENS
from pdmuxd.engine.core.queueing import OrderedQueue
from pdmuxd.engine.core.types import Observation, PrefillView, WaitingRequest

WAIT_RATIO = 1.15
"""Times what a prefill by layers still needs, by prediction, that a request must have to wait for it. Beside
decode a prompt of 21,000 tokens took 1.06 times as long (emulator, Llama-8B as served), and who waits for all
of it is late by what it takes longer."""


def is_due_before(waiting: Sequence[WaitingRequest], at_s: float) -> bool:
    """Whether any of these has a deadline before `at_s`. Asked of the whole window in most decisions, so it
    is a plain loop: `any` and `min` of a generator take four times as long."""
    for request in waiting:  # noqa: SIM110
        if request.deadline_s < at_s:
            return True
    return False


def urgent_beside_layers(
    obs: Observation,
    queue: OrderedQueue,
    latency: LatencyModel,
    *,
    sms: int,
    left_s: Sequence[float],
    max_tokens: int,
) -> tuple[WaitingRequest, ...]:
    """The waiting requests that are in time if they are prefilled now, and late if they wait for the prefill
    that runs or would go on next. At most as many as fit into a batch of `max_tokens`, into the memory beside
    the prefills under way, and into the time that all of these can spare.

    `left_s`: seconds that each of `obs.under_way` still needs, beside decode on `sms` SMs.
    """
    first, first_s = obs.under_way[0], left_s[0]
    must_go_on = first.was_preempted and first.earliest_deadline_s < obs.now_s + first_s
    unreachable = frozenset(queue.unreachable)
    spare = _SpareTime(obs, queue, left_s)
    colocated_ratio = latency.colocated_ratio(sms)
    most_tokens = obs.limits.whole_tokens_beside(obs.under_way)
    urgent: list[WaitingRequest] = []
    taken_s, taken_tokens, due_s = 0.0, 0, math.inf
    for request, alone_s in zip(queue.order, latency.requests_s(queue.order, sms), strict=True):
        own_s, due_in_s = colocated_ratio * alone_s, request.deadline_s - obs.now_s
        if due_in_s - own_s >= WAIT_RATIO * first_s:
            continue  # as most can, it can wait
        if request.request_id in unreachable or taken_tokens + request.new_tokens > most_tokens:
            continue
        end_s = taken_s + own_s
        if end_s > due_in_s or end_s > due_s:
            continue  # they are one batch, and end together
        most_s, is_free = spare.for_request(request)
        if end_s < most_s and (is_free or not must_go_on):
            taken_s = end_s
            taken_tokens += request.new_tokens
            if urgent and taken_tokens > max_tokens:
                break
            urgent.append(request)
            due_s = min(due_s, due_in_s)
    return tuple(urgent)


def urgent_beside_chunks(
    obs: Observation, queue: OrderedQueue, plan: Plan, *, has_chunk_waited: bool
) -> tuple[WaitingRequest, ...]:
    """Requests that would miss their targets behind the chunks that are left, and fit into a step of `plan`'s
    tokens.

    `has_chunk_waited`: the prompt in chunks sat the last step out.
    """
    running, tokens = obs.prefill, plan.prompt_tokens
    if running is None or not queue.order or not plan.meets:
        return ()
    step_s = plan.numbers.predicted_fused_s or 0.0
    steps_left = -(-(running.shape.new_tokens - running.done_tokens) // tokens)
    left_s = step_s * steps_left
    if steps_left < 2 or not is_due_before(obs.waiting, obs.now_s + left_s + step_s):
        return ()
    spare_s = running.earliest_deadline_s - obs.now_s - left_s
    has_time = spare_s >= step_s or (spare_s < 0.0 and not has_chunk_waited)
    unreachable = frozenset(queue.unreachable)
    urgent: list[WaitingRequest] = []
    rank = _Ranks(queue, (running,))
    for request in queue.order:
        left_to_it_s = request.deadline_s - obs.now_s - step_s
        if not 0.0 <= left_to_it_s < left_s:
            continue
        if request.request_id in unreachable or not rank.may_pass(request, running):
            continue
        if request.new_tokens <= tokens and (has_time or rank.gives_way(running, request)):
            tokens -= request.new_tokens
            urgent.append(request)
    return tuple(urgent)


def before_the_chunk(
    obs: Observation,
    queue: OrderedQueue,
    batch: Sequence[WaitingRequest],
    plan: Plan,
    latency: LatencyModel,
    sms: int,
) -> tuple[WaitingRequest, ...]:
    """Requests of `batch` that have less slack than the prompt in chunks and fit whole into a step of
    `plan`'s tokens: least slack goes first within a step as well, and the prompt in chunks, which has time,
    gets what is left.

    Those that are too late, or that are passed over, wait until it ends; so do all if it ends with the next
    step.
    """
    running, tokens = obs.prefill, plan.prompt_tokens
    if running is None or not batch or not plan.meets:
        return ()
    left_tokens = running.shape.new_tokens - running.done_tokens
    step_s = plan.numbers.predicted_fused_s or 0.0
    spare_s = running.earliest_deadline_s - obs.now_s - step_s * -(-left_tokens // tokens)
    if left_tokens <= 2 * tokens or spare_s < step_s:
        return ()
    unreachable, ranks = frozenset(queue.unreachable), _Ranks(queue, (running,))
    room = min(tokens - LEAST_PROMPT_TOKENS, int(tokens * spare_s / step_s) if step_s else tokens)
    first: list[WaitingRequest] = []
    for request in batch:
        if request.new_tokens > room or request.request_id in unreachable:
            continue
        if request.request_id in queue.passed_over or not ranks.may_pass(request, running):
            continue
        own_s = latency.request_s(request.new_tokens, request.reused_tokens, sms)
        if request.deadline_s - obs.now_s - own_s < spare_s:
            first.append(request)
            room -= request.new_tokens
    return tuple(first)


class _Ranks:
    """Knows which requests have time for which others, whatever that does to their own deadlines.

    The batch class has time for the others. In overload a tenant that has had less than its share is
    overtaken by such tenants alone, and overtakes the others as it needs.
    """

    def __init__(self, queue: OrderedQueue, under_way: Sequence[PrefillView]) -> None:
        overload = queue.state.overload
        self.behind: Collection[str] = ()
        """Tenants that have had less than their share."""
        if overload.is_on:
            running = (request for unit in under_way for request in unit.requests)
            self.behind = overload.behind((*queue.order, *running))

    def may_pass(self, request: WaitingRequest, unit: PrefillView) -> bool:
        """Whether it may overtake at all."""
        return request.tenant in self.behind or not self._is_behind(unit)

    def gives_way(self, unit: PrefillView, request: WaitingRequest) -> bool:
        """Whether a prefill is overtaken by a request even if it misses its own deadline then."""
        if request.tenant in self.behind and not self._is_behind(unit):
            return True
        return request.priority_class != "batch" and self.is_batch_class(unit)

    @staticmethod
    def is_batch_class(unit: PrefillView) -> bool:
        """Whether all of a prefill's requests have time for the others."""
        return all(request.priority_class == "batch" for request in unit.requests)

    def _is_behind(self, unit: PrefillView) -> bool:
        return bool(self.behind) and any(member.tenant in self.behind for member in unit.requests)


class _SpareTime:
    """What the prefills under way have left for others: each ends after those that go on before it."""

    def __init__(self, obs: Observation, queue: OrderedQueue, left_s: Sequence[float]) -> None:
        self._ranks = _Ranks(queue, obs.under_way)
        self._units: list[tuple[PrefillView, float]] = []
        end_s = obs.now_s
        for unit, unit_s in zip(obs.under_way, left_s, strict=True):
            end_s += unit_s
            spare_s = unit.earliest_deadline_s - end_s
            self._units.append((unit, spare_s if spare_s >= 0.0 else math.inf))
        self._first_s = left_s[0]
        self._known: dict[tuple[bool, bool], tuple[float, bool]] = {}
        self._for_all: tuple[float, bool] | None = None
        if not self._ranks.behind and not any(self._ranks.is_batch_class(unit) for unit in obs.under_way):
            self._for_all = min(self._first_s, *(spare_s for _, spare_s in self._units)), False

    def for_request(self, request: WaitingRequest) -> tuple[float, bool]:
        """Seconds that requests like this one may take together, none if it may not overtake; and whether the
        first prefill gives way to it, and so is not to be left the shorter one's time either."""
        if self._for_all is not None:
            return self._for_all
        kind = (request.tenant in self._ranks.behind, request.priority_class == "batch")
        if kind not in self._known:
            self._known[kind] = self._for_kind(request)
        return self._known[kind]

    def _for_kind(self, request: WaitingRequest) -> tuple[float, bool]:
        ranks, first = self._ranks, self._units[0][0]
        if not all(ranks.may_pass(request, unit) for unit, _ in self._units):
            return 0.0, False
        held = [spare_s for unit, spare_s in self._units if not ranks.gives_way(unit, request)]
        is_free = ranks.gives_way(first, request)
        return min(held if is_free else (*held, self._first_s), default=math.inf), is_free
