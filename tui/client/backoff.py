"""How long to wait before the next attempt to connect."""

from __future__ import annotations

FIRST_S = 0.5
MOST_S = 10.0
REFUSED_S = 5.0
"""The wait after a refused token or another API version, which do not go away within a second."""


def delay_s(failures: int, *, is_refused: bool = False) -> float:
    """Seconds after so many failures in a row: doubling, never longer than `MOST_S`."""
    doubled = FIRST_S * 2.0 ** min(16, max(0, failures - 1))
    return min(MOST_S, max(doubled, REFUSED_S if is_refused else 0.0))
