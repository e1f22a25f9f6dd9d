"""Whether an answer's status is one that the OpenAPI document of its plane declares for that call."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any


def undeclared(document: Mapping[str, Any], method: str, path: str, status: int) -> str | None:
    """What is wrong, or None."""
    method = "get" if method == "HEAD" else method.lower()
    found = document["paths"].get(path) or next(
        (item for known, item in document["paths"].items() if _matches(known, path)), {}
    )
    if method not in found:
        return None
    declared = found[method]["responses"]
    if str(status) in declared:
        return None
    return f"{method.upper()} {path} was answered with {status}, and OpenAPI declares {', '.join(declared)}"


def _matches(known: str, path: str) -> bool:
    return "{" in known and re.fullmatch(re.sub(r"\{[^/]+\}", "[^/]+", known), path) is not None
