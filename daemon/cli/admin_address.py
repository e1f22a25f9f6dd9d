"""Where the admin plane is and what opens it, as the settings say; without a client for it."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from pdmuxd.engine.core.errors import AuthError

if TYPE_CHECKING:
    from pdmuxd.daemon.settings import AdminSection, Settings


WHY = "pdmuxd.why"
"""The key under which the root command passes `--why` to its subcommands."""


def settings_of(ctx: typer.Context) -> Settings:
    """The settings that the root command loaded. Raises: SettingsError."""
    settings: Settings = ctx.obj.settings
    return settings


def why_of(ctx: typer.Context) -> str | None:
    """The reason that `pdmuxd --why` gives for what the command changes."""
    why: str | None = ctx.meta.get(WHY)
    return why


def origin_of(admin: AdminSection) -> str:
    """Where a client on this machine finds the admin plane."""
    host = admin.host
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return f"http://{host}:{admin.port}"
    if address.is_unspecified:
        host = "127.0.0.1" if address.version == 4 else "::1"
    return f"http://[{host}]:{admin.port}" if address.version == 6 else f"http://{host}:{admin.port}"


def read_token(path: Path) -> str:
    """The token in a file. Raises: AuthError."""
    try:
        token = path.read_text("ascii").strip()
    except OSError as error:
        raise AuthError(f"cannot read the admin token in {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise AuthError(f"the admin token in {path} is not ASCII text") from error
    if not token.isprintable():
        raise AuthError(f"the admin token in {path} is not one line of text")
    return token
