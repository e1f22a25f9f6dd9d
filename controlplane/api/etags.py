"""What guards an edit: versions as entity tags in `If-Match` and in answers, and `force`."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import Header, Query, Response
from pydantic import AfterValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

_PATTERN = r'^(\*|"[0-9]{1,18}"|[0-9]{1,18})$'
_FORM = re.compile(_PATTERN)


def _well_formed(text: str) -> str:
    text = text.strip()
    if _FORM.fullmatch(text) is None:
        shown = ascii(text[:40])
        sentence = f'If-Match is {shown}; allowed are a version such as "3", or *'
        raise PydanticCustomError("sentence", "{text}", {"text": sentence, "field": "If-Match"})
    return text


IfMatch = Annotated[
    Annotated[str, AfterValidator(_well_formed), WithJsonSchema({"type": "string", "pattern": _PATTERN})]
    | None,
    Header(description="Only if this is still the version: the ETag of what is changed.", examples=['"3"']),
]


Force = Annotated[bool, Query(description="Set targets that are predicted to be infeasible.")]


def expected_version(if_match: str | None) -> int | None:
    """The version that must hold; None if any may."""
    return None if if_match in (None, "*") else int(if_match.strip('"'))


def tag(response: Response, version: int) -> None:
    """Give the answer its version."""
    response.headers["ETag"] = f'"{version}"'
