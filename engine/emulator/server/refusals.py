"""Errors in OpenAI's shape, or Anthropic's on its path: bodies of refused requests, events of streams."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from pdmuxd.engine.core.errors import RequestError

MESSAGES = "/v1/messages"
_TYPES = {401: "authentication_error", 404: "not_found_error"}


def refuse(
    message: str, *, param: str | None = None, code: str = "invalid_value", status: int = 400
) -> RequestError:
    """Make the error of a request that is refused for its content."""
    return RequestError(message, status=status, code=code, param=param)


def error_body(error: RequestError, path: str = "") -> bytes:
    """The error object of a path's API as JSON: Anthropic's, else OpenAI's."""
    kind = _TYPES.get(error.status, "server_error" if error.status >= 500 else "invalid_request_error")
    found = {"message": str(error), "type": kind, "param": error.param, "code": error.code}
    return msgspec.json.encode({"type": "error", "error": found} if path == MESSAGES else {"error": found})


def error_event(error: RequestError, path: str = "") -> bytes:
    """One server-sent event that tells a client why its stream ends early."""
    head = b"event: error\n" if path == MESSAGES else b""
    return head + b"data: " + error_body(error, path) + b"\n\n"


def error_response(error: RequestError, path: str = "") -> Response:
    """The HTTP answer that a refused request gets."""
    headers = {"www-authenticate": "Bearer"} if error.status == 401 else None
    return Response(error_body(error, path), error.status, headers, "application/json")


async def handle_request_error(request: Request, error: Exception) -> Response:
    """Starlette's handler for RequestError."""
    assert isinstance(error, RequestError)  # noqa: S101 - a narrowing: registered for this type alone
    return error_response(error, request.url.path)
