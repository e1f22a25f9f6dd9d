"""What a client is told whose connection or request is refused before the application sees it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from typing import Literal

import msgspec

from pdmuxd.controlplane.api.problems import MEDIA_TYPE, TYPE_PREFIX

_RETRY_AFTER_S = {429: 60, 503: 1}
Style = Literal["openai", "anthropic", "problem"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """One reason; `cause` is its label in the metrics and its code in the answer."""

    status: int
    cause: str
    message: str


MALFORMED = Refusal(status=400, cause="malformed", message="the request is not HTTP/1.1 as it should be")
BAD_HOST = Refusal(status=400, cause="bad_host", message="exactly one header `Host` is needed")
BAD_TARGET = Refusal(
    status=400,
    cause="bad_target",
    message="the request's target must be a path, without encoded slashes, backslashes or NUL",
)
BAD_ENCODING = Refusal(
    status=400, cause="bad_encoding", message="the only Transfer-Encoding that is taken is `chunked`"
)
TOO_MUCH_OVERHEAD = Refusal(
    status=400, cause="chunk_overhead", message="the body has far more chunk headers or trailers than data"
)
PIPELINED = Refusal(status=400, cause="pipelined", message="too many requests were sent ahead of answers")
HEADERS_TOO_LARGE = Refusal(
    status=431,
    cause="headers_too_large",
    message="the headers are larger or more than http.max_header_bytes and http.max_headers allow",
)
HEADER_TIMEOUT = Refusal(
    status=408, cause="header_timeout", message="no complete request came within http.header_timeout_s"
)
BODY_TIMEOUT = Refusal(
    status=408, cause="body_timeout", message="the body did not arrive within http.body_timeout_s"
)
FULL = Refusal(status=503, cause="connection_limit", message="there are as many connections as are allowed")
PEER_FULL = Refusal(
    status=503, cause="peer_limit", message="your address has as many connections as it is allowed"
)
OUT_OF_MEMORY = Refusal(
    status=503,
    cause="out_of_memory",
    message="the daemon has no memory for this request now; send a smaller one, or try again",
)

WRONG_KEYS = Refusal(
    status=429,
    cause="too_many_auth_failures",
    message="too many wrong keys came from your address; try again in a minute",
)

# These are not told: there is nobody who reads, or no request to answer.
NOT_READING = "not_reading"
EVICTED = "evicted"
UNREAD_BODY = "unread_body"


@cache
def render(refusal: Refusal, style: Style) -> bytes:
    """The whole HTTP answer, after which the connection is closed."""
    phrase = HTTPStatus(refusal.status).phrase
    body: dict[str, object]
    if style != "problem":
        kind = "server_error" if refusal.status >= 500 else "invalid_request_error"
        kind = "rate_limit_error" if refusal.status == 429 else kind
        if style == "anthropic" and refusal.status >= 500:
            kind = "overloaded_error"
        error = {"message": refusal.message, "type": kind, "param": None, "code": refusal.cause}
        body = {"error": error} if style == "openai" else {"type": "error", "error": error}
    else:
        body = {
            "type": TYPE_PREFIX + refusal.cause.replace("_", "-"),
            "title": phrase,
            "status": refusal.status,
            "detail": refusal.message,
            "field": None,
        }
    content = msgspec.json.encode(body)
    content_type = MEDIA_TYPE if style == "problem" else "application/json"
    lines = [
        f"HTTP/1.1 {refusal.status} {phrase}",
        f"content-type: {content_type}",
        f"content-length: {len(content)}",
        "connection: close",
        *([f"retry-after: {_RETRY_AFTER_S[refusal.status]}"] if refusal.status in _RETRY_AFTER_S else []),
    ]
    return "\r\n".join([*lines, "", ""]).encode() + content
