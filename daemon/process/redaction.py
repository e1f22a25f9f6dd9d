"""Keeps keys, tokens and passwords out of what people and log collectors read."""

from __future__ import annotations

import re
from functools import lru_cache

MASK = "***"

_PATTERNS = (
    (re.compile(r"\b(pdm[ar]?_)[A-Za-z0-9_-]{8,}"), rf"\1{MASK}"),
    (re.compile(r"(?i)\b(bearer|basic)(\s+)[^\s\"',;]+"), rf"\1\2{MASK}"),
    (re.compile(r"(?<=://)([^/?#\s:@]*):[^/?#\s]*@"), rf"\1:{MASK}@"),
    (re.compile(r"(?i)([?&](?:password|passwd|sslpassword|token|api_key)=)[^&#\s]+"), rf"\1{MASK}"),
)
_SUSPICIOUS = re.compile(r"(?i)pdm|bearer|basic|://|[?&]")
"""What all of these have something of; few texts do, and the others need no second look."""
_SECRET_NAME = re.compile(
    r"(?i)(^|[_-])(authorization|cookie|password|passwd|secret|token|api[_-]?key|admin[_-]?key)$"
)


def mask_text(text: str) -> str:
    """Replace what looks like an API key, an Authorization value or a password in a URL."""
    if _SUSPICIOUS.search(text) is None:
        return text
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text


def mask_url(url: str) -> str:
    """A database URL without its password; hidden as a whole if it is no URL."""
    return mask_text(url) if "://" in url else MASK


@lru_cache(maxsize=1024)
def names_secret(name: str) -> bool:
    """Whether a field of this name holds a secret, such as `admin_token`, not `output_tokens`."""
    return _SECRET_NAME.search(name) is not None
