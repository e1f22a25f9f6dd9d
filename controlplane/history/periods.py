"""Minutes, hours and days: how a stretch of time is put together from the longest of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pdmuxd.engine.core.errors import InvalidValueError

MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86400
STEPS_S = (MINUTE_S, HOUR_S, DAY_S)
"""What is stored; days begin at midnight UTC."""
EARLIEST_S, LATEST_S = 31_536_000.0, 7_258_118_400.0
"""The years 1971 to 2200: instants that can be asked for, with room for arithmetic in any zone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Periods of one length, from `start_s` until before `end_s`, Unix time."""

    step_s: int
    start_s: int
    end_s: int


def begin_of(at_s: int, step_s: int) -> int:
    """When the period of `at_s` begins."""
    return at_s // step_s * step_s


def stored_step_s(step_s: int) -> int:
    """The longest stored period that divides `step_s`. Raises: InvalidValueError if there is none."""
    for stored_s in reversed(STEPS_S):
        if step_s % stored_s == 0:
            return stored_s
    raise InvalidValueError("step_s", f"step_s is {step_s}; allowed are 1 to 59 and multiples of 60")


def segments(start_s: int, end_s: int, *, minutes_kept_since_s: float) -> list[Segment]:
    """The fewest periods that make up the time from `start_s` until before `end_s`.

    Raises: InvalidValueError if an edge lies within a minute, or within an hour whose minutes are dropped.
    """
    for name, at_s in (("from", start_s), ("to", end_s)):
        if at_s % MINUTE_S:
            raise InvalidValueError(name, f"{name} is within a minute; allowed are whole minutes")
        if at_s % HOUR_S and at_s < minutes_kept_since_s:
            raise InvalidValueError(name, f"{name} is so long ago that only whole hours are known")
    return [segment for segment in _split(start_s, end_s, STEPS_S) if segment.start_s < segment.end_s]


def _split(start_s: int, end_s: int, steps_s: tuple[int, ...]) -> Iterator[Segment]:
    *shorter, step_s = steps_s
    inner_start_s, inner_end_s = -(-start_s // step_s) * step_s, end_s // step_s * step_s
    if not shorter:
        yield Segment(step_s=step_s, start_s=start_s, end_s=end_s)
    elif inner_start_s >= inner_end_s:
        yield from _split(start_s, end_s, tuple(shorter))
    else:
        yield from _split(start_s, inner_start_s, tuple(shorter))
        yield Segment(step_s=step_s, start_s=inner_start_s, end_s=inner_end_s)
        yield from _split(inner_end_s, end_s, tuple(shorter))
