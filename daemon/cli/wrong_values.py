"""What is wrong with a value on the command line, in the words of the command line.

typer has pydantic read the values, whose messages name neither the value nor, for a number, its range.
"""

from __future__ import annotations

import re
from typing import Any

import typer
from pydantic import ValidationError

KINDS = {
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing_size": "a whole number of fewer digits",
    "float_parsing": "a number",
    "bool_parsing": "true or false",
}
"""What is allowed, by pydantic's name of the error."""
BOUNDS = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "more than"),
    "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "less than"),
}
"""The same of a number outside of its range: where the bound stands, and how it is said."""
NEGATIVE = re.compile(r"-\d[\d.]*")


def in_words(error: typer.TyperException) -> str | None:
    """The sentence for a value that cannot be read or is out of range; None for any other error."""
    name = getattr(error, "option_name", "")
    if NEGATIVE.fullmatch(name):
        return f"{name} is read as an option; write -- before a negative number"
    cause = error.__cause__
    if not isinstance(cause, ValidationError):
        return None
    first = cause.errors(include_url=False)[0]
    allowed = _allowed(str(first["type"]), first.get("ctx") or {})
    if allowed is None:
        return None
    return f"Invalid value{_where(error)}: {str(first['input'])!r} is not {allowed}"


def _allowed(kind: str, context: dict[str, Any]) -> str | None:
    if kind in BOUNDS:
        key, words = BOUNDS[kind]
        return f"allowed; it must be {words} {context[key]:g}"
    return KINDS.get(kind)


def _where(error: typer.TyperException) -> str:
    param = getattr(error, "param", None)
    return "" if param is None else f" for {param.get_error_hint()}"
