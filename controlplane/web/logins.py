"""A login in a browser: the cookie, whose it is, and the page that asks for a token."""

from __future__ import annotations

from urllib.parse import quote, urlsplit

from starlette.datastructures import URL, Headers
from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Scope

from pdmuxd.controlplane.api.auth import PAGES_PREFIX, Authenticator, caller_of, is_below
from pdmuxd.controlplane.database.callers import Caller
from pdmuxd.controlplane.web.forms import is_from_here, read_form
from pdmuxd.controlplane.web.login_audit import LoginAudit
from pdmuxd.controlplane.web.proxy import ProxyLogins
from pdmuxd.controlplane.web.rendering import HEADERS, render
from pdmuxd.controlplane.web.sessions import LASTS_S, Session, Sessions

LOGIN_PATH = f"{PAGES_PREFIX}/login"
LOGOUT_PATH = f"{PAGES_PREFIX}/logout"
HOME = f"{PAGES_PREFIX}/overview"
SCOPES_NEEDED = frozenset({"read", "admin"})
NEXT_MAX = 2000
"""Characters of the address to go on at; a longer one is not a page's."""
_SESSION = "pdmuxd.session"


class BrowserLogins:
    """Cookies are named after the port: one host may have several daemons, and its cookies know no port."""

    def __init__(
        self, authenticator: Authenticator, sessions: Sessions, audit: LoginAudit, proxy: ProxyLogins
    ) -> None:
        self._authenticator = authenticator
        self._sessions = sessions
        self._audit = audit
        self._proxy = proxy

    def caller(self, scope: Scope) -> Caller | None:
        """The caller whose login the call's cookie is; a token that was revoked since has ended it.

        A trusted proxy has logged in who it names.
        """
        named = self._proxy.find(scope)
        if named is not None:
            scope[_SESSION] = named[1]
            return named[0]
        session = self._sessions.find(_cookie(scope))
        caller = None if session is None else self._authenticator.of_digest(session.secret_sha256)
        if caller is not None:
            scope[_SESSION] = session
        return caller

    def refuse(self, scope: Scope) -> ASGIApp:
        """Lead to the login, and from there back.

        A browser keeps the cookie back when another site's link was followed. The page that is sent then
        loads itself again, which is this site's own doing, and is sent with the cookie.
        """
        headers = Headers(scope=scope)
        if scope["method"] != "GET":
            return _page(None, error="Your login has ended. Log in, and send the form again.", status=401)
        wanted = URL(scope=scope)
        target = wanted.path + (f"?{wanted.query}" if wanted.query else "")
        if headers.get("sec-fetch-site") == "cross-site":
            return HTMLResponse(
                render("again.html", target=target),
                headers={**HEADERS} | {"Refresh": f"0; url={quote(target, safe=_URL)}"},
            )
        if wanted.path.endswith("/live"):
            return Response("log in first", 401, headers=HEADERS)
        asked = "" if wanted.path == HOME and not wanted.query else f"?next={quote(target)}"
        return RedirectResponse(LOGIN_PATH + asked, 303, headers=HEADERS)

    async def show(self, request: Request) -> Response:
        """The page that asks for a token, or what was wanted if the browser has logged in already."""
        wanted = _next(request.query_params.get("next"))
        if self.caller(request.scope) is not None:
            return RedirectResponse(wanted, 303, headers=HEADERS)
        return _page(wanted)

    async def log_in(self, request: Request) -> Response:
        """Take a token; the answer to a wrong one is 401, which the listener counts."""
        form = await read_form(request)
        wanted = _next(form.get("next"))
        if not is_from_here(request):
            return _page(wanted, error="The form came from another site.", status=403)
        secret = form.get("token", "").strip()
        if not secret or not secret.isascii() or not secret.isprintable():
            said = "Type the token: it is in the file that admin.token_file names."
            return _page(wanted, error=said, status=422)
        caller = self._authenticator(secret)
        if caller is None:
            await self._audit.failed(request.scope)
            return _page(wanted, error="The daemon does not know this token.", status=401)
        if caller.role == "tenant" and not caller.scopes & SCOPES_NEEDED:
            await self._audit.failed(request.scope)
            said = f"The key {caller.name} may not look: it needs the scope read or admin."
            return _page(wanted, error=said, status=403)
        await self._audit.done("login", caller, request.scope)
        answer = RedirectResponse(wanted, 303, headers=HEADERS)
        self._sessions.close(_cookie(request.scope))
        answer.set_cookie(
            _cookie_name(request.scope),
            self._sessions.open(secret),
            max_age=int(LASTS_S),
            path=PAGES_PREFIX,
            httponly=True,
            samesite="strict",
        )
        return answer

    async def log_out(self, request: Request) -> Response:
        """End the login; the form was checked before."""
        await self._audit.done("logout", caller_of(request.scope), request.scope)
        self._sessions.close(_cookie(request.scope))
        answer = RedirectResponse(LOGIN_PATH, 303, headers=HEADERS)
        answer.delete_cookie(_cookie_name(request.scope), path=PAGES_PREFIX)
        return answer


_URL = "/?=&%:+-_.~,"


def session_of(request: HTTPConnection) -> Session | None:
    """The login of a call; None if it showed a token instead."""
    found: Session | None = request.scope.get(_SESSION)
    return found


def _page(wanted: str | None, *, error: str | None = None, status: int = 200) -> Response:
    text = render("login.html", error=error, wanted=wanted or HOME, action=LOGIN_PATH)
    return HTMLResponse(text, status, headers=HEADERS)


def _next(text: str | None) -> str:
    """Where to go on: a page of ours, whatever a link says."""
    if text is None or len(text) > NEXT_MAX or "\\" in text or not text.isprintable():
        return HOME
    parts = urlsplit(text)
    is_page = is_below(PAGES_PREFIX, parts.path) and parts.path not in (LOGIN_PATH, LOGOUT_PATH)
    return text if is_page and not parts.scheme and not parts.netloc else HOME


def _cookie_name(scope: Scope) -> str:
    server = scope.get("server")
    return f"pdmuxd-{server[1] if server else 0}"


def _cookie(scope: Scope) -> str | None:
    return HTTPConnection(scope).cookies.get(_cookie_name(scope))
