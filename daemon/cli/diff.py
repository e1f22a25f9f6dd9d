"""`pdmuxd diff`: whether what is in force has drifted from a file."""

from __future__ import annotations

import typer

from pdmuxd.daemon.cli.admin_client import admin_client
from pdmuxd.daemon.cli.config_file import Files, Prune, print_changes, read_files, send
from pdmuxd.daemon.cli.output import AsJson, print_json

DIFFERS = 3
"""The exit code where something differs, apart from 1, it did not work, and 2, it was asked wrongly."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Example: pdmuxd diff -f tenants.yaml --prune")(diff)


def diff(ctx: typer.Context, files: Files = None, prune: Prune = False, as_json: AsJson = False) -> int:
    """Say what applying YAML files would change. Exit code 0: nothing; 3: something."""
    whole = read_files(files)
    with admin_client(ctx) as client:
        found = send(client, whole, prune=prune, dry_run=True, force=True)
    if as_json:
        print_json(found)
    else:
        print_changes(found)
        typer.echo(found["summary"])
    return DIFFERS if found["changed"] else 0
