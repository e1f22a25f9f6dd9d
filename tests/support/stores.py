"""Databases, clocks and admin clients for tests of the control plane."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import httpx
from declared import undeclared
from postgres_server import PostgresServer, find_programs
from shared_apps import ADMIN_TOKEN, SharedApp, can_share, shared_app

from pdmuxd.controlplane.admin_app import build_admin_app
from pdmuxd.controlplane.database.opening import open_database, upgrade
from pdmuxd.controlplane.database.sqlite import sqlite_url
from pdmuxd.controlplane.node.engine_status import NO_ENGINE, EngineStatus
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.tenants.credentials import digest
from pdmuxd.engine.core.slo import Slo

START = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
SLO_BODY = {
    "ttft_fixed_ms": 500.0,
    "ttft_per_1k_new_tokens_ms": 800.0,
    "tbt_ms": 40.0,
    "attainment_ratio": 0.95,
}


class FakeClock:
    """Advances by a second whenever it is read."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now


def slo(tbt_s: float = 0.04) -> Slo:
    return Slo(ttft_fixed_s=0.5, ttft_per_1k_new_tokens_s=0.8, tbt_s=tbt_s, attainment_ratio=0.95)


@cache
def _migrated() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "template.db"
        upgrade(sqlite_url(path))
        return path.read_bytes()


def new_database(folder: Path) -> str:
    """A migrated, empty database in a file of its own; its URL. Faster than migrating each time.

    With PDMUXD_TEST_DATABASE=postgresql it is one of a PostgreSQL server that runs as long as the tests.
    """
    if os.environ.get("PDMUXD_TEST_DATABASE") == "postgresql":
        return postgres_server().new_database()
    path = folder / "pdmuxd.db"
    path.write_bytes(_migrated())
    return sqlite_url(path)


@cache
def postgres_server() -> PostgresServer:
    """One for all tests of this process; `close_postgres_server` ends it with them."""
    programs = find_programs()
    assert programs is not None, "needs PostgreSQL: apt-get install postgresql"
    return PostgresServer(programs)


def close_postgres_server() -> None:
    """Called when the session ends: workers of pytest-xdist run no exit handlers."""
    if postgres_server.cache_info().currsize:
        postgres_server().close()


@contextmanager
def opened(url: str, clock: Callable[[], datetime] | None = None) -> Iterator[ControlPlane]:
    engine = open_database(url)
    try:
        yield ControlPlane(engine, clock=clock or FakeClock())
    finally:
        engine.dispose()


@cache
def _document() -> dict[str, Any]:
    """The OpenAPI document, which no option changes."""
    return SharedApp(frozenset()).app.openapi()


class AdminCalls:
    """Calls to the admin application, with the token unless told otherwise."""

    def __init__(self, control_plane: ControlPlane, **options: Any) -> None:
        self.status: EngineStatus = NO_ENGINE
        self.control_plane = control_plane
        behind = {"control_plane": control_plane, "engine_status": lambda: self.status}
        self._given = behind | options
        self._shared = shared_app(behind, options) if can_share(options) else None
        if self._shared is not None:
            self.app = self._shared.app
        else:
            self.app = build_admin_app(admin_token_sha256=digest(ADMIN_TOKEN), **self._given)

    async def __call__(
        self, method: str, path: str, *, token: str | None = ADMIN_TOKEN, **options: Any
    ) -> httpx.Response:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        headers.update(options.pop("headers", {}))
        if self._shared is not None:
            self._shared.given = self._given
        # As under uvicorn, an application that fails has answered before.
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://admin") as client:
            answer = await client.request(method, path, headers=headers, **options)
        document = _document()
        assert undeclared(document, method, answer.request.url.path, answer.status_code) is None
        return answer
