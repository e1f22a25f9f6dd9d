"""The web server of `pdmuxd web-console`: a login with an admin or reader token, then the console.

It binds to loopback, answers only where a browser means this machine, and loads nothing from elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import signal
import socket
from collections.abc import Awaitable, Callable
from importlib.resources import as_file, files
from time import monotonic
from urllib.parse import urlsplit

from aiohttp import ClientError, ClientSession, ClientTimeout, WSCloseCode, web
from jinja2 import Environment, PackageLoader, select_autoescape
from textual_serve.download_manager import DownloadManager

from pdmuxd.daemon.web.console import Console, bounded, command_of
from pdmuxd.daemon.web.sessions import LASTS_S, Sessions

MOST_CONSOLES = 8
"""Each is a process of some 60 MB."""
CHECK_TIMEOUT_S = 10.0
SHUTDOWN_TIMEOUT_S = 5.0
MOST_BODY_BYTES = 16 * 1024
MOST_MESSAGE_BYTES = 256 * 1024
HEARTBEAT_S = 15.0
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; font-src 'self'; "
        "img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}


class WebConsole:
    """Serves consoles of the daemon at `url`. `port` is its own, part of the cookie's name."""

    def __init__(self, url: str, *, port: int) -> None:
        self._url = url
        self._cookie = f"pdmuxd-console-{port}"
        self._sessions = Sessions(now_s=monotonic)
        self._downloads = DownloadManager()
        self._open: set[web.WebSocketResponse] = set()
        self._pages = Environment(
            loader=PackageLoader("pdmuxd.daemon.web", "assets"), autoescape=select_autoescape()
        )

    def app(self) -> web.Application:
        """The routes."""
        app = web.Application(middlewares=[_for_us], client_max_size=MOST_BODY_BYTES)
        with as_file(files("textual_serve") / "static") as library, as_file(_OURS) as ours:
            app.add_routes(
                [
                    web.get("/", self._show),
                    web.get("/console", self._show),
                    web.post("/login", self._log_in),
                    web.post("/logout", self._log_out),
                    web.get("/ws", self._attach),
                    web.get("/download/{key}", self._download),
                    web.static("/static", library),
                    web.static("/assets", ours),
                ]
            )
        app.on_shutdown.append(self._end)
        return app

    async def _show(self, request: web.Request) -> web.Response:
        """The console, or the login before it."""
        if self._token(request) is None:
            return self._page("login.html", url=self._url)
        light = "?light=1" if request.query.get("light") else ""
        scheme = "wss" if request.secure else "ws"
        return self._page(
            "console.html", url=self._url, socket=f"{scheme}://{request.host}/ws{light}", font_size=14
        )

    async def _log_in(self, request: web.Request) -> web.Response:
        token = str((await request.post()).get("token", "")).strip()
        refused = await self._why_refused(token)
        if refused is not None:
            status, why = refused
            return self._page("login.html", status=status, url=self._url, error=why)
        answer = web.HTTPSeeOther("/")
        answer.set_cookie(
            self._cookie,
            self._sessions.open(token),
            max_age=int(LASTS_S),
            httponly=True,
            samesite="Strict",
            path="/",
        )
        raise answer

    async def _why_refused(self, token: str) -> tuple[int, str] | None:
        """Ask the daemon whose token it is; (status, sentence) if it may not look."""
        if not token or not token.isascii() or not token.isprintable():
            return 401, "Type the token: it is in the file that admin.token_file names."
        headers = {"Authorization": f"Bearer {token}"}
        timeout = ClientTimeout(total=CHECK_TIMEOUT_S)
        try:
            async with (
                ClientSession(timeout=timeout) as http,
                http.get(f"{self._url}/api/v1/engine", headers=headers) as answer,
            ):
                status = answer.status
        except (ClientError, TimeoutError) as error:
            return 502, f"The daemon at {self._url} does not answer ({type(error).__name__}). Is it running?"
        if status == 200:
            return None
        said = {
            401: "The daemon does not know this token.",
            403: "This is a tenant's API key; the console needs an admin or the reader token.",
            429: "Too many wrong tokens came from this machine; try again in a minute.",
        }
        return (status if status in said else 502), said.get(status, f"The daemon answered HTTP {status}.")

    async def _log_out(self, request: web.Request) -> web.Response:
        self._sessions.close(request.cookies.get(self._cookie))
        answer = web.HTTPSeeOther("/")
        answer.del_cookie(self._cookie, path="/")
        raise answer

    async def _attach(self, request: web.Request) -> web.StreamResponse:
        """A console for this tab."""
        token = self._token(request)
        if token is None:
            raise web.HTTPUnauthorized(text="log in first")
        if len(self._open) >= MOST_CONSOLES:
            raise web.HTTPServiceUnavailable(text=f"{MOST_CONSOLES} consoles are open; close one")
        socket = web.WebSocketResponse(heartbeat=HEARTBEAT_S, max_msg_size=MOST_MESSAGE_BYTES)
        # Counted before the first wait, so that a burst does not get past the limit.
        self._open.add(socket)
        try:
            await socket.prepare(request)
            command = command_of(self._url, is_light=bool(request.query.get("light")))
            console = Console(command, token, socket, self._downloads)
            await console.serve(_size(request, "width", 80), _size(request, "height", 24))
        finally:
            self._open.discard(socket)
        return socket

    async def _download(self, request: web.Request) -> web.StreamResponse:
        """A file that the console hands out, such as a table as CSV."""
        if self._token(request) is None:
            raise web.HTTPUnauthorized(text="log in first")
        key = request.match_info["key"]
        try:
            found = await self._downloads.get_download_metadata(key)
        except KeyError:
            raise web.HTTPNotFound(text="there is no such download") from None
        name = "".join(char for char in found.file_name if char.isalnum() or char in "-_.")
        answer = web.StreamResponse(
            headers=HEADERS
            | {
                "Content-Type": "application/octet-stream",
                "Content-Disposition": f'attachment; filename="{name}"',
            }
        )
        await answer.prepare(request)
        async for chunk in self._downloads.download(key):
            await answer.write(chunk)
        await answer.write_eof()
        return answer

    async def _end(self, app: web.Application) -> None:  # noqa: ARG002 - the library's signature
        for tab in list(self._open):
            if tab.prepared:
                with contextlib.suppress(ConnectionError):  # whose browser has gone meanwhile
                    await tab.close(code=WSCloseCode.GOING_AWAY)

    def _token(self, request: web.Request) -> str | None:
        return self._sessions.token_of(request.cookies.get(self._cookie))

    def _page(self, name: str, *, status: int = 200, **values: object) -> web.Response:
        text = self._pages.get_template(name).render(values)
        return web.Response(text=text, status=status, content_type="text/html", headers=HEADERS)


async def serve_until_told(
    app: web.Application, listener: socket.socket, *, on_ready: Callable[[], None]
) -> None:
    """Serve on `listener` until SIGTERM or SIGINT; `on_ready` is called when both would be heard."""
    told, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_TIMEOUT_S)
    await runner.setup()
    try:
        await web.SockSite(runner, listener).start()
        on_ready()
        await told.wait()
    finally:
        await runner.cleanup()


_OURS = files("pdmuxd.daemon.web") / "assets"


@web.middleware
async def _for_us(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Only what a page of this very address asks for: another site's may not open or drive a console."""
    if not is_loopback(urlsplit(f"//{request.host}").hostname or ""):
        raise web.HTTPMisdirectedRequest(text="the Host of this request is not this machine")
    origin = request.headers.get("Origin")
    is_bound = request.method != "GET" or request.path == "/ws"
    if is_bound and origin is not None and urlsplit(origin).netloc != request.host:
        raise web.HTTPForbidden(text="this request comes from another site")
    if request.path == "/ws" and origin is None:
        raise web.HTTPForbidden(text="a web socket needs an Origin")
    return await handler(request)


def is_loopback(name: str) -> bool:
    """Whether a host name or address means this machine whatever DNS says."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _size(request: web.Request, name: str, default: int) -> int:
    value = request.query.get(name, "")
    return bounded(int(value)) if value.isascii() and value.isdigit() and len(value) < 6 else default
