"""What the split policies share: the cases of an observation, and the rule for switching groups.

A decision of a split policy runs decode on one partition and layers of one prefill batch on the other.
The policies differ in which group they want and how many layers they launch; the cases around it do not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from pdmuxd.engine.core.batching import form_prefill_batch, shape_of
from pdmuxd.engine.core.partitions import PartitionTable
from pdmuxd.engine.core.types import (
    NO_NUMBERS,
    Alternative,
    Decision,
    DecisionNumbers,
    Mode,
    Observation,
    PrefillShape,
    Reason,
    WaitingRequest,
)

ALONE_SLICE_S = 0.2
"""Work launched at a time when nothing decodes: long enough to keep the device fed, short enough for an
abort, a preemption or a new setting to be seen soon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The prefill that a decision is about: the one in progress, or one to admit."""

    shape: PrefillShape
    layers_left: int
    layers_in_flight: int
    admit: tuple[str, ...] = ()
    resume: bool = False
    preempt: bool = False

    @property
    def is_new(self) -> bool:
        """Whether this decision starts it on the device."""
        return bool(self.admit) or self.resume


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a policy wants for a decode batch beside a prefill."""

    partition_id: int
    layers: int
    reason: Reason
    numbers: DecisionNumbers = NO_NUMBERS
    rejected: tuple[Alternative, ...] = ()


def next_work(obs: Observation, layers: int) -> Work | None:
    """The prefill in progress; else the set-aside one; else a new batch; else None."""
    if obs.prefill is not None:
        running = obs.prefill
        return Work(
            shape=running.shape,
            layers_left=layers - running.layers_launched,
            layers_in_flight=running.layers_in_flight,
        )
    if obs.preempted is not None:
        return Work(
            shape=obs.preempted.shape,
            layers_left=layers - obs.preempted.layers_launched,
            layers_in_flight=0,
            resume=True,
        )
    batch = form_prefill_batch(obs)
    return new_work(batch, layers) if batch else None


def new_work(batch: tuple[WaitingRequest, ...], layers: int, *, preempt: bool = False) -> Work:
    """A batch that is to start, or to overtake the running one."""
    return Work(
        shape=shape_of(batch),
        layers_left=layers,
        layers_in_flight=0,
        admit=tuple(r.request_id for r in batch),
        preempt=preempt,
    )


def drain_to_preempt(obs: Observation) -> Decision:
    """Decode goes on and no layer is launched, so that the next safe point is a layer boundary."""
    return Decision(
        mode=Mode.SPLIT,
        partition_id=obs.partition_id,
        decode_steps=1 if obs.decode.bs else 0,
        reason=Reason.PREEMPT_WHEN_DRAINED,
    )


def decide_split(
    obs: Observation,
    table: PartitionTable,
    work: Work | None,
    *,
    plan: Callable[[Work], Plan],
    alone_layers: Callable[[Work], int],
) -> Decision:
    """Sort the cases; ask `plan` only when decode and prefill are both there.

    A group changes only when no prefill layer is in flight (invariant 2): until then decode goes on in
    the group in force and no layer is launched, which drains the prefill stream within a step.
    """
    decode_steps = 1 if obs.decode.bs else 0
    if work is None:
        if not decode_steps:
            return Decision(mode=Mode.IDLE, partition_id=obs.partition_id, reason=Reason.NOTHING_TO_DO)
        return Decision(
            mode=Mode.SPLIT, partition_id=table.decode_only, decode_steps=1, reason=Reason.DECODE_ALONE
        )
    if decode_steps:
        wanted = plan(work)
    else:
        wanted = Plan(partition_id=table.PREFILL_ONLY, layers=alone_layers(work), reason=Reason.PREFILL_ALONE)
    if wanted.partition_id != obs.partition_id and work.layers_in_flight:
        return Decision(
            mode=Mode.SPLIT,
            partition_id=obs.partition_id,
            decode_steps=decode_steps,
            reason=Reason.SWITCH_WHEN_DRAINED,
            numbers=wanted.numbers,
        )
    layers = min(wanted.layers, work.layers_left)
    reason = wanted.reason
    if not decode_steps and not layers:
        reason = Reason.WAIT_FOR_PREFILL
    elif work.preempt:
        reason = Reason.PREEMPTED_FOR_SHORTER
    elif work.resume:
        reason = Reason.RESUMED
    return Decision(
        mode=Mode.SPLIT,
        partition_id=wanted.partition_id,
        reason=reason,
        decode_steps=decode_steps,
        prefill_layers=layers,
        admit=work.admit,
        preempt=work.preempt,
        resume=work.resume,
        numbers=wanted.numbers,
        rejected=wanted.rejected,
    )


def layers_for(duration_s: float, prefill_s: float, layers: int) -> int:
    """Layers whose prefill covers `duration_s`: N_PL = ceil(T_d * N_T / T_p), at least one.

    T_d is the worst case: a step slowed by contention must not outlast the layers beside it.

    Source: MuxWise section 3.4.2.
    """
    if prefill_s <= 0.0:
        return layers
    return max(1, math.ceil(duration_s * layers / prefill_s))
