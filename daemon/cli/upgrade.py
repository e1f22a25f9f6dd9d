"""`pdmuxd upgrade`: a new daemon process takes the place of the running one, which loses no request."""

from __future__ import annotations

from typing import Annotated

import typer

from pdmuxd.daemon.cli.admin_client import daemon_of
from pdmuxd.daemon.cli.output import AsJson, print_json

EPILOG = """\b
Examples:
  ln -sfn /opt/pdmuxd-0.2.0 /opt/pdmuxd && pdmuxd upgrade
  pdmuxd upgrade --migrate"""

_TIMEOUT_S = 180.0
"""How long to wait for the daemon's answer; the daemon itself gives up earlier."""

Migrate = Annotated[
    bool, typer.Option("--migrate", help="Let the new version bring the database to its own schema.")
]


def register(app: typer.Typer) -> None:
    """Add the `upgrade` command."""
    app.command("upgrade", epilog=EPILOG)(upgrade)


def upgrade(ctx: typer.Context, migrate: Migrate = False, as_json: AsJson = False) -> None:
    """Start the installed version in place of the running daemon. The engine serves on, no request is lost.

    The program is the one that the running daemon was started by, wherever that path leads now. If the new
    process cannot take over, nothing changes and it says why. Requests in flight finish in the old one,
    within upgrade_drain_timeout_s. The engine stays as it is until `pdmuxd engine restart`.
    """
    with daemon_of(ctx) as client:
        done = client.upgrade_daemon({"migrate": migrate}, timeout_s=_TIMEOUT_S)
    if as_json:
        print_json(done)
    else:
        typer.echo(
            f"pdmuxd {done['version']} has taken over from {done['before']}; what is in flight finishes there"
        )
