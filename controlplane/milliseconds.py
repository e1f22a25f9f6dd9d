"""Seconds inside, milliseconds outside: the conversion at the edge."""

from __future__ import annotations


def to_ms(seconds: float) -> float:
    """Milliseconds, to the nanosecond, so that 0.0637 s reads 63.7 and not 63.70000000000001."""
    return round(seconds * 1000, 6)


def from_ms(milliseconds: float) -> float:
    """Seconds."""
    return milliseconds / 1000
