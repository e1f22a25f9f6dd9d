"""Predictions on SM counts that were not measured, from those that were.

Between two measured counts a time is taken as `a + b / n` on n SMs: a part that more SMs make faster, and one
that they do not (as `profiling/device_law.py` has each cost of prefill). Beyond all of them it is the
roofline's, off as far as on the count at that end. Source: docs/decisions/0096, where each count in turn was
left out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection

MIN_COUNTS = 3
"""With two measured counts the roofline is better between them: from 8 and 132 SMs decode was 8.5% off on
seven between (p50; the roofline 3.2), from 16, 48 and 132 it was 2.1% on five (3.3; Llama-8B, one H200,
2026-11-23)."""


def between_counts(
    sms: int, measured: Collection[int], of: Callable[[int], float], position: Callable[[int], float] = float
) -> float | None:
    """What `of` is on `sms` SMs, by the nearest of the counts `measured` on either side of it.

    `position` says what a count is worth: how many SMs it is as fast as. None where `sms` is beyond all of
    them, or they are fewer than MIN_COUNTS.
    """
    if len(measured) < MIN_COUNTS:
        return None
    at = position(sms)
    placed = sorted((position(n), n) for n in measured)
    above = bisect_left(placed, (at,))
    if above == len(placed) or (above == 0 and placed[0][0] > at):
        return None
    right, right_sms = placed[above]
    if right == at:
        return of(right_sms)
    left, left_sms = placed[above - 1]
    share = (1.0 / at - 1.0 / right) / (1.0 / left - 1.0 / right)
    return share * of(left_sms) + (1.0 - share) * of(right_sms)


def predict_s(
    sms: int,
    measured: Collection[int],
    measured_s: Callable[[int], float],
    roofline_s: Callable[[int], float],
    position: Callable[[int], float] = float,
) -> float:
    """Seconds on a count that is not among those `measured`; the roofline's where they are fewer than
    MIN_COUNTS."""
    between_s = between_counts(sms, measured, measured_s, position)
    if between_s is not None:
        return between_s
    told_s = roofline_s(sms)
    if len(measured) < MIN_COUNTS:
        return told_s
    end = min(measured, key=lambda n: abs(position(n) - position(sms)))
    known_s = roofline_s(end)
    return told_s * measured_s(end) / known_s if known_s > 0.0 else told_s
