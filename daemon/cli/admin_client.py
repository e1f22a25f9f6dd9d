"""The command line's way to the control plane: the running daemon's REST, or the same REST in this process.

The daemon is found by its state directory: whoever holds the lock there has written its address beside it.
Where nobody does and nothing listens on the admin address, the commands work on the database directly:
through the very same application, services and checks, only without a socket between.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

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
from pdmuxd.tui.client.api.calls import Call, shows_certificate
from pdmuxd.tui.client.api.client import Client
from pdmuxd.tui.client.api.errors import (
    ApiError,
    ForeignError,
    InvalidError,
    NoAnswerError,
    ProblemError,
    UnauthorizedError,
    text_of,
)

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


class AdminClient(Client):
    """The client of `/api/v1`, whose errors are our exceptions: the command line tells them all alike."""

    def __init__(
        self,
        origin: str,
        token: str,
        *,
        why: str | None,
        where: str | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        # A person waits, and can call again; a script is told at once.
        super().__init__(origin, token, timeout_s=TIMEOUT_S, retries=0, why=why, transport=transport)
        self.where = where or origin
        """The daemon's address, or that it is the database."""
        self.is_daemon = where is None
        """Whether a daemon, and so perhaps an engine, is behind it."""

    def _send(self, call: Call) -> httpx.Response:
        """Raises: PdmuxdError, of the kind that the problem names."""
        try:
            return super()._send(call)
        except ApiError as error:
            raise _as_ours(error, self.where) from error


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
        AdminClient(
            "http://localhost", token, why=why_of(ctx), where="the database", transport=transport
        ) as client,
    ):
        yield client


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
    with AdminClient(origin, read_token(settings.resolved_token_file), why=why_of(ctx)) as client:
        yield client


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


def _is_listening(origin: str) -> bool:
    try:
        with httpx.Client(timeout=TIMEOUT_S, trust_env=False, verify=shows_certificate(origin)) as http:
            http.get(f"{origin}/healthz")
    except httpx.ConnectError:
        return False
    except httpx.HTTPError as error:
        raise PdmuxdError(f"{origin} accepts but does not answer: {text_of(error)}") from error
    return True


def _as_ours(error: ApiError, where: str) -> PdmuxdError:
    match error:
        case NoAnswerError():
            return PdmuxdError(f"no answer from {where}: {str(error).removeprefix('no answer: ')}")
        case ForeignError():
            return SettingsError(
                f"{where} is not pdmuxd's admin address (HTTP {error.status}): see admin.port"
            )
        case InvalidError(field=str(field)):
            return InvalidValueError(field, error.detail)
        case UnauthorizedError():
            return AuthError(f"{where} refuses the token in admin.token_file: {error.detail}")
        case ProblemError():
            return ERRORS.get(error.status, PdmuxdError)(error.detail)
    return PdmuxdError(str(error))
