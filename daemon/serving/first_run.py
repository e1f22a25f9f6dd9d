"""What a first start needs beyond a start: a schema, a tenant with a key, an admin token, and a welcome."""

from __future__ import annotations

import operator
import os
import secrets
import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path

import typer
from sqlalchemy import make_url

from pdmuxd.controlplane.database import opening as database
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.daemon.settings import LoadedSettings, Settings, places
from pdmuxd.daemon.supervisor.choice import EngineChoice
from pdmuxd.engine.core.errors import SettingsError

FIRST_TENANT = "default"
KEY_VARIABLE = "PDMUXD_API_KEY"
_TOKEN_BYTES = 32
_MIN_TOKEN_CHARACTERS = 16
"""Of a token that an operator has put there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome:
    """What is printed when the daemon is ready."""

    data_url: str
    admin_url: str
    token_file: Path
    state_dir: Path
    model: str
    engine: str
    """What it is, in a few words."""
    policy: str
    api_key: str | None = field(repr=False)
    """Known only on the run that made it."""

    def text(self) -> str:
        """Addresses, and a line for curl that works when pasted into a POSIX shell."""
        lines = [
            "",
            "pdmuxd is ready.",
            f"  data plane   {self.data_url}  (OpenAI API; model {self.model})",
            f"  admin plane  {self.admin_url}  (REST in /api/v1, documentation in /docs, /metrics, /readyz)",
            f"  admin token  in {self.token_file}",
            f"  engine       {self.engine}, policy {self.policy}",
            "",
            "For the other commands, such as pdmuxd status, in another terminal:",
            f"  export PDMUXD_STATE_DIR={shlex.quote(str(self.state_dir))}",
            "",
            "Try it:" if self.api_key else f"Try it, with your API key in {KEY_VARIABLE}:",
            f"  {self.curl()}",
            "",
        ]
        return "\n".join(lines)

    def curl(self) -> str:
        """One streamed chat completion."""
        key = self.api_key or f"${KEY_VARIABLE}"
        body = (
            f'{{"model": "{self.model}", "stream": true, "max_tokens": 32, '
            '"messages": [{"role": "user", "content": "Hello!"}]}'
        )
        return (
            f'curl -N {self.data_url}/v1/chat/completions -H "Authorization: Bearer {key}" '
            f'-H "Content-Type: application/json" -d {shlex.quote(body)}'
        )


def migrate(url: str) -> None:
    """Bring the database to this version's schema, and say so. Raises: StoreError."""
    shown = make_url(url).render_as_string(hide_password=True)
    typer.echo(f"Database {shown}: migrating ...")
    typer.echo(f"Database {shown}: at schema {database.upgrade(url)}")


def ensure_tenant(control_plane: ControlPlane, loaded: LoadedSettings) -> str | None:
    """Make the first tenant and print its key; returns the key, or None if it was made before."""
    tenants = control_plane.list_tenants()
    if not tenants:
        control_plane.create_tenant(FIRST_TENANT)
    elif any(tenant.name != FIRST_TENANT for tenant in tenants) or control_plane.keys.list(FIRST_TENANT):
        names = ", ".join(tenant.name for tenant in tenants)
        typer.echo(f"Tenants exist ({names}); their keys are stored as hashes and cannot be shown again.")
        typer.echo(f"For another key: {_issue_key_command(loaded, tenants[0].name)}")
        return None
    # A first start that was killed between the two steps leaves the tenant without a key.
    secret = control_plane.keys.issue(FIRST_TENANT, label="first run").secret
    typer.echo(f"Created tenant {FIRST_TENANT}. Its API key, shown this once:")
    typer.echo(f"  {secret}")
    return secret


def welcome(
    loaded: LoadedSettings, engine: EngineChoice, *, data_url: str, admin_url: str, api_key: str | None
) -> Welcome:
    """Collect what is to be said once the daemon is ready."""
    settings = loaded.settings
    return Welcome(
        data_url=data_url,
        admin_url=admin_url,
        token_file=settings.resolved_token_file,
        state_dir=settings.resolved_state_dir,
        model=engine.model,
        engine=engine.described,
        policy=settings.engine.policy,
        api_key=api_key,
    )


def _issue_key_command(loaded: LoadedSettings, tenant: str) -> str:
    """The command that issues another key for this daemon: with the same flags it finds the same database."""
    program = Path(sys.executable).with_name("pdmuxd")
    if program.is_relative_to(Path.cwd()):
        program = program.relative_to(Path.cwd())
    flags = [key for key, origin in loaded.origins.items() if origin == "flag"]
    given = [word for key in flags for word in ("--set", f"{key}={_value(loaded.settings, key)}")]
    return shlex.join([str(program), *given, "tenant", "key", "issue", tenant])


def _value(settings: Settings, key: str) -> object:
    return operator.attrgetter(key)(settings)


def ensure_admin_token(path: Path) -> str:
    """Read the admin token, making the file on the first start.

    Raises: SettingsError if the file cannot be used, or others may read it.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return _read_token(path)
    except OSError as error:
        raise SettingsError(f"admin.token_file: cannot create {path}: {error.strerror}") from error
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    with os.fdopen(descriptor, "w") as file:
        file.write(token + "\n")
    return token


def _read_token(path: Path) -> str:
    try:
        if path.stat().st_mode & 0o077 and not places.is_credential(path, os.environ):
            raise SettingsError(f"admin.token_file: others may read {path}; run: chmod 600 {path}")
        token = path.read_text("ascii").strip()
    except OSError as error:
        raise SettingsError(f"admin.token_file: cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise _no_token(path, "is not ASCII text") from None
    if not token:
        raise _no_token(path, "is empty")
    if not all("!" <= character <= "~" for character in token):
        raise _no_token(path, "is not one word of printable characters")
    if len(token) < _MIN_TOKEN_CHARACTERS:
        least = _MIN_TOKEN_CHARACTERS
        raise _no_token(path, f"holds {len(token)} characters, easy to guess; allowed are at least {least}")
    return token


def _no_token(path: Path, why: str) -> SettingsError:
    return SettingsError(f"admin.token_file: {path} {why}; delete it to have a new token made")
