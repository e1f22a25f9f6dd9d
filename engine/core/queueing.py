"""The next prefill batch: the order of waiting requests, and how many of them go together.

The order is of arrival, or least slack first among those that can still make it.
Slack is what is left until a request's deadline after its own predicted prefill. Serving a request that has
no slack left costs the next one its target, so those wait behind, oldest first. So that no tenant starves,
one that has waited for `AGEING_BOUND_S` is paid for from a credit that grows with what the others get; the
smallest of them goes before that, at a higher price: it costs the others little, and waits no half a minute.

Once requests come too late there is more work than time. Who is passed over is then for `overload.py`: class,
share of the tenant and lot are looked at before slack.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter

from pdmuxd.engine.core.latency import LatencyModel
from pdmuxd.engine.core.overload import NO_OVERLOAD, Overload
from pdmuxd.engine.core.types import Observation, PrefillShape, QueueOrder, WaitingRequest

AGEING_BOUND_S = 30.0
"""A request with an unreachable deadline waits so long before it has a claim on the credit; less if it may
not wait for twice as long."""

MARGIN_SHARE = 0.08
"""Of its target that a request which has waited for long must have left: at overload everybody is served at
the last moment, and a prediction that is a little short would make near misses of them all."""

AGED_SHARE = 0.04
"""Prompt tokens that aged requests are credited per prompt token of the others. What they get, the others
lack: near capacity, with 0.08, a late prompt that was served made others late
(docs/measurements/README.md, "The last percent")."""

LATE_PRICE = 4
"""Times its tokens, what a request whose deadline is unreachable costs of the credit if it goes before it has
aged: a late question of a few tokens is served soon, and the credit still lasts for those that have aged."""

FEW_SLOTS_SHARE = 0.5
"""Of the slots by weight that another tenant holds: one that has fewer goes first while slots are short."""

DECODE_HEADROOM_TOKENS = 128
"""KV kept free per decoding request, so that an admission does not force a retraction at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """What the order of the queue remembers from one decision to the next."""

    aged_credit_tokens: float = 0.0
    """What requests with an unreachable deadline may spend."""
    overload: Overload = NO_OVERLOAD


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderedQueue:
    """The waiting requests in the order to serve them, and whose deadlines cannot be reached any more."""

    order: tuple[WaitingRequest, ...]
    """But for those that are refused."""
    unreachable: tuple[str, ...]
    """Oldest first: a set would order them by hash, differently on every rank (invariant 6)."""
    refused: tuple[str, ...] = ()
    """Of these, whose tenants would rather have an error at once."""
    passed_over: frozenset[str] = frozenset()
    """Who could still make it and goes behind all others, since there is more work than time."""
    by: QueueOrder = QueueOrder.ARRIVAL
    state: QueueState = QueueState()
    """With what this look at the queue has taught: who has become too late since the last."""


UNORDERED = OrderedQueue(order=(), unreachable=())
"""Of a decision that takes nobody from the queue, or takes the first."""

_slack_s = itemgetter(0)


def order_by_slack(
    waiting: Sequence[WaitingRequest],
    *,
    now_s: float,
    latency: LatencyModel,
    sms: int,
    slowdown_ratio: float = 1.0,
    state: QueueState | None = None,
    short_of_slots: Collection[str] | None = None,
    only_aged: bool = False,
) -> OrderedQueue:
    """Sort by (aged and paid for, can still make it, class and share, slack); ties keep arrival order.

    `sms` are the SMs that the prefill would get, `slowdown_ratio` what it loses to others there;
    `short_of_slots` as `tenants_short_of_slots` has them. `only_aged`: no late request goes for being small,
    as where slots are short, of which each takes one whatever its length.
    Source: least-laxity scheduling, cut off at lateness.
    """
    state = state or QueueState()
    overload = state.overload
    live: list[tuple[float, WaitingRequest]] = []
    late: list[WaitingRequest] = []
    has_batch_class, add = False, live.append
    for request, alone_s in zip(waiting, latency.requests_s(waiting, sms), strict=True):
        deadline_s, arrival_s = request.deadline_s, request.arrival_s
        slack_s = deadline_s - now_s - slowdown_ratio * alone_s
        target_s = deadline_s - arrival_s
        if slack_s >= MARGIN_SHARE * target_s or (slack_s >= 0.0 and now_s - arrival_s <= 0.5 * target_s):
            add((slack_s, request))
            if request.priority_class == "batch":
                has_batch_class = True
        elif (by_ttft := _by_ttft(request, slack_s)) is not None:
            live.append(by_ttft)
            has_batch_class = has_batch_class or request.priority_class == "batch"
        else:
            late.append(request)
    live.sort(key=_slack_s)  # stable: those with the same slack in the order of arrival
    ordered = [request for _, request in live]
    new_late = [request for request in late if not request.is_deprioritized]
    if new_late:
        overload = overload.with_late(new_late)
    by, passed_over = QueueOrder.SLACK, frozenset[str]()
    if overload.is_on or short_of_slots:
        ordered, passed_over = overload.ordered(ordered, short_of_slots)
        by = QueueOrder.FAIR_SHARE
    elif has_batch_class:
        ordered.sort(key=_is_batch_class)
    late.sort(key=_arrival_s)
    unreachable = tuple(request.request_id for request in late)
    refused = tuple(request.request_id for request in late if request.refuses_late)
    if refused:
        late = [request for request in late if not request.refuses_late]
    paid = _paid_for(late, now_s, state.aged_credit_tokens, only_aged=only_aged)
    if paid is not None:
        late.remove(paid)
        order, by = (paid, *ordered, *late), QueueOrder.AGED
    else:
        order = (*ordered, *late)
    if overload is not state.overload:
        state = replace(state, overload=overload)
    return OrderedQueue(
        order=order,
        unreachable=unreachable,
        refused=refused,
        passed_over=passed_over,
        by=by,
        state=state,
    )


def tenants_short_of_slots(obs: Observation) -> Collection[str] | None:
    """The waiting tenants that hold few decode slots by weight beside another that waits; None while
    there are slots enough. Source: max-min fairness, of what is short (Ghodsi et al., NSDI 2011)."""
    if not obs.slots_held:
        return None
    held = dict(obs.slots_held)
    weights = {request.tenant: request.weight for request in obs.waiting}
    by_weight = {tenant: held.get(tenant, 0) / weight for tenant, weight in weights.items()}
    few = FEW_SLOTS_SHARE * max(by_weight.values(), default=0.0)
    return frozenset(tenant for tenant, slots in by_weight.items() if slots < few)


def admitted(queue: OrderedQueue, batch: Sequence[WaitingRequest], now_s: float) -> QueueState:
    """The state after `batch` was admitted. Aged requests spend the credit and the others earn it. All of
    them use their tenants' shares. A request that was passed over and is in time after all shows that there
    is room."""
    state = queue.state
    credit_tokens, overload = state.aged_credit_tokens, state.overload
    late = frozenset(queue.unreachable)
    for request in batch:
        if request.request_id in late:
            credit_tokens = max(0.0, credit_tokens - _price_tokens(request, now_s))
        else:
            credit_tokens += AGED_SHARE * request.new_tokens
    if overload.is_on and batch:
        overload = overload.with_admitted(
            batch, now_s=now_s, late=late, passed_over=queue.passed_over, waiting=queue.order
        )
    return QueueState(aged_credit_tokens=credit_tokens, overload=overload)


def form_prefill_batch(
    obs: Observation,
    *,
    queue: Sequence[WaitingRequest] | None = None,
    max_tokens: int | None = None,
) -> tuple[WaitingRequest, ...]:
    """The first waiting requests that fit into one prefill batch; empty if none does.

    `queue` is the order to take them in (default: arrival). The first request is taken whatever its
    length; more join while the batch stays within `max_tokens` and the engine's limit, and `is_whole` is the
    same. Nobody overtakes: the first that does not fit ends the batch.
    """
    limits = obs.limits
    if max_tokens is None or max_tokens > limits.max_prefill_tokens:
        max_tokens = limits.max_prefill_tokens
    decode_bs = obs.decode.bs + obs.sitting_out
    slots = limits.max_decode_bs - obs.slots_taken
    kv_tokens = obs.kv_free_tokens - DECODE_HEADROOM_TOKENS * decode_bs
    idle = decode_bs == 0 and obs.prefill is None and obs.preempted is None
    chosen: list[WaitingRequest] = []
    new_tokens = 0
    for request in obs.waiting if queue is None else queue:
        new_tokens += request.new_tokens
        kv_tokens -= request.new_tokens
        if len(chosen) >= slots or (kv_tokens < 0 and not (idle and not chosen)):
            break
        if chosen and (new_tokens > max_tokens or request.is_whole is not chosen[0].is_whole):
            break
        chosen.append(request)
    return tuple(chosen)


def form_timely_batch(
    obs: Observation,
    order: tuple[WaitingRequest, ...],
    unreachable: Collection[str],
    latency: LatencyModel,
    *,
    sms: int,
    max_tokens: int,
) -> tuple[WaitingRequest, ...]:
    """The same, but it grows only while none of its members comes too late because of the others, prefilled
    beside decode on `sms` SMs. Those in `unreachable` come too late anyway, and join nobody who does not."""
    fitting = form_prefill_batch(obs, queue=order, max_tokens=max_tokens)
    colocated_ratio = latency.colocated_ratio(sms)

    def is_in_time(batch: tuple[WaitingRequest, ...]) -> bool:
        due_s = min([r.deadline_s for r in batch if r.request_id not in unreachable], default=math.inf)
        return obs.now_s + colocated_ratio * latency.prefill_s(shape_of(batch), sms) <= due_s

    if unreachable:
        late = (i for i, request in enumerate(fitting) if i and request.request_id in unreachable)
        fitting = fitting[: next(late, len(fitting))]
    if len(fitting) < 2 or is_in_time(fitting):
        return fitting
    fits, too_many = 1, len(fitting)  # a longer batch ends later, and is due no later
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        if is_in_time(fitting[:middle]):
            fits = middle
        else:
            too_many = middle
    return fitting[:fits]


def begun_within(batch: Iterable[WaitingRequest], tokens: int) -> tuple[WaitingRequest, ...]:
    """Requests that begin in a step of so many prompt tokens; the others wait on."""
    begun: list[WaitingRequest] = []
    for request in batch:
        if tokens <= 0:
            break
        begun.append(request)
        tokens -= request.new_tokens
    return tuple(begun)


def fitting_within(
    batch: tuple[WaitingRequest, ...],
    tokens: int,
    unreachable: Collection[str],
    may_begin: Callable[[tuple[WaitingRequest, ...]], bool],
) -> tuple[WaitingRequest, ...]:
    """Requests of `batch`, in its order, in time that fit whole into so many prompt tokens, and the first
    that does not if it `may_begin`: the rest of it is for the next step. `may_begin` is given it and those
    after."""
    fitting: list[WaitingRequest] = []
    has_asked = False
    for index, request in enumerate(batch):
        if tokens <= 0:
            break
        if request.request_id in unreachable:
            continue
        if request.new_tokens > tokens:
            is_begun, has_asked = not has_asked and may_begin(batch[index:]), True
            if not is_begun:
                continue
        tokens -= request.new_tokens
        fitting.append(request)
    return tuple(fitting)


def shape_of(requests: tuple[WaitingRequest, ...]) -> PrefillShape:
    """The sums over a batch that latency depends on."""
    return PrefillShape.of([(r.new_tokens, r.reused_tokens) for r in requests])


def _by_ttft(request: WaitingRequest, slack_s: float) -> tuple[float, WaitingRequest] | None:
    """A request whose whole answer comes too late, by its first token alone, with the slack of that; None if
    that is too late as well, or was all that it had."""
    due_s = request.ttft_deadline_s
    if due_s is None:
        return None
    slack_s += due_s - request.deadline_s
    if slack_s < MARGIN_SHARE * (due_s - request.arrival_s):
        return None
    return slack_s, replace(request, deadline_s=due_s, ttft_deadline_s=None)


def _paid_for(
    late: Sequence[WaitingRequest], now_s: float, credit_tokens: float, *, only_aged: bool
) -> WaitingRequest | None:
    """The one of the late, oldest first, that goes first of all if there is credit for it: the smallest, or
    the oldest that has aged."""
    if not late:
        return None
    first = late[0] if only_aged else min(late, key=_new_tokens)
    if not only_aged and _price_tokens(first, now_s) <= credit_tokens:
        return first
    return late[0] if _has_aged(late[0], now_s) and late[0].new_tokens <= credit_tokens else None


def _price_tokens(request: WaitingRequest, now_s: float) -> int:
    """What a late request costs of the credit."""
    return request.new_tokens if _has_aged(request, now_s) else LATE_PRICE * request.new_tokens


def _new_tokens(request: WaitingRequest) -> int:
    return request.new_tokens


def _has_aged(request: WaitingRequest, now_s: float) -> bool:
    """Whether it has waited for half of what it may, or for the bound."""
    return now_s - request.arrival_s > min(AGEING_BOUND_S, 0.5 * (request.expires_s - request.arrival_s))


def _arrival_s(request: WaitingRequest) -> float:
    return request.arrival_s


def _is_batch_class(request: WaitingRequest) -> bool:
    return request.priority_class == "batch"
