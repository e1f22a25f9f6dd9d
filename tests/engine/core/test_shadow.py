"""What a shadow is asked, and how its decisions are compared with those that were carried out."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from observations import linear_context, observe, running_prefill, took, waiting

from pdmuxd.engine.core.partitions import Partition, PartitionTable
from pdmuxd.engine.core.policies.base import PolicyContext
from pdmuxd.engine.core.shadow import EVERY_S, Shadow, ShadowTally
from pdmuxd.engine.core.types import (
    Decision,
    DecisionNumbers,
    Feedback,
    Mode,
    Observation,
    Reason,
)

CONTEXT = linear_context()


def table_of(*splits: tuple[int, int]) -> PartitionTable:
    partitions = tuple(Partition(prefill_sms=prefill, decode_sms=decode) for prefill, decode in splits)
    return PartitionTable(rules=CONTEXT.rules, splits=partitions)


TABLE = table_of((96, 36), (72, 60))
"""Groups: 0 prefill alone, 1 and 2 the splits, 3 decode alone."""
OTHERS = table_of((72, 60))
"""Groups: 0 prefill alone, 1 the split, 2 decode alone."""
QUEUE = (waiting(1, 1000), waiting(2, 500))


def decided(
    mode: Mode = Mode.SPLIT,
    partition_id: int = 2,
    *,
    admit: tuple[str, ...] = ("r1",),
    steps: int = 1,
    slack_s: float | None = None,
) -> Decision:
    return Decision(
        mode=mode,
        partition_id=partition_id,
        reason=Reason.TOKEN_BUDGET,
        decode_steps=steps,
        admit=admit,
        numbers=replace(DecisionNumbers(), tbt_slack_s=slack_s),
    )


@dataclass
class Scripted:
    """Decides what it is told to; its state counts what it has decided and learned."""

    decision: Decision
    table: PartitionTable = field(default_factory=lambda: OTHERS)
    context: PolicyContext = CONTEXT
    name: str = "scripted"
    asked: list[Observation] = field(default_factory=list)
    learned: list[Feedback] = field(default_factory=list)

    def initial_state(self) -> object:
        return 0

    def decide(self, obs: Observation, state: Any) -> tuple[Decision, object]:
        self.asked.append(obs)
        return self.decision, state + 1

    def learn(self, feedback: Feedback, state: Any) -> object:
        self.learned.append(feedback)
        return state + 10

    def adopt(self, state: Any, before: PolicyContext, *, is_refined: bool) -> object:
        return state, before, is_refined


def shadow_of(decision: Decision, table: PartitionTable = OTHERS) -> tuple[Shadow, Scripted]:
    policy = Scripted(decision, table)
    return Shadow.of(policy), policy  # type: ignore[arg-type]


def tally(acting: Decision, shadow: Decision) -> ShadowTally:
    return shadow_of(shadow)[0].after(observe(queue=QUEUE, decode_bs=4), acting, TABLE).tally


def test_decisions_with_the_same_sizes_and_requests_are_the_same_whatever_their_groups_numbers() -> None:
    found = tally(decided(partition_id=2), decided(partition_id=1))
    assert found == ShadowTally(decisions=1, same=1, prefill_sms=72, shadow_prefill_sms=72)


@pytest.mark.parametrize(
    ("shadow", "differs_in"),
    [
        (decided(Mode.FUSED, 2), "other_mode"),
        (decided(partition_id=1, admit=("r2",)), "other_requests"),
        (decided(partition_id=0), "other_split"),
        (decided(partition_id=0, admit=("r2",)), "other_split"),
        (decided(Mode.FUSED, 2, admit=("r2",)), "other_mode"),
    ],
)
def test_of_two_decisions_the_first_thing_that_differs_is_counted(shadow: Decision, differs_in: str) -> None:
    found = tally(decided(), shadow)
    counts = {name: getattr(found, name) for name in ("same", "other_mode", "other_split", "other_requests")}
    assert counts == dict.fromkeys(counts, 0) | {differs_in: 1}


@pytest.mark.parametrize("steps", [0, 1])
def test_one_that_admits_nobody_only_decodes_or_waits(steps: int) -> None:
    """Whatever mode it names: it begins no prefill, and gives prefill no SMs."""
    found = tally(decided(), decided(partition_id=1, admit=(), steps=steps))
    assert (found.other_mode, found.shadow_prefill_sms, found.prefill_sms) == (1, 0, 72)
    both = tally(decided(admit=(), steps=steps), decided(Mode.FUSED, 2, admit=(), steps=steps))
    assert (both.same, both.prefill_sms) == (1, 0)
    other = tally(decided(admit=(), steps=steps), decided(Mode.FUSED, 2, admit=(), steps=1 - steps))
    assert other.other_mode == 1


def test_a_fused_step_counts_as_all_sms() -> None:
    found = tally(decided(Mode.FUSED, 3), decided(Mode.FUSED, 2))
    assert (found.same, found.prefill_sms, found.shadow_prefill_sms) == (1, 132, 132)


def test_late_is_who_misses_the_target_by_its_own_prediction() -> None:
    found = tally(decided(slack_s=-0.001), decided(partition_id=1, slack_s=0.0))
    assert (found.late, found.shadow_late) == (1, 0)
    found = tally(decided(slack_s=None), decided(partition_id=1, slack_s=-0.001))
    assert (found.late, found.shadow_late) == (0, 1)


def test_tallies_and_states_add_up() -> None:
    shadow, policy = shadow_of(decided(partition_id=1))
    for number in range(3):
        shadow = shadow.after(observe(queue=QUEUE, decode_bs=4, now_s=float(number)), decided(), TABLE)
    shadow = shadow.after(observe(queue=QUEUE, now_s=9.0), decided(Mode.FUSED, 3, slack_s=-1.0), TABLE)
    assert shadow.tally == ShadowTally(
        decisions=4, same=3, other_mode=1, late=1, prefill_sms=3 * 72 + 132, shadow_prefill_sms=4 * 72
    )
    assert (shadow.state, len(policy.asked)) == (4, 4)


def test_it_sees_the_group_in_force_as_its_own_of_that_size() -> None:
    for group, own in ((2, 1), (3, 2), (1, OTHERS.PREFILL_ONLY)):
        shadow, policy = shadow_of(decided(partition_id=1))
        shadow.after(observe(queue=QUEUE, decode_bs=4, partition_id=group), decided(), TABLE)
        assert [obs.partition_id for obs in policy.asked] == [own]


@pytest.mark.parametrize(
    "obs",
    [
        observe(decode_bs=4),
        observe(queue=QUEUE, prefill=running_prefill(100)),
        observe(queue=QUEUE, preempted=running_prefill(100)),
    ],
)
def test_it_is_asked_only_where_a_prefill_may_begin(obs: Observation) -> None:
    shadow, policy = shadow_of(decided(partition_id=1))
    assert shadow.after(obs, decided(), TABLE) is shadow
    assert not policy.asked


def test_it_is_asked_now_and_then_only() -> None:
    shadow, policy = shadow_of(decided(partition_id=1))
    for now_s in (0.0, 0.5 * EVERY_S, EVERY_S, 1.5 * EVERY_S, 2.5 * EVERY_S):
        shadow = shadow.after(observe(queue=QUEUE, now_s=now_s), decided(), TABLE)
    assert [obs.now_s for obs in policy.asked] == [0.0, EVERY_S, 2.5 * EVERY_S]


def test_it_learns_from_steps_in_splits_that_it_has() -> None:
    shadow, policy = shadow_of(decided(partition_id=1))
    step = took(Mode.SPLIT, predicted_s=0.01, measured_s=0.02, partition_id=2)
    after = shadow.learned(step, TABLE)
    assert after.state == 10
    assert policy.learned == [replace(step, partition_id=1)]
    assert after.learned(replace(step, partition_id=1), TABLE) is after, "it has no split of 96 and 36"


def test_another_context_keeps_what_was_counted() -> None:
    shadow = shadow_of(decided(partition_id=1))[0].after(observe(queue=QUEUE), decided(), TABLE)
    other = Scripted(decided(partition_id=1))
    adopted = shadow.adopted_by(other, is_refined=True)  # type: ignore[arg-type]
    assert adopted.tally == shadow.tally
    assert (adopted.policy, adopted.state) == (other, (1, CONTEXT, True))
