"""Errors of the data plane in OpenAI's shape, and the one table from exceptions to HTTP answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from pdmuxd.daemon.httpd.asgi import Send
from pdmuxd.engine.core.errors import RequestError

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}

MAX_RETRY_AFTER_S = 60
"""OpenAI's clients do not wait for longer than this: they take a longer time for none, and try at once."""

Header = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A complete HTTP answer that the gateway gives by itself."""

    status: int
    body: bytes
    headers: tuple[Header, ...] = ()
    content_type: bytes = b"application/json"


def error_body(
    message: str,
    *,
    status: int,
    code: str,
    param: str | None = None,
    details: Mapping[str, object] | None = None,
) -> bytes:
    """OpenAI's error object as JSON, with `details` in it; `type` follows from the status."""
    kind = _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    error = {"message": message, "type": kind, "param": param, "code": code, **(details or {})}
    return msgspec.json.encode({"error": error})


def answer_for(error: RequestError, make_body: Callable[..., bytes] = error_body) -> Answer:
    """The HTTP answer that a refused request gets, with the body of an API."""
    headers: list[Header] = []
    if error.retry_after_s is not None:
        headers.append((b"retry-after", b"%d" % min(error.retry_after_s, MAX_RETRY_AFTER_S)))
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if error.allow:
        headers.append((b"allow", error.allow.encode()))
    body = make_body(
        str(error), status=error.status, code=error.code, param=error.param, details=error.details
    )
    return Answer(status=error.status, body=body, headers=tuple(headers))


async def send_answer(send: Send, answer: Answer, *, extra: tuple[Header, ...] = ()) -> None:
    """Send a complete answer in two messages."""
    headers = [
        (b"content-type", answer.content_type),
        (b"content-length", b"%d" % len(answer.body)),
        *answer.headers,
        *extra,
    ]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
