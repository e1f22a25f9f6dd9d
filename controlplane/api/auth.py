"""The admin token: asked for on every path but the few that machines probe."""

from __future__ import annotations

import base64
import binascii

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from pdmuxd.controlplane.api.problems import problem
from pdmuxd.controlplane.credentials import matches

OPENAPI_PATH = "/api/v1/openapi.json"
DOCS_PATH = "/docs"
PUBLIC_PATHS = frozenset({"/healthz", "/readyz", "/metrics"})
BROWSER_PATHS = frozenset({OPENAPI_PATH, DOCS_PATH})
"""Read-only pages for which a browser may ask its user: any name, the token as the password.

Nowhere else, because a browser sends such a password along with what other sites make it send.
"""


class AdminAuth:
    """ASGI middleware that lets a call pass only with the admin token."""

    def __init__(self, app: ASGIApp, *, token_sha256: str) -> None:
        self._app = app
        self._token_sha256 = token_sha256

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the call on or answer 401."""
        if scope["type"] != "http" or scope["path"] in PUBLIC_PATHS:
            await self._app(scope, receive, send)
            return
        in_browser = scope["path"] in BROWSER_PATHS
        token = _token(Headers(scope=scope).get("authorization", ""), allow_basic=in_browser)
        if token is not None and matches(token, self._token_sha256):
            await self._app(scope, receive, send)
            return
        detail = (
            "the admin token is missing; send it as: Authorization: Bearer TOKEN"
            if token is None
            else "this is not the admin token"
        )
        challenge = f'{"Basic" if in_browser else "Bearer"} realm="pdmuxd admin"'
        answer = problem(401, "unauthorized", detail, headers={"WWW-Authenticate": challenge})
        await answer(scope, receive, send)


def _token(authorization: str, *, allow_basic: bool) -> str | None:
    scheme, _, value = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return value.strip() or None
    if scheme.lower() == "basic" and allow_basic:
        try:
            return base64.b64decode(value, validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            return None
    return None
