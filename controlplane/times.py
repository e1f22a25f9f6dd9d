"""Instants that come from outside."""

from __future__ import annotations

from datetime import datetime, timedelta

from pdmuxd.engine.core.errors import InvalidValueError

LIFETIME_MAX = timedelta(days=3660)
EXPIRY_ALLOWED = "an instant with a zone, later than now, within ten years, such as 2027-01-31T12:00:00Z"


LIFETIME_RANGE_S = (60, int(LIFETIME_MAX.total_seconds()) - 86400)
"""A day less than what `check_expiry` allows, for clocks that differ."""
LIFETIME_ALLOWED = f"null, and {LIFETIME_RANGE_S[0]} to {LIFETIME_RANGE_S[1]}"


def end_after(lifetime_s: int | None, *, now: datetime) -> datetime | None:
    """When what begins now is over; None if never."""
    return None if lifetime_s is None else now + timedelta(seconds=lifetime_s)


def check_expiry(expires_at: datetime | None, *, now: datetime) -> None:
    """Raises: InvalidValueError for an end that is over, or so far off that it is a typing mistake."""
    if expires_at is None:
        return
    if expires_at.tzinfo is None or not now < expires_at <= now + LIFETIME_MAX:
        raise InvalidValueError(
            "expires_at", f"expires_at is {expires_at.isoformat()}; allowed is {EXPIRY_ALLOWED}"
        )


EARLIEST_S, LATEST_S = 31_536_000.0, 7_258_118_400.0
"""The years 1971 to 2200: instants that can be asked for, with room for arithmetic in any zone."""
