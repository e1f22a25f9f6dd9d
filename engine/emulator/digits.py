"""Numbers for files that are kept."""

from __future__ import annotations

DIGITS = 6


def rounded(value: object) -> object:
    """Round all floats in a value, however deep, to DIGITS digits: more digits say nothing and take room."""
    match value:
        case float():
            return float(f"{value:.{DIGITS}g}")
        case dict():
            return {name: rounded(one) for name, one in value.items()}
        case list() | tuple():
            return [rounded(one) for one in value]
    return value
