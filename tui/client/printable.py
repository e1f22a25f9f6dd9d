"""Texts that come from elsewhere, made safe for a terminal."""

from __future__ import annotations

import unicodedata


def printable(text: str) -> str:
    """Text from a log or a problem without anything that a terminal would act upon."""
    expanded = text.expandtabs(4)
    return "".join("·" if unicodedata.category(char)[0] == "C" else char for char in expanded)
