"""The command line's way to the control plane: the running daemon's REST, or the same REST in this process.

The daemon is found by its state directory: whoever holds the lock there has written its address beside it.
Where nobody does and nothing listens on the admin address, the commands work on the database directly:
through the very same application, services and checks, only without a socket between.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx
import typer

from pdmuxd.daemon.cli.admin_address import origin_of, read_token, settings_of, why_of
from pdmuxd.daemon.process.lock import holder_of, state_dir_of_listener
from pdmuxd.engine.core.errors import (
    AuthError,
    ConflictError,
    EngineError,
    InvalidValueError,
    NotFoundError,
    PdmuxdError,
    SettingsError,
    StaleVersionError,
    StoreError,
)

API = "/api/v1"
PROBLEM = "application/problem+json"
TIMEOUT_S = 10.0
ERRORS: Mapping[int, type[PdmuxdError]] = {
    401: AuthError,
    403: AuthError,
    404: NotFoundError,
    409: ConflictError,
    412: StaleVersionError,
    503: StoreError,
}
"""Other problems are a plain PdmuxdError."""


class AdminClient:
    """Calls to `/api/v1`, whose answers are JSON and whose problems are our exceptions."""

    def __init__(self, http: httpx.Client, *, where: str, is_daemon: bool) -> None:
        self._http = http
        self.where = where
        """The daemon's address, or that it is the database."""
        self.is_daemon = is_daemon
        """Whether a daemon, and so perhaps an engine, is behind it."""

    def get(self, path: str) -> Any:  # noqa: ANN401 - JSON
        """Read. This and the other calls raise: PdmuxdError, of the kind that the problem names."""
        return self._call("GET", path)

    def text(self, path: str) -> str:
        """Read what is no JSON."""
        return self._send("GET", path).text

    def post(self, path: str, body: Mapping[str, object], *, timeout_s: float = TIMEOUT_S) -> Any:  # noqa: ANN401 - JSON
        """Create, or act."""
        return self._call("POST", path, body, timeout_s=timeout_s)

    def put(
        self,
        path: str,
        body: Mapping[str, object],
        *,
        if_match: int | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> Any:  # noqa: ANN401 - JSON
        """Replace, if the version is still `if_match`."""
        headers = {} if if_match is None else {"If-Match": f'"{if_match}"'}
        return self._call("PUT", path, body, headers, timeout_s)

    def patch(self, path: str, body: Mapping[str, object]) -> Any:  # noqa: ANN401 - JSON
        """Change what is given."""
        return self._call("PATCH", path, body)

    def delete(self, path: str) -> Any:  # noqa: ANN401 - JSON
        """Delete or revoke."""
        return self._call("DELETE", path)

    def pages(self, path: str) -> list[Any]:
        """Read a list to its end, page by page."""
        found: list[Any] = []
        following: str | None = path
        while following is not None:
            response = self._send("GET", following)
            found += response.json()
            following = response.links.get("next", {}).get("url", "").removeprefix(API) or None
        return found

    def _call(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> Any:  # noqa: ANN401 - JSON
        response = self._send(method, path, body, headers, timeout_s)
        return response.json() if response.content else None

    def _send(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> httpx.Response:
        try:
            response = self._http.request(method, API + path, json=body, headers=headers, timeout=timeout_s)
        except httpx.HTTPError as error:
            raise PdmuxdError(f"no answer from {self.where}: {_text(error)}") from error
        if response.is_success:
            return response
        raise _error(response, self.where)


@contextmanager
def admin_client(ctx: typer.Context) -> Iterator[AdminClient]:
    """Reach the daemon, or say on stderr that there is none and open the database.

    Raises: PdmuxdError, for instance StoreError if there is no database either.
    """
    with running_daemon(ctx) as client:
        if client is not None:
            yield client
            return
    settings = settings_of(ctx)
    # Takes half a second to import, and is needed only where no daemon runs.
    from pdmuxd.daemon.cli.local_admin import local_admin

    state_dir = settings.resolved_state_dir
    typer.echo(f"no daemon runs on {state_dir}; working on the database directly", err=True)
    with (
        local_admin(settings.resolved_database_url) as (transport, token),
        _http("http://localhost", token, why_of(ctx), transport) as http,
    ):
        yield AdminClient(http, where="the database", is_daemon=False)


@contextmanager
def running_daemon(ctx: typer.Context) -> Iterator[AdminClient | None]:
    """Reach the daemon of the state directory, or what listens on the admin address; None if there is none.

    Raises: PdmuxdError; also if a daemon holds the state directory and cannot be reached, since its database
    must not be changed without it.
    """
    settings = settings_of(ctx)
    holder = holder_of(settings.resolved_state_dir)
    origin = (holder.admin_url if holder else None) or origin_of(settings.admin)
    if not _is_listening(origin):
        if holder is not None:
            raise PdmuxdError(
                f"process {holder.pid} holds the state directory {settings.resolved_state_dir} and cannot be "
                f"reached at {origin}; nothing was read or changed: wait for it, or stop it"
            )
        yield None
        return
    if holder is None and (elsewhere := state_dir_of_listener(origin)) is not None:
        raise PdmuxdError(
            f"a pdmuxd answers on {origin} with another state directory; to reach it: "
            f"export PDMUXD_STATE_DIR={shlex.quote(str(elsewhere))}"
        )
    with _http(origin, read_token(settings.resolved_token_file), why_of(ctx)) as http:
        yield AdminClient(http, where=origin, is_daemon=True)


@contextmanager
def daemon_of(ctx: typer.Context) -> Iterator[AdminClient]:
    """Reach the daemon of the state directory. Raises: EngineError where none runs."""
    with running_daemon(ctx) as client:
        if client is None:
            state_dir = settings_of(ctx).resolved_state_dir
            raise EngineError(
                f"no daemon runs on the state directory {state_dir}, so there is none to act on"
            )
        yield client


def _http(
    origin: str, token: str, why: str | None, transport: httpx.BaseTransport | None = None
) -> httpx.Client:
    headers = [(b"Authorization", f"Bearer {token}".encode())]
    if why is not None:
        headers.append((b"X-Change-Reason", why.encode()))
    return httpx.Client(
        base_url=origin,
        headers=headers,
        timeout=TIMEOUT_S,
        # No proxy of the environment lies between us and the daemon on this machine.
        trust_env=False,
        transport=transport,
    )


def _is_listening(origin: str) -> bool:
    try:
        with httpx.Client(timeout=TIMEOUT_S, trust_env=False) as http:
            http.get(f"{origin}/healthz")
    except httpx.ConnectError:
        return False
    except httpx.HTTPError as error:
        raise PdmuxdError(f"{origin} accepts but does not answer: {_text(error)}") from error
    return True


def _error(response: httpx.Response, where: str) -> PdmuxdError:
    status = response.status_code
    if response.headers.get("Content-Type") != PROBLEM:
        return SettingsError(f"{where} is not pdmuxd's admin address (HTTP {status}): see admin.port")
    problem = response.json()
    detail = str(problem["detail"])
    if status == 422:
        return InvalidValueError(str(problem["field"]), detail)
    if status == 401:
        detail = f"{where} refuses the token in admin.token_file: {detail}"
    return ERRORS.get(status, PdmuxdError)(detail)


def _text(error: httpx.HTTPError) -> str:
    """Some of the library's errors have no text."""
    return str(error) or type(error).__name__
