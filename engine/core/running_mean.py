"""The running mean that every estimate is: of the newest value counts a share, of the first ones more."""

from __future__ import annotations

LAST_20, LAST_50 = 0.05, 0.02
"""Weights of the newest value: about so many of the latest count."""

LOWEST, HIGHEST = 0.7, 1.5
"""What is typical over a prediction stays within these: beyond them the profile is of another device."""


def blended(mean: float, seen: float, weight: float) -> float:
    """The mean after one more value."""
    return mean + weight * (seen - mean)


def weight_after(steps: int, weight: float = LAST_20) -> float:
    """The weight of one more value after so many: as in a plain mean, until `weight` is more."""
    return max(weight, 1.0 / (steps + 1))


def within(ratio: float) -> float:
    """The nearest ratio between `LOWEST` and `HIGHEST`."""
    return min(HIGHEST, max(LOWEST, ratio))
