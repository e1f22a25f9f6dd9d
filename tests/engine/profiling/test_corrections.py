"""What is corrected of a predictor, from ratios of measured to predicted seconds."""

from __future__ import annotations

import pytest

from pdmuxd.engine.link.predictors import Correction
from pdmuxd.engine.profiling.corrections import (
    BOUNDS,
    CORRECT_AFTER,
    DRIFT,
    SETTLE_S,
    STEP,
    Change,
    Corrections,
)


def told(
    corrections: Corrections,
    ratio: float,
    *,
    steps: int = CORRECT_AFTER,
    colocated: bool = False,
    now_s: float = 0.0,
    sms: int = 36,
) -> list[Change]:
    """What changes after so many steps that took `ratio` times their prediction."""
    note = corrections.colocated if colocated else corrections.alone
    for _ in range(steps):
        note("decode", sms, ratio, now_s)
    return list(corrections.changes(now_s))


def test_nothing_changes_before_there_are_steps_enough() -> None:
    corrections = Corrections()
    assert told(corrections, 1.2, steps=CORRECT_AFTER - 1) == []
    (change,) = told(corrections, 1.2, steps=1)
    assert (change.predictor, change.sms, change.kind) == ("decode", 36, "corrected")


@pytest.mark.parametrize("ratio", [1.0, 1.0 + 0.9 * DRIFT, 1.0 - 0.9 * DRIFT])
def test_a_small_deviation_is_no_drift(ratio: float) -> None:
    assert told(Corrections(), ratio) == []


@pytest.mark.parametrize(
    ("ratio", "after"), [(1.04, 1.04), (1.5, 1.0 + STEP), (0.96, 0.96), (0.5, 1.0 - STEP)]
)
def test_one_correction_moves_by_the_drift_and_never_far(ratio: float, after: float) -> None:
    (change,) = told(Corrections(), ratio)
    assert (change.before, change.after) == (1.0, pytest.approx(after))
    assert f"{ratio:.3f}" in change.evidence


@pytest.mark.parametrize(("ratio", "bound"), [(1.5, BOUNDS[1]), (0.5, BOUNDS[0])])
def test_corrections_stay_within_bounds_and_the_predictor_is_named(ratio: float, bound: float) -> None:
    corrections, now_s, changes = Corrections(), 0.0, []
    for _ in range(20):
        changes += told(corrections, ratio, now_s=now_s)
        now_s += SETTLE_S
    assert changes[-1].after == bound
    assert all(BOUNDS[0] <= change.after <= BOUNDS[1] for change in changes)
    assert corrections.at_bound == ("decode on 36 SMs",)
    assert sum(change.at_bound for change in changes) == 1, "told once"
    told(corrections, 1.0, now_s=now_s)
    assert corrections.at_bound == ("decode on 36 SMs",), "as long as the bound is what holds it"


def test_records_of_the_predictor_before_are_ignored_after_a_correction() -> None:
    corrections = Corrections()
    assert len(told(corrections, 1.2)) == 1
    assert told(corrections, 1.2, now_s=0.9 * SETTLE_S) == []
    assert len(told(corrections, 1.2, now_s=SETTLE_S)) == 1


def test_steps_beside_prefill_say_too_low_only_when_even_the_fastest_are_slower() -> None:
    corrections = Corrections()
    for _ in range(CORRECT_AFTER):
        corrections.colocated("decode", 36, 1.3, 0.0)
        corrections.colocated("decode", 36, 1.0, 0.0)
    assert list(corrections.changes(0.0)) == [], "contention, no drift"
    (change,) = told(Corrections(), 1.2, colocated=True)
    assert change.after == pytest.approx(1.0 + STEP)
    assert "fastest tenth" in change.evidence
    (change,) = told(Corrections(), 0.9, colocated=True)
    assert change.after == pytest.approx(1.0 - STEP)


def test_steps_alone_count_before_those_beside_prefill() -> None:
    corrections = Corrections()
    for _ in range(CORRECT_AFTER):
        corrections.colocated("decode", 36, 2.0, 0.0)
    assert told(corrections, 1.0) == []


def test_each_sm_count_is_corrected_by_itself() -> None:
    corrections = Corrections()
    assert [change.sms for change in told(corrections, 1.2, sms=36)] == [36]
    assert [change.sms for change in told(corrections, 1.2, sms=52)] == [52]


def test_a_reset_puts_a_predictor_back_and_what_is_stored_is_gone_on_from() -> None:
    corrections = Corrections()
    corrections.adopt([Correction(sms=36, prefill_ratio=1.0, decode_ratio=1.1, fused_ratio=1.0)], now_s=0.0)
    (change,) = told(corrections, 1.04)
    assert (change.before, change.after) == (1.1, pytest.approx(1.1 * 1.04))
    corrections.adopt([], now_s=SETTLE_S)
    assert told(corrections, 1.04, now_s=SETTLE_S + 0.1) == [], "until records are of the predictor as it was"
    (change,) = told(corrections, 1.04, now_s=3 * SETTLE_S)
    assert change.before == 1.0
