"""Durations on the command line, such as 90d."""

from __future__ import annotations

import re
from typing import Annotated

import typer

_FORM = re.compile(r"(\d{1,7})([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_ALLOWED = "a number with s, m, h, d or w, such as 90d"

Expires = Annotated[
    str | None,
    typer.Option("--expires", metavar="DURATION", help="End after this: 12h, 90d. Left out: never."),
]


def duration_s(text: str, flag: str) -> float:
    """Seconds. Raises: BadParameter."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise typer.BadParameter(f"{flag} is {text!r}; allowed are {_ALLOWED}")
    return float(int(found[1]) * _SECONDS[found[2]])


def lifetime_of(expires: str | None) -> int | None:
    """Seconds, for the REST interface; None if it never ends. Raises: BadParameter."""
    return None if expires is None else int(duration_s(expires, "--expires"))
