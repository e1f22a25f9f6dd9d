"""Stands before the admin plane's application: which host was meant, how much comes, who guesses tokens."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, MutableMapping
from typing import Any

import structlog
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pdmuxd.controlplane.api.auth import PUBLIC_PATHS
from pdmuxd.controlplane.api.problems import problem
from pdmuxd.daemon.httpd.peers import AuthFailures, peer_of

PROBE_CONNECTIONS = 16
"""Places for requests that are kept for health probes."""
_RETRY_AFTER_S = 60
_ENDLESS = ("/api/v1/events", "/ui/live")
"""Answers without an end have no HEAD."""

log = structlog.get_logger("pdmuxd.http")


class AdminGuard:
    """Wraps the admin plane's application."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        allowed_hosts: Iterable[str],
        max_body_bytes: int,
        max_connections: int,
        auth_failures: AuthFailures,
    ) -> None:
        self._app = app
        self._allowed_hosts = frozenset(host.rstrip(".").lower() for host in allowed_hosts)
        self._max_body_bytes = max_body_bytes
        self._max_in_progress = max_connections - PROBE_CONNECTIONS
        self._auth_failures = auth_failures
        self._in_progress = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["method"] == "HEAD" and scope["path"] not in _ENDLESS:
            # Answered as GET is; the server, which knows the method by its own scope, sends no body.
            scope = {**scope, "method": "GET"}
        headers = Headers(scope=scope)
        refusal: ASGIApp | None = None
        is_probe = scope["path"] in PUBLIC_PATHS
        if not self._is_for_us(headers.get("host", "")):
            refusal = problem(
                421,
                "misdirected",
                "the Host of this request is no address of the admin API; see admin.allowed_hosts",
            )
        elif not is_probe and self._in_progress >= self._max_in_progress:
            refusal = problem(
                503, "too-many-requests", "too many requests are in progress", headers={"Retry-After": "1"}
            )
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        self._in_progress += not is_probe
        try:
            body = _LimitedBody(receive, self._max_body_bytes)
            if body.is_declared_too_large(headers):
                await _too_large(self._max_body_bytes)(scope, receive, send)
            else:
                await self._app(scope, body, _Answering(send, body, self._on_unauthorized(scope)))
        except _TooLargeError:
            await _too_large(self._max_body_bytes)(scope, receive, send)
        finally:
            self._in_progress -= not is_probe

    def _is_for_us(self, host: str) -> bool:
        """Whether a browser that was led here by another name's DNS record would not have sent this Host.

        A page can be made to reach 127.0.0.1 under its own name, and would be allowed to read the answer; an
        IP address in Host means that the page came from there.
        """
        name = _without_port(host).rstrip(".").lower()
        if name == "localhost" or name.endswith(".localhost") or name in self._allowed_hosts:
            return bool(name)
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def _on_unauthorized(self, scope: Scope) -> Callable[[], bool]:
        def failed() -> bool:
            peer = peer_of(scope.get("client"))
            failure = self._auth_failures.count(peer)
            if failure.is_first:
                log.warning("wrong or missing admin token", peer=peer, unlogged=failure.unlogged)
            return failure.is_throttled

        return failed


class _TooLargeError(Exception):
    pass


class _LimitedBody:
    """Receives a body, up to a limit."""

    def __init__(self, receive: Receive, max_bytes: int) -> None:
        self._receive = receive
        self._max_bytes = max_bytes
        self._bytes = 0

    def is_declared_too_large(self, headers: Headers) -> bool:
        """Whether the Content-Length header says that the body is too large."""
        declared = headers.get("content-length", "")
        return declared.isdigit() and int(declared) > self._max_bytes

    async def __call__(self) -> Message:
        message = await self._receive()
        self._bytes += len(message.get("body", b""))
        if self._bytes > self._max_bytes:
            raise _TooLargeError
        return message


class _Answering:
    """Passes an answer on. From an address that sent too many wrong tokens, a 401 is answered as 429."""

    def __init__(self, send: Send, body: _LimitedBody, on_unauthorized: Callable[[], bool]) -> None:
        self._send = send
        self._body = body
        self._on_unauthorized = on_unauthorized
        self._is_replaced = False

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        if self._is_replaced:
            return
        if message["type"] == "http.response.start" and message["status"] == 401 and self._on_unauthorized():
            self._is_replaced = True
            await _throttled()({"type": "http"}, self._body, self._send)
            return
        await self._send(message)


def _throttled() -> ASGIApp:
    detail = "too many wrong tokens came from your address; try again in a minute"
    headers = {"Retry-After": str(_RETRY_AFTER_S), "Connection": "close"}
    return problem(429, "too-many-auth-failures", detail, headers=headers)


def _too_large(max_bytes: int) -> ASGIApp:
    detail = f"the body is larger than {max_bytes} bytes (admin.max_body_bytes)"
    return problem(413, "body-too-large", detail, headers={"Connection": "close"})


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    name, _, port = host.rpartition(":")
    return name if name and port.isdigit() else host
