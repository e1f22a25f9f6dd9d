"""The engine's own key: only the daemon that started the process knows it."""

from __future__ import annotations

from hmac import compare_digest

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from pdmuxd.engine.emulator.server.refusals import error_response, refuse

OPEN_PATHS = frozenset({"/health"})


class BearerKey:
    """Middleware that answers 401 to requests without the key; without a key it lets everything pass."""

    def __init__(self, app: ASGIApp, *, key: str | None) -> None:
        self._app = app
        self._key = key.encode() if key is not None else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if self._key is None or scope["type"] != "http" or scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        scheme, _, given = Headers(scope=scope).get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and compare_digest(given.strip().encode(), self._key):
            await self._app(scope, receive, send)
            return
        refusal = refuse("the engine's key is missing or wrong", code="invalid_api_key", status=401)
        await error_response(refusal)(scope, receive, send)
