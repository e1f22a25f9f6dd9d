"""One request of the suite, and what its answer is held against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MODEL = "{model}"
"""Stands in a body where the served model's name goes."""
CHAT, TEXT, GENERATE = "/v1/chat/completions", "/v1/completions", "/generate"
RESPONSES, MESSAGES, COUNT = "/v1/responses", "/v1/messages", "/v1/messages/count_tokens"
TOKENIZE, DETOKENIZE, MODELS, SCORE = "/tokenize", "/detokenize", "/v1/models", "/v1/score"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One request."""

    name: str
    path: str
    body: Any = None
    """JSON; a text is sent as it is, None sends no body."""
    method: str = "POST"
    headers: Mapping[str, str | None] | None = None
    """None for a header's value: it is not sent."""
    schema: Mapping[str, Any] | None = None
    """What the answer's text, or its tool's arguments, must fit."""
    begins: str | None = None
    """What the answer's text begins with."""


def cases_of(
    prefix: str, path: str, base: Mapping[str, Any], table: Mapping[str, Mapping[str, Any]], **more: Any
) -> list[Case]:
    """A case for each entry of a table: the base's fields, and its own in their place; `...` leaves one out.

    `schema_` and `begins_` are what the answer is held against, and are not sent.
    """
    made = []
    for name, fields in table.items():
        held = {key[:-1]: value for key, value in fields.items() if key in ("schema_", "begins_")}
        given = {**base, **{key: value for key, value in fields.items() if key[:-1] not in held}}
        body = {key: value for key, value in given.items() if value is not ...}
        made.append(Case(name=f"{prefix}: {name}", path=path, body=body, **held, **more))
    return made
