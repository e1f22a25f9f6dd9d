"""Finds whose token or key a call on the admin address carries."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from pdmuxd.controlplane.api.problems import problem
from pdmuxd.controlplane.database.audit import WHY_ALLOWED, WHY_MAX
from pdmuxd.controlplane.database.callers import FILE_TOKEN, READER_TOKEN, Caller, acting
from pdmuxd.controlplane.services.directory import DirectorySnapshot
from pdmuxd.controlplane.tenants.credentials import digest, is_same_digest
from pdmuxd.engine.core.errors import UnknownKeyError

OPENAPI_PATH = "/api/v1/openapi.json"
HOME_PATH = "/"
DOCS_PATH = "/docs"
DOCS_ASSETS = ("/docs/swagger-ui-bundle.js", "/docs/swagger-ui.css")
METRICS_PATH = "/metrics"
PUBLIC_PATHS = frozenset({"/healthz", "/readyz", METRICS_PATH})
"""Without a token; metrics unless `admin.metrics_need_token` is set."""
BROWSER_PATHS = frozenset({HOME_PATH, OPENAPI_PATH, DOCS_PATH, *DOCS_ASSETS})
"""Read-only pages for which a browser may ask its user: any name, the token as the password.

Nowhere else, because a browser sends such a password along with what other sites make it send.
"""
WHY_HEADER = "X-Change-Reason"
WHY_PARAMETER = {
    "name": WHY_HEADER,
    "in": "header",
    "required": False,
    "description": "Why, for the audit.",
    "schema": {"type": "string", "maxLength": WHY_MAX, "pattern": "^[ -~]*$"},
}
"""In the OpenAPI document. Other printable characters may be sent in UTF-8, which HTTP has no word for."""
PAGES_PREFIX = "/ui"
"""Pages for people: a browser shows the cookie of a login, which opens nothing else."""
_CALLER = "pdmuxd.caller"


def caller_of(scope: Mapping[str, Any]) -> Caller:
    """The caller whose token it is; AdminAuth has checked it."""
    caller: Caller = scope[_CALLER]
    return caller


class Authenticator:
    """Knows every secret that opens the admin address, by its SHA-256.

    `reader_sha256` and `directory` are asked at each call, so that a token can be made or ended meanwhile.
    `used` is told of each admin token and key that was let in.
    """

    def __init__(
        self,
        *,
        token_sha256: str,
        directory: Callable[[], DirectorySnapshot],
        reader_sha256: Callable[[], str | None] = lambda: None,
        owner: Caller = FILE_TOKEN,
        used: Callable[[Caller], None] = lambda _: None,
    ) -> None:
        self._token_sha256 = token_sha256
        self._directory = directory
        self._reader_sha256 = reader_sha256
        self._owner = owner
        self._used = used

    def __call__(self, secret: str) -> Caller | None:
        """The caller; None for an unknown secret, and for a key whose tenant is disabled."""
        return self.of_digest(digest(secret))

    def of_digest(self, sha256: str) -> Caller | None:
        """The same of a secret that was shown before, of which only the SHA-256 was kept."""
        if is_same_digest(sha256, self._token_sha256):
            return self._owner
        reader_sha256 = self._reader_sha256()
        if reader_sha256 is not None and is_same_digest(sha256, reader_sha256):
            return READER_TOKEN
        caller = self._stored(sha256)
        if caller is not None:
            self._used(caller)
        return caller

    def _stored(self, sha256: str) -> Caller | None:
        directory = self._directory()
        token = directory.find_admin_token_by(sha256)
        if token is not None:
            return Caller(kind="admin-token", name=token.name, role=token.role)
        try:
            found = directory.find_key_by(sha256)
        except UnknownKeyError:
            return None
        if not found.tenant.enabled:
            return None
        return Caller(
            kind="api-key",
            name=found.key.key_id,
            role="tenant",
            tenant=found.name,
            scopes=frozenset(found.key.scopes),
        )


class Logins(Protocol):
    """The browsers' users who have logged in."""

    def caller(self, scope: Scope) -> Caller | None:
        """The caller whose login the call's cookie is; None without one, or if it has ended."""
        ...

    def refuse(self, scope: Scope) -> ASGIApp:
        """The answer to a call without a login: the page to log in at."""
        ...


class AdminAuth:
    """ASGI middleware: lets a call pass only with a secret that is known; what it may do the route asks."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        authenticator: Authenticator,
        logins: Logins,
        public: frozenset[str] = PUBLIC_PATHS,
    ) -> None:
        self._app = app
        self._public = public
        self._authenticate = authenticator
        self._logins = logins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the call on or answer 401."""
        if scope["type"] != "http" or scope["path"] in self._public:
            await self._app(scope, receive, send)
            return
        in_browser = scope["path"] in BROWSER_PATHS
        headers = Headers(scope=scope)
        token = _token(headers.get("authorization", ""), allow_basic=in_browser)
        caller = None if token is None else self._authenticate(token)
        is_page = is_below(PAGES_PREFIX, scope["path"])
        if is_page and token is None:
            caller = self._logins.caller(scope)
            if caller is None:
                await self._logins.refuse(scope)(scope, receive, send)
                return
        if caller is None:
            detail = (
                "the admin token is missing; send it as: Authorization: Bearer TOKEN"
                if token is None
                else "this is not the admin token"
            )
            challenge = f'{"Basic" if in_browser else "Bearer"} realm="pdmuxd admin"'
            refusal = problem(401, "unauthorized", detail, headers={"WWW-Authenticate": challenge})
            await refusal(scope, receive, send)
            return
        if caller.role == "tenant" and not (is_page or scope["path"].startswith("/api/v1/")):
            detail = "an API key opens nothing but its tenant's routes below /api/v1 and /ui"
            await problem(403, "forbidden", detail)(scope, receive, send)
            return
        why = _text(headers.get(WHY_HEADER))
        if why is not None and not (len(why) <= WHY_MAX and why.isprintable()):
            detail = f"{WHY_HEADER} is {why[:40]!a}; allowed are {WHY_ALLOWED}"
            await problem(422, "invalid-value", detail, field=WHY_HEADER)(scope, receive, send)
            return
        scope[_CALLER] = caller
        with acting(caller, why or None, _source(caller, scope)):
            await self._app(scope, receive, send)


def _source(caller: Caller, scope: Scope) -> str | None:
    """The other end's address; a command on the database itself came from none."""
    client = scope.get("client")
    return None if client is None or caller.kind == "command-line" else str(client[0])


def is_below(prefix: str, path: str) -> bool:
    """Whether a path is that one, or one below it."""
    return path == prefix or path.startswith(f"{prefix}/")


def _text(value: str | None) -> str | None:
    """A header that may hold UTF-8, which HTTP's own reading takes for Latin-1."""
    if value is None:
        return None
    try:
        return value.encode("latin-1").decode()
    except UnicodeError:
        return value


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
