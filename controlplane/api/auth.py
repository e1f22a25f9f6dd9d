"""Who may do what on the admin address: one token for everything, another that only reads."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any, Literal

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
READING_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
HARMLESS_POSTS = frozenset({"/api/v1/what-if"})
"""Questions too long for a query string; they change nothing."""

Role = Literal["admin", "reader"]
_ROLE = "pdmuxd.role"


def role_of(scope: Mapping[str, Any]) -> Role:
    """Whose token a call carried that AdminAuth let pass."""
    role: Role = scope[_ROLE]
    return role


class AdminAuth:
    """ASGI middleware that lets a call pass only with a token that suffices for it.

    `reader_sha256` is asked at each call, so that a token can be made or ended meanwhile.
    """

    def __init__(
        self, app: ASGIApp, *, token_sha256: str, reader_sha256: Callable[[], str | None] = lambda: None
    ) -> None:
        self._app = app
        self._token_sha256 = token_sha256
        self._reader_sha256 = reader_sha256

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the call on or answer 401 or 403."""
        if scope["type"] != "http" or scope["path"] in PUBLIC_PATHS:
            await self._app(scope, receive, send)
            return
        in_browser = scope["path"] in BROWSER_PATHS
        token = _token(Headers(scope=scope).get("authorization", ""), allow_basic=in_browser)
        role = None if token is None else self._role(token)
        if role == "admin" or (role == "reader" and _only_reads(scope)):
            scope[_ROLE] = role
            await self._app(scope, receive, send)
            return
        if role == "reader":
            needs = f"{scope['method']} needs the admin token"
            detail = f"this is the reader token, which may read and not change; {needs}"
            await problem(403, "read-only", detail)(scope, receive, send)
            return
        detail = (
            "the admin token is missing; send it as: Authorization: Bearer TOKEN"
            if token is None
            else "this is not the admin token"
        )
        challenge = f'{"Basic" if in_browser else "Bearer"} realm="pdmuxd admin"'
        answer = problem(401, "unauthorized", detail, headers={"WWW-Authenticate": challenge})
        await answer(scope, receive, send)

    def _role(self, token: str) -> Role | None:
        if matches(token, self._token_sha256):
            return "admin"
        reader_sha256 = self._reader_sha256()
        return "reader" if reader_sha256 is not None and matches(token, reader_sha256) else None


def _only_reads(scope: Scope) -> bool:
    return scope["method"] in READING_METHODS or (
        scope["method"] == "POST" and scope["path"] in HARMLESS_POSTS
    )


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
