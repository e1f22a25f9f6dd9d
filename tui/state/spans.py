"""How far back charts look, and what of the daemon's history they are filled with."""

from __future__ import annotations

from dataclasses import dataclass

DAY_S = 86_400
TENANT_STEP_S = 600
"""Of a tenant's last day; its last half hour is by the minute."""


@dataclass(frozen=True, slots=True)
class Span:
    """A length of time, and how long the points are that the daemon is asked for."""

    name: str
    length_s: int
    step_s: int


SPANS = (Span("5 min", 300, 5), Span("30 min", 1800, 5), Span("24 h", DAY_S, 300))
"""One key goes from each to the next. Seconds are kept for half an hour, minutes for days."""

DAY = SPANS[-1]


def is_day(span: Span) -> bool:
    """Whether it is longer than what is kept by the second."""
    return span.length_s >= DAY_S


def after(span: Span) -> Span:
    """The next span."""
    return SPANS[(SPANS.index(span) + 1) % len(SPANS)]
