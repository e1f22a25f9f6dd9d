"""The numbers behind a decision, in words."""

from __future__ import annotations

import pytest

from pdmuxd.tui.show.reasons import Why, numbers


@pytest.mark.parametrize(
    ("mode", "guard_ratio", "margin_ratio", "text"),
    [
        ("split", 1.2, None, "25 ms predicted × 1.20 guard = 30 ms at worst, slack 4.0 ms"),
        ("fused", None, 1.12, "25 ms predicted × 1.12 margin = 28 ms for all but a few, slack 4.0 ms"),
        ("fused", None, None, "25 ms predicted, slack 4.0 ms"),
    ],
)
def test_a_prediction_is_told_with_what_moved_it(
    mode: str, guard_ratio: float | None, margin_ratio: float | None, text: str
) -> None:
    why = Why(
        reason="",
        mode=mode,
        predicted_ms=25.0,
        guard_ratio=guard_ratio,
        margin_ratio=margin_ratio,
        slack_ms=4.0,
    )
    assert numbers(why) == text


@pytest.mark.parametrize(
    ("mode", "prefill_ratio", "split_ratio", "text"),
    [
        (
            "fused",
            1.3,
            None,
            "would be split if layers did not take 1.30 × their prediction",
        ),
        (
            "split",
            0.9,
            None,
            "would be fused if layers did not take 0.90 × their prediction",
        ),
        (
            "split",
            None,
            1.25,
            "decode beside layers takes 1.25 × its prediction, so it has more SMs than its "
            "target needs and frees slots sooner",
        ),
    ],
)
def test_what_made_the_decision_another_one_is_told(
    mode: str, prefill_ratio: float | None, split_ratio: float | None, text: str
) -> None:
    why = Why(reason="", mode=mode, predicted_ms=25.0, prefill_ratio=prefill_ratio, split_ratio=split_ratio)
    assert numbers(why) == f"25 ms predicted; {text}"


def test_a_target_is_told_with_what_is_left_of_it_for_delivery() -> None:
    why = Why(reason="", predicted_ms=25.0, tbt_ms=50.0, delivery_ms=6.0, slack_ms=25.0)
    assert numbers(why) == "25 ms predicted, target 50 ms less 6.0 ms of delivery, slack 25 ms"
