"""What a policy sees and what it answers: `Observation -> policy -> Decision`.

Plain frozen values, no I/O, no clock: `now_s` is a field. All times are seconds on one monotonic
clock of the engine; all sizes are tokens, layers or SMs, as the names say.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from pdmuxd.engine.core.slo import DEFAULT_PRIORITY_CLASS, DEFAULT_SLO, DEFAULT_WEIGHT, PriorityClass


class Mode(StrEnum):
    """How the next engine step uses the device."""

    IDLE = "idle"
    SPLIT = "split"
    """Decode and layer-wise prefill on the two partitions of a group; either side may be empty."""
    FUSED = "fused"
    """One batch of decode tokens, if any decode, and a chunk of prefill tokens on all SMs."""
    DECODE = "decode"
    """Decode by itself on all SMs, as the stock engine runs it."""

    @property
    def is_one_batch(self) -> bool:
        """Whether all that runs is one batch on all SMs, on the decode stream."""
        return self in (Mode.FUSED, Mode.DECODE)


class PrefillMode(StrEnum):
    """How a prefill batch advances; a batch never changes its mode."""

    LAYERWISE = "layerwise"
    CHUNKED = "chunked"


class Reason(StrEnum):
    """Why a decision was taken. Expected situations are reasons, not exceptions."""

    NOTHING_TO_DO = "nothing_to_do"
    WAIT_FOR_PREFILL = "wait_for_prefill"
    PREFILL_ALONE = "prefill_alone"
    DECODE_ALONE = "decode_alone"
    FIXED_SPLIT = "fixed_split"
    DECODE_BS_RULE = "decode_bs_rule"
    TOKEN_BUDGET = "token_budget"  # noqa: S105 - prompt tokens, not a credential
    BEST_FIT = "best_fit"
    FUSED_FITS = "fused_fits"
    HIGHEST_THROUGHPUT = "highest_throughput"
    PREFILL_FIRST = "prefill_first"
    HOLD_FOR_BATCH = "hold_for_batch"
    PREDICTIONS_WRONG = "predictions_wrong"
    TBT_INFEASIBLE = "tbt_infeasible"
    SWITCH_WHEN_DRAINED = "switch_when_drained"
    PREEMPT_WHEN_DRAINED = "preempt_when_drained"
    PREEMPTED_FOR_SHORTER = "preempted_for_shorter"
    RESUMED = "resumed"
    TOO_LONG_FOR_MEMORY = "too_long_for_memory"
    IMAGES_WHOLE = "images_whole"
    PREFILL_FINISHED = "prefill_finished"
    """Of the record of a layer-wise prefill that ran beside decode; no policy answers it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillShape:
    """The sums over a prefill batch that its latency depends on (MuxWise eq. 1).

    n is a request's new tokens, r its reused (cached) tokens.
    """

    bs: int
    new_tokens: int
    reused_tokens: int
    sum_new_squared: int
    sum_new_times_reused: int

    @classmethod
    def of(cls, lengths: Sequence[tuple[int, int]]) -> PrefillShape:
        """Build from (new_tokens, reused_tokens) pairs, one per request."""
        new = reused = squared = cross = 0
        for n, r in lengths:
            new += n
            reused += r
            squared += n * n
            cross += n * r
        return cls(
            bs=len(lengths),
            new_tokens=new,
            reused_tokens=reused,
            sum_new_squared=squared,
            sum_new_times_reused=cross,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillGraph:
    """A captured prefill: `batch` requests, each padded to `length` new tokens."""

    length: int
    batch: int

    @property
    def tokens(self) -> int:
        """What it computes, padding included."""
        return self.length * self.batch


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeShape:
    """A decode batch: its size and the KV tokens that one step reads (MuxWise eq. 2)."""

    bs: int
    reused_tokens: int
    max_context_tokens: int = 0
    """The longest context of a request in it; 0 where nobody looked."""

    @classmethod
    def of(cls, contexts: Sequence[int]) -> DecodeShape:
        """Sum a batch up from the context tokens of its requests."""
        return cls(bs=len(contexts), reused_tokens=sum(contexts), max_context_tokens=max(contexts, default=0))


NO_DECODE = DecodeShape(bs=0, reused_tokens=0)


class DecodingRequest(NamedTuple):
    """A request of the decode batch. A tuple, since there are hundreds of them in an observation."""

    request_id: str
    tbt_target_s: float
    context_tokens: int
    last_token_s: float
    """When it was last in a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingRequest:
    """A request that has not been prefilled; `new_tokens` is an estimate until it is admitted.

    `deadline_s` is the instant its first token is due: arrival plus its tenant's TTFT target, or earlier
    where the whole answer has a target too.
    """

    request_id: str
    tenant: str
    arrival_s: float
    deadline_s: float
    new_tokens: int
    reused_tokens: int
    tbt_target_s: float
    priority_class: PriorityClass = DEFAULT_PRIORITY_CLASS
    weight: float = DEFAULT_WEIGHT
    """Its tenant's part of what the tenants of a class share, in relation to theirs."""
    refuses_late: bool = False
    """Its tenant would rather have an error than a first token that comes too late."""
    is_deprioritized: bool = False
    """A decision has named it in `deprioritize`."""
    expires_s: float = math.inf
    """The instant until which it may wait."""
    ttft_deadline_s: float | None = None
    """Where `deadline_s` is earlier, for the whole answer to be in time: when the first token is due by its
    own target."""
    is_whole: bool = False
    """Its images are prefilled whole: it is in no chunk, and in no batch with decode or with those of which
    this is not true."""


def slice_bounds(tokens: int, slices: int, number: int) -> tuple[int, int]:
    """Where a slice begins and ends, the first being number 0, of a prompt's new tokens cut into so many."""
    return tokens * number // slices, tokens * (number + 1) // slices


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillView:
    """A prefill batch in progress.

    LAYERWISE: `layers_launched` were handed to the device, `layers_done` have finished; the
    difference is in flight. Where `slices` is over 1, these and what a decision launches count slices of
    layers. CHUNKED: `done_tokens` of `shape.new_tokens` have been prefilled, in fused
    steps, so that nothing of it is in flight on the prefill stream.
    """

    batch_id: int
    mode: PrefillMode
    requests: tuple[WaitingRequest, ...]
    shape: PrefillShape
    earliest_deadline_s: float
    layers_launched: int = 0
    layers_done: int = 0
    done_tokens: int = 0
    was_preempted: bool = False
    slices: int = 1
    """Into how many parts of the prompt's tokens each layer is cut."""

    @property
    def layers_in_flight(self) -> int:
        """Layers handed to the device that have not finished."""
        return self.layers_launched - self.layers_done


LEAST_SLICE_TOKENS = 2048
"""With fewer in a slice, what each one reads again, and its launches, would count: products of so many rows
take as long for a token as larger ones (one H200, Llama-8B)."""

SET_ASIDE_RATIO = 0.25
"""Of the memory for a running prefill's activations, what one that is set aside keeps: the hidden states and
the residual of its tokens. At its peak a layer has ten and more vectors of that size, most of them the
MLP's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    """What the engine can hold, whatever the policy."""

    max_prefill_tokens: int = 16384
    """New tokens of one prefill batch; a longer single request still forms a batch of its own."""
    max_whole_tokens: int | None = None
    """New tokens that memory holds the activations of; a longer prompt is prefilled in chunks. None: any."""
    max_decode_bs: int = 256
    """The largest batch with a captured CUDA graph."""
    waiting_window: int = 256
    """How many waiting requests an observation shows, oldest first."""
    max_set_aside: int = 8
    """Prefills by layers that may be set aside at the same time, if memory holds them."""
    least_slice_tokens: int | None = LEAST_SLICE_TOKENS
    """What a slice of a layer has of a prompt's tokens at least. None: layers are not cut."""

    def holds(self, new_tokens: int) -> bool:
        """Whether so many can be prefilled whole."""
        return self.max_whole_tokens is None or new_tokens <= self.max_whole_tokens

    def whole_tokens_beside(self, set_aside: Sequence[PrefillView]) -> float:
        """New tokens that can be prefilled whole while so many are set aside."""
        if self.max_whole_tokens is None:
            return math.inf
        return self.max_whole_tokens - SET_ASIDE_RATIO * sum(unit.shape.new_tokens for unit in set_aside)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """Everything a policy may look at, at one safe point of the engine's loop."""

    now_s: float
    partition_id: int
    """Index into the partition table of the group in force."""
    decode: DecodeShape
    tbt_target_s: float | None
    """The strictest TBT target among decoding requests; None when nothing decodes."""
    last_token_s: float
    """When the decode batch last produced tokens; the running gap is `now_s - last_token_s`."""
    prefill: PrefillView | None
    set_aside: tuple[PrefillView, ...]
    """Prefills by layers that were overtaken, in the order in which they go on (invariant 3)."""
    waiting: Sequence[WaitingRequest]
    """At most `limits.waiting_window`, in arrival order; the deprioritized behind, some of them always."""
    waiting_count: int
    kv_free_tokens: int
    """Free plus evictable; the engine checks again when it admits."""
    limits: EngineLimits
    settings_version: int
    decoding: tuple[DecodingRequest, ...] = ()
    """The decode batch, if its requests have several TBT targets and the engine can decode a part of it;
    else empty."""
    sitting_out: int = 0
    """Decoding requests that `decode` leaves out since they wait for a later step: slots and KV are theirs
    all the same."""
    slots_held: tuple[tuple[str, int], ...] = ()
    """By tenant, the requests with a decode slot; empty unless slots are short and several tenants wait."""
    answer_tokens: tuple[tuple[str, float], ...] = ()
    """By tenant that waits or is prefilled, the tokens that its answers usually have; empty unless
    `are_slots_short`."""

    @property
    def preempted(self) -> PrefillView | None:
        """The one of those set aside that goes on first."""
        return self.set_aside[0] if self.set_aside else None

    @property
    def under_way(self) -> tuple[PrefillView, ...]:
        """The prefill that runs, if one does, and those behind it, in the order in which they go on."""
        return self.set_aside if self.prefill is None else (self.prefill, *self.set_aside)

    @property
    def slots_taken(self) -> int:
        """Slots of `limits.max_decode_bs` that are taken: by all that decode, and by prompts under way, which
        will."""
        return self.decode.bs + self.sitting_out + sum([unit.shape.bs for unit in self.under_way])

    @property
    def are_slots_short(self) -> bool:
        """Whether more requests wait than decode slots are free."""
        return self.waiting_count > self.limits.max_decode_bs - self.slots_taken


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """A choice that was looked at and rejected, with its prediction."""

    label: str
    predicted_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionNumbers:
    """The numbers behind a decision; None where the policy did not predict."""

    predicted_decode_s: float | None = None
    """Solo-run decode step on the chosen partition."""
    predicted_prefill_s: float | None = None
    """Solo-run prefill of the whole batch on the chosen partition."""
    predicted_fused_s: float | None = None
    guard_ratio: float | None = None
    margin_ratio: float | None = None
    """Few fused steps like this one take longer than so many times what is predicted, by what was learned."""
    stall_room_s: float | None = None
    """By so much steps were planned shorter, so that one that stalls is in time; None where they were not."""
    prefill_ratio: float | None = None
    """Prefills by layers typically take so many times what is predicted, by what was learned; None where the
    choice between a split and fused steps would be the same if they took what is predicted."""
    split_ratio: float | None = None
    """Decode steps beside layers typically take so many times what is predicted alone; None where decode got
    no more SMs for it than the target asks for."""
    tbt_target_s: float | None = None
    delivery_s: float | None = None
    """What the step left of that target for its tokens' way to the client; None where nothing was left."""
    tbt_slack_s: float | None = None
    """Target minus worst-case decode; negative when no split meets it."""


NO_NUMBERS = DecisionNumbers()


class QueueOrder(StrEnum):
    """What decided who is prefilled next."""

    ARRIVAL = "arrival"
    DEADLINE = "deadline"
    """Earliest deadline first."""
    SLACK = "slack"
    """Least slack first; nobody had to be passed over."""
    FAIR_SHARE = "fair_share"
    """There is more work than time, or than decode slots: class, share of each tenant, and lot decide before
    slack does."""
    AGED = "aged"
    """One that has waited for long was paid for by the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What the engine does until the next safe point.

    SPLIT: the engine launches `decode_steps` steps first, then `prefill_layers` layers, or a chunk of at
    most `token_budget` prompt tokens, on the other partition. FUSED: one batch of at most `token_budget`
    tokens; the decode batch is in it if `decode_steps` is 1. DECODE: one step of the decode batch. It asks
    again when the last of the decode steps is done, or when the prefill stream is empty if nothing decodes.
    IDLE: it asks again when something changes, or at `wake_at_s`.
    """

    mode: Mode
    partition_id: int
    """FUSED and DECODE: the one whose decode side has all SMs, on whose stream such a step runs."""
    reason: Reason
    decode_steps: int = 0
    prefill_layers: int = 0
    slices: int = 1
    """SPLIT, with `admit`: each layer of the batch is launched in so many parts of its tokens, and
    `prefill_layers` counts these, now and later."""
    token_budget: int = 0
    admit: tuple[str, ...] = ()
    """Waiting requests, in order, that become the next prefill batch (SPLIT) or fill the budget (FUSED)."""
    preempt: bool = False
    """Set the running prefill aside for `admit`. FUSED: the prompt in chunks sits this step out."""
    chunk_last: bool = False
    """FUSED: `admit` is prefilled whole in this step, and the prompt in chunks has the rest of the budget."""
    resume: bool = False
    """Take the prefill up again that was set aside last."""
    deprioritize: tuple[str, ...] = ()
    """Requests whose deadline is unreachable, and long ones that hide short ones: seen last from now on."""
    refuse: tuple[str, ...] = ()
    """Of the requests whose deadline is unreachable: those that end with an error now."""
    order: QueueOrder = QueueOrder.ARRIVAL
    """What decided who is in `admit`."""
    blocking_merge: bool = False
    """Wait for the prefill stream before the next safe point: an ablation of query-based synchronisation."""
    wake_at_s: float | None = None
    """IDLE only: requests are held back on purpose until then."""
    sits_out: tuple[str, ...] = ()
    """Decoding requests that are not in this step and get a token with a later one."""
    prefill_graph: PrefillGraph | None = None
    """Run the batch that `admit` starts as this captured graph, all layers at once; SPLIT or FUSED. The
    engine uses the standard kernel if what it admits does not fit it after all."""
    numbers: DecisionNumbers = NO_NUMBERS
    rejected: tuple[Alternative, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedback:
    """What a predicted step really took: decode beside a prefill (SPLIT), or a fused batch (FUSED)."""

    mode: Mode

    partition_id: int
    prefill: PrefillShape
    decode: DecodeShape
    predicted_s: float
    measured_s: float
    attainment_ratio: float = DEFAULT_SLO.attainment_ratio
    """Of the gaps, how many have to be in time: of all tenants' targets the strictest."""
    follows_split: bool = False
    """The step before ran beside layers: what was in flight had to end first, and that is in `measured_s`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillSample:
    """What one request's finished prefill took in compute and in KV traffic, on the whole device.

    Of a graph batch: one of its requests, at the captured length and the batch's mean of reused tokens.
    """

    new_tokens: int
    reused_tokens: int
    compute_s: float
    memory_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillFeedback:
    """What the layers of a finished prefill took, all on one number of SMs."""

    sms: int
    was_alone: bool
    """Nothing ran beside them."""
    predicted_s: float | None
    """Alone; None if nobody predicted it."""
    measured_s: float
    """Without the time in which none of its layers ran."""
    sample: PrefillSample | None = None
    """Its parts, of one that was alone on all SMs."""
