"""`pdmuxd reload`: the running daemon reads its settings again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer

from pdmuxd.daemon.cli.admin_client import daemon_of
from pdmuxd.daemon.cli.output import AsJson, print_json

EPILOG = """\b
Examples:
  pdmuxd reload
  systemctl reload pdmuxd"""

_TAKES = (
    ("in_force", "in force now"),
    ("needs_engine_restart", "in force with the next engine: pdmuxd engine restart"),
    ("needs_upgrade", "in force with a new process: pdmuxd upgrade"),
    ("needs_restart", "not in force until the daemon is stopped and started"),
)


def register(app: typer.Typer) -> None:
    """Add the `reload` command."""
    app.command("reload", epilog=EPILOG)(reload)


def reload(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Have the running daemon read its settings again, and say by name what has changed and what that takes.

    They come from where they came from at its start: flags, its environment, pdmuxd.toml. If a value is not
    allowed, nothing changes.
    """
    with daemon_of(ctx) as client:
        reloaded: Mapping[str, Any] = client.reload_settings()
    if as_json:
        print_json(reloaded)
        return
    if not any(reloaded.values()):
        typer.echo("no setting has changed")
    for name, takes in _TAKES:
        for key in reloaded[name]:
            typer.echo(f"{key}: {takes}")
