"""`pdmuxd install-service`: pdmuxd as a service of systemd."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from pdmuxd.daemon.cli.admin_address import settings_of

EPILOG = """\b
Examples:
  pdmuxd install-service --dry-run
  pdmuxd install-service --sockets --credential --now"""

_DRY = typer.Option("--dry-run", help="Print the files and commands, and do nothing.")
_SOCKETS = typer.Option("--sockets", help="Let systemd hold the listening sockets.")
_CREDENTIAL = typer.Option("--credential", help="Keep the admin token in /etc, as a credential.")
_NOW = typer.Option("--now", help="Start it too.")
_PROGRAM = typer.Option("--program", metavar="PATH", help="What the unit starts. Unset: this program.")
_ROOT = typer.Option("--root", metavar="DIR", help="Write below this folder and run nothing, for images.")


def register(app: typer.Typer) -> None:
    """Add the `install-service` command."""
    app.command("install-service", epilog=EPILOG)(install_service)


def install_service(
    ctx: typer.Context,
    dry_run: Annotated[bool, _DRY] = False,
    sockets: Annotated[bool, _SOCKETS] = False,
    credential: Annotated[bool, _CREDENTIAL] = False,
    now: Annotated[bool, _NOW] = False,
    program: Annotated[Path | None, _PROGRAM] = None,
    root: Annotated[Path | None, _ROOT] = None,
) -> None:
    """Install the units, their user and directories, and settings to begin with. Needs root.

    It may be run again: what an administrator changes (pdmuxd.toml, pdmuxd.env, the token) stays as it is.
    Units are written anew, so change those with `systemctl edit pdmuxd`. Sockets get the settings' addresses.
    """
    from pdmuxd.daemon.settings.example import example_toml
    from pdmuxd.systemd import install

    settings = settings_of(ctx)
    wanted = install.Wanted(
        program=(program or Path(sys.argv[0])).absolute(),
        example=example_toml(),
        data=_address(settings.data.host, settings.data.port),
        admin=_address(settings.admin.host, settings.admin.port),
        sockets=sockets,
        credential=credential,
        now=now,
    )
    made, commands = install.files_for(wanted), install.commands_for(wanted)
    if dry_run:
        for file in made:
            kept = ", kept if it is there" if file.is_kept else ""
            typer.echo(f"# {file.path} (mode {file.mode:04o}{kept})")
            typer.echo("(a new token)\n" if file.is_secret else file.text)
        for command in commands:
            typer.echo(f"# {shlex.join(command)}")
        return
    for line in install.write(made, root or Path("/")):
        typer.echo(line)
    for command in () if root is not None else commands:
        install.run(command)
        typer.echo(f"ran      {shlex.join(command)}")


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
