"""Ranges of parameters in the OpenAPI document. They are checked by our own code, for its messages."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import WithJsonSchema


def one_of(values: Iterable[str]) -> WithJsonSchema:
    """One of these texts."""
    return WithJsonSchema({"type": "string", "enum": list(values)})


def like(pattern: str) -> WithJsonSchema:
    """A text of this form."""
    return WithJsonSchema({"type": "string", "pattern": pattern})
