"""When keys and admin tokens end: what may be asked for, and whether it is over."""

from __future__ import annotations

import time
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


def has_ended(expires_at_s: float | None, now_s: float | None = None) -> bool:
    """Whether a key or token of that end is over; by the wall clock unless `now_s` (Unix time) is given."""
    return expires_at_s is not None and (time.time() if now_s is None else now_s) >= expires_at_s
