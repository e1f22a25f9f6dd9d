"""Numbers, times and text from elsewhere, as people read them."""

from __future__ import annotations

from datetime import datetime, tzinfo

NONE = "-"
"""Not known, or nothing to measure."""


def count(value: float | None) -> str:
    """Format a count in at most five cells: 999, 1.2K, 34K, 1.2M."""
    if value is None:
        return NONE
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "K")):
        if abs(value) >= limit * 0.9995:
            scaled = value / limit
            return f"{scaled:.1f}{unit}" if abs(scaled) < 9.95 else f"{scaled:.0f}{unit}"
    return f"{value:.0f}"


def rate(value: float | None) -> str:
    """Format a rate per second: a decimal below 10, then as `count`."""
    if value is None:
        return NONE
    return f"{value:.1f}" if abs(value) < 9.95 else count(value)


def ms(value: float | None) -> str:
    """Milliseconds in at most five cells: 8.1, 38, 901, 12.3s, 600s."""
    if value is None:
        return NONE
    if abs(value) < 9.95:
        return f"{value:.1f}"
    if abs(value) < 9999.5:
        return f"{value:.0f}"
    return f"{value / 1000:.1f}s" if abs(value) < 99_950 else f"{value / 1000:.0f}s"


def percent(ratio: float | None, digits: int = 0) -> str:
    """0.993 as 99%, or with a digit 99.3%; never 100% while something is missing."""
    if ratio is None:
        return NONE
    value = ratio * 100
    text = f"{value:.{digits}f}"
    if ratio < 1.0 and float(text) >= 100.0:
        text = f"{100 - 10**-digits:.{digits}f}" if digits else "99"
    return f"{text}%"


def ratio(value: float | None) -> str:
    """A factor such as a guard's: 1.27."""
    return NONE if value is None else f"{value:.2f}"


def duration(seconds: float) -> str:
    """An age: 0.4 s, 12 s, 3 min, 2 h 05, 4 d."""
    if seconds < 1.0:
        return f"{max(0.0, seconds):.1f} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    if seconds < 172_800:
        return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60):02}"
    return f"{seconds / 86_400:.0f} d"


def clock(at: datetime | None, zone: tzinfo | None = None) -> str:
    """The time of day, in `zone` or this machine's."""
    return NONE if at is None else f"{at.astimezone(zone):%H:%M:%S}"


def moment(at: datetime | None, now: datetime | None, zone: tzinfo | None = None) -> str:
    """The time of day if it is of the same day as `now`, else the day, else the month."""
    if at is None:
        return NONE
    local, today = at.astimezone(zone), (now or at).astimezone(zone)
    if local.date() == today.date():
        return clock(at, zone)
    return f"{local.day} {local:%b}" if local.year == today.year else f"{local:%b %Y}"


def instant(at: datetime | None, zone: tzinfo | None = None) -> str:
    """Day and time."""
    return NONE if at is None else f"{at.astimezone(zone):%Y-%m-%d %H:%M:%S}"


def number(text: str) -> float | None:
    """What a person typed, or None if it is not a number."""
    try:
        value = float(text.strip().replace(",", "."))
    except ValueError:
        return None
    return value if value == value and abs(value) != float("inf") else None


def plain(value: float) -> str:
    """A setting without a needless fraction, to be edited."""
    return f"{value:.15g}"
