"""`pdmuxd apply`: make tenants and policy as a file says."""

from __future__ import annotations

from typing import Annotated

import typer

from pdmuxd.controlplane.api.config_bodies import json_schema
from pdmuxd.daemon.cli.admin_client import admin_client
from pdmuxd.daemon.cli.config_file import STANDARD_INPUT, Files, Prune, print_changes, read_files, send
from pdmuxd.daemon.cli.output import AsJson, print_json


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Example: pdmuxd apply -f tenants.yaml --dry-run")(apply)


def apply(
    ctx: typer.Context,
    files: Files = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would change, and stop.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    prune: Prune = False,
    force: Annotated[
        bool, typer.Option("--force", help="Set targets that are predicted to be infeasible, too.")
    ] = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the files' JSON Schema, for editors, and stop.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make tenants and policy as YAML files say, all of it or nothing; applied twice, it changes nothing.

    A tenant that is named becomes what the files say: what they leave out gets its default.
    """
    if schema:
        print_json(json_schema())
        return
    if STANDARD_INPUT in (files or ()) and not (yes or dry_run):
        raise typer.BadParameter("standard input has the file, so it cannot answer: give --yes or --dry-run")
    whole = read_files(files)
    with admin_client(ctx) as client:
        version = None
        if not yes or dry_run:
            planned = send(client, whole, prune=prune, dry_run=True, force=force or dry_run)
            if dry_run and as_json:
                print_json(planned)
                return
            if not as_json:
                print_changes(planned)
            if dry_run or not planned["changed"]:
                typer.echo(planned["summary"] + (" (nothing was changed)" if planned["changed"] else ""))
                return
            typer.confirm(f"{planned['summary']}: apply it?", abort=True, err=True)
            version = planned["settings_version"]
        done = send(client, whole, prune=prune, force=force, if_match=version)
    if as_json:
        print_json(done)
        return
    if version is None:
        print_changes(done)
    typer.echo(f"{done['summary']} (settings version {done['settings_version']})")
