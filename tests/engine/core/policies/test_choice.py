"""Fused steps or a split, by hand (LinearLatency): a decode step of 34 requests on 68 SMs takes 66 ms."""

from __future__ import annotations

from typing import Any

import pytest
from observations import linear_context, observe, waiting

from pdmuxd.engine.core.policies.base import Plan, PlanKind
from pdmuxd.engine.core.policies.choice import FUSED_LIMIT_S, fused_or_split
from pdmuxd.engine.core.policies.slots import SlotUse
from pdmuxd.engine.core.types import DecisionNumbers, Reason, WaitingRequest

CONTEXT = linear_context()
TABLE = CONTEXT.table()
GROUP = 4
"""64 SMs for prefill, 68 for decode."""
STEP_S = 0.066
TARGET_S, MOST_DECODING = 0.1, 41
"""With a guard of 1.25, 41 requests take 99.5 ms on 68 SMs and 42 take 101.9."""
OTHER = waiting(9, 9000)


def taken(
    *,
    split_s: float,
    fused_s: float,
    kind: PlanKind = PlanKind.FUSED,
    batch: tuple[WaitingRequest, ...] = (waiting(1, 100),),
    behind: tuple[WaitingRequest, ...] = (),
    from_group: int = 0,
    meets: bool = True,
    prefill_ratio: float = 1.0,
    slot_use: SlotUse | None = None,
    lasts: bool = True,
) -> Plan:
    numbers = DecisionNumbers(predicted_decode_s=STEP_S, guard_ratio=1.25)
    split = Plan(
        kind=PlanKind.SPLIT,
        partition_id=GROUP,
        reason=Reason.BEST_FIT,
        meets=meets,
        finish_s=split_s,
        decode_steps=1,
        numbers=numbers,
    )
    fused = Plan(
        kind=kind,
        partition_id=7,
        reason=Reason.FUSED_FITS,
        meets=lasts,
        finish_s=fused_s,
        prompt_tokens=100,
    )
    obs = observe(
        partition_id=from_group, decode_bs=34, tbt_target_s=TARGET_S, queue=(*batch, *behind), now_s=1.0
    )
    plan, rejected = fused_or_split(
        obs,
        batch,
        split,
        fused,
        context=CONTEXT,
        table=TABLE,
        prefill_ratio=prefill_ratio,
        slot_use=slot_use,
    )
    if kind is PlanKind.FUSED:
        assert rejected[-1].label == ("split" if plan.kind is kind else "fused")
    return plan


def chosen(**given: Any) -> PlanKind:
    return taken(**given).kind


@pytest.mark.parametrize(("fused_s", "kind"), [(0.315, PlanKind.FUSED), (0.317, PlanKind.SPLIT)])
def test_the_step_until_its_end_is_seen_counts_when_nobody_waits_behind(
    fused_s: float, kind: PlanKind
) -> None:
    assert chosen(split_s=0.25, fused_s=fused_s) is kind


@pytest.mark.parametrize(("fused_s", "kind"), [(0.262, PlanKind.FUSED), (0.264, PlanKind.SPLIT)])
def test_the_rate_counts_when_others_wait_behind(fused_s: float, kind: PlanKind) -> None:
    """A fifth of a step of 66 ms is for the hand-over: 250 ms count as 263."""
    assert chosen(split_s=0.25, fused_s=fused_s, behind=(OTHER,)) is kind


@pytest.mark.parametrize(
    ("behind_tokens", "fused_s", "kind"),
    [
        (1, 0.197, PlanKind.FUSED),
        (1, 0.199, PlanKind.SPLIT),
        (100, 0.229, PlanKind.FUSED),
        (100, 0.231, PlanKind.SPLIT),
        (101, 0.197, PlanKind.FUSED),
        (101, 0.199, PlanKind.SPLIT),
    ],
)
def test_fused_steps_wait_for_a_step_once_when_the_last_batch_was_split(
    behind_tokens: int, fused_s: float, kind: PlanKind
) -> None:
    """The step of 66 ms is shared by as many batches of 100 tokens as wait, without longer prompts."""
    behind = (waiting(9, behind_tokens),)
    assert chosen(split_s=0.25, fused_s=fused_s, behind=behind, from_group=GROUP) is kind
    assert chosen(split_s=0.25, fused_s=fused_s, from_group=GROUP) is PlanKind.FUSED


@pytest.mark.parametrize(("fused_s", "kind"), [(0.078, PlanKind.FUSED), (0.080, PlanKind.SPLIT)])
def test_a_short_batch_takes_a_whole_step_when_it_is_split(fused_s: float, kind: PlanKind) -> None:
    assert chosen(split_s=0.02, fused_s=fused_s, behind=(OTHER,)) is kind


@pytest.mark.parametrize(("joining", "kind"), [(7, PlanKind.SPLIT), (8, PlanKind.FUSED)])
def test_a_split_waits_for_a_step_when_it_cannot_go_on_with_those_that_join(
    joining: int, kind: PlanKind
) -> None:
    assert MOST_DECODING == 34 + 7
    batch = tuple(waiting(number, 10) for number in range(joining))
    assert chosen(split_s=0.25, fused_s=0.28, batch=batch, behind=(OTHER,)) is kind


def test_it_is_fused_when_the_split_misses_the_target() -> None:
    assert chosen(split_s=0.25, fused_s=9.0, behind=(OTHER,), meets=False) is PlanKind.FUSED


def test_it_is_split_when_its_last_chunks_would_miss_the_target_and_the_split_does_not() -> None:
    assert chosen(split_s=0.25, fused_s=0.1, lasts=False) is PlanKind.SPLIT
    assert chosen(split_s=0.25, fused_s=0.1, lasts=False, meets=False) is PlanKind.FUSED


def test_it_is_split_when_its_chunks_could_not_be_preempted_for_long() -> None:
    assert chosen(split_s=9.0, fused_s=FUSED_LIMIT_S, behind=(OTHER,)) is PlanKind.FUSED
    assert chosen(split_s=9.0, fused_s=FUSED_LIMIT_S + 0.001, behind=(OTHER,)) is PlanKind.SPLIT


def test_prefills_that_take_longer_than_predicted_count_as_that_when_a_split_is_weighed() -> None:
    assert chosen(split_s=0.25, fused_s=0.28, behind=(OTHER,)) is PlanKind.SPLIT
    assert chosen(split_s=0.25, fused_s=0.28, behind=(OTHER,), prefill_ratio=1.2) is PlanKind.FUSED


@pytest.mark.parametrize(
    ("prefill_ratio", "fused_s", "behind", "told"),
    [
        (1.2, 0.315, (), None),
        (1.2, 0.317, (), 1.2),  # the split is seen to end in 316 ms by prediction
        (1.2, 0.365, (), 1.2),
        (1.2, 0.367, (), None),
        (0.8, 0.315, (), 0.8),
        (0.8, 0.265, (), None),
        (1.2, 0.264, (OTHER,), 1.2),
        (1.2, 0.262, (OTHER,), None),
        (1.0, 0.317, (), None),
    ],
)
def test_what_prefills_take_is_told_where_it_made_the_choice(
    prefill_ratio: float, fused_s: float, behind: tuple[WaitingRequest, ...], told: float | None
) -> None:
    given: dict[str, Any] = {"split_s": 0.25, "fused_s": fused_s, "behind": behind}
    plan, as_predicted = taken(prefill_ratio=prefill_ratio, **given), taken(**given)
    assert plan.numbers.prefill_ratio == told
    assert (plan.kind is not as_predicted.kind) == (told is not None)
    assert plan.numbers.predicted_decode_s == (STEP_S if plan.kind is PlanKind.SPLIT else None)


@pytest.mark.parametrize(("fused_s", "told"), [(0.19, None), (0.21, 1.2), (0.25, None)])
def test_it_is_told_of_a_batch_that_runs_whole_alike(fused_s: float, told: float | None) -> None:
    plan = taken(split_s=0.25, fused_s=fused_s, kind=PlanKind.WHOLE, prefill_ratio=1.2)
    assert plan.numbers.prefill_ratio == told


def test_it_is_not_told_when_the_split_misses_the_target_anyway() -> None:
    assert taken(split_s=0.25, fused_s=0.35, meets=False, prefill_ratio=1.2).numbers.prefill_ratio is None


@pytest.mark.parametrize(
    ("answer_tokens", "fused_s", "kind"),
    [(0, 0.20, PlanKind.FUSED), (200, 0.20, PlanKind.SPLIT), (200, 0.33, PlanKind.SPLIT)],
)
def test_the_slower_of_prefill_and_slots_counts_when_slots_are_short(
    answer_tokens: int, fused_s: float, kind: PlanKind
) -> None:
    """With 34 slots: a split's steps of 66 ms let a request through every 66 x 200 / 34 = 388 ms, fused steps
    of 134 tokens one every 134 x 201 / 34 = 792 ms. The prefill is faster either way, in fused steps."""
    use = SlotUse(slots=34, answer_tokens=answer_tokens)
    assert chosen(split_s=0.25, fused_s=fused_s, behind=(OTHER,), slot_use=use) is kind


def test_steps_that_take_longer_than_predicted_hold_slots_for_longer() -> None:
    """400 ms of slots in a split, 0.25 s of prefill, against 0.3 s of prefill in fused steps of 134 tokens,
    whose 85 answer tokens hold slots for 339 ms."""
    use = SlotUse(slots=34, answer_tokens=85, split_step_ratio=1.0)
    assert chosen(split_s=0.25, fused_s=0.3, behind=(OTHER,), slot_use=use) is PlanKind.SPLIT
    use = SlotUse(slots=34, answer_tokens=85, split_step_ratio=2.5)
    assert chosen(split_s=0.25, fused_s=0.3, behind=(OTHER,), slot_use=use) is PlanKind.FUSED
