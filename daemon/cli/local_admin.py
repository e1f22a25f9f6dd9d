"""The admin application in this process, on the database itself, for when no daemon runs."""

from __future__ import annotations

import asyncio
import getpass
import os
import secrets
from collections.abc import Iterator
from contextlib import closing, contextmanager

import httpx
from fastapi import FastAPI

from pdmuxd.controlplane.admin_app import build_admin_app
from pdmuxd.controlplane.database.callers import Caller
from pdmuxd.controlplane.database.opening import open_database
from pdmuxd.controlplane.node.engine_status import NO_ENGINE
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.tenants.credentials import digest


@contextmanager
def local_admin(database_url: str) -> Iterator[tuple[httpx.BaseTransport, str]]:
    """Open the database; yield a way to the application on it, and its admin token.

    Raises: StoreError if there is no database of this version's schema.
    """
    engine = open_database(database_url)
    try:
        token = secrets.token_urlsafe()
        app = build_admin_app(
            ControlPlane(engine),
            engine_status=lambda: NO_ENGINE,
            admin_token_sha256=digest(token),
            owner=Caller(kind="command-line", name=_user(), role="admin"),
        )
        with closing(InProcess(app)) as transport:
            yield transport, token
    finally:
        engine.dispose()


def _user() -> str:
    """The user who runs the command, for the audit."""
    try:
        return getpass.getuser()[:100]
    except (KeyError, OSError):  # a user id without a name, as in containers
        return f"uid {os.getuid()}"


class InProcess(httpx.BaseTransport):
    """Runs an application on a loop of its own, one call after the other."""

    def __init__(self, app: FastAPI) -> None:
        self._asgi = httpx.ASGITransport(app)
        self._runner = asyncio.Runner()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Call the application and read its whole answer."""
        return self._runner.run(self._handle(request))

    def close(self) -> None:
        self._runner.close()

    async def _handle(self, request: httpx.Request) -> httpx.Response:
        answer = await self._asgi.handle_async_request(request)
        content = await answer.aread()
        return httpx.Response(answer.status_code, headers=answer.headers, content=content)
