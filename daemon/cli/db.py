"""`pdmuxd db`: the control plane's database.

What works on it is imported where it is used: that takes a while, and `--help` can do without.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from pdmuxd.daemon.cli.admin_address import settings_of
from pdmuxd.daemon.cli.output import AsJson, print_json
from pdmuxd.daemon.process.redaction import mask_url

app = typer.Typer(help="Upgrade, check, back up and restore the database.")


@app.command("upgrade", epilog="Example: pdmuxd db upgrade")
def upgrade_(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Create the database, or bring its schema to this version's."""
    from pdmuxd.controlplane.database.opening import upgrade

    url = settings_of(ctx).resolved_database_url
    _say(url, upgrade(url), as_json=as_json)


@app.command("check", epilog="Example: pdmuxd db check")
def check_(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Check that the database is whole and of this version's schema."""
    from pdmuxd.controlplane.services.consistency import check

    url = settings_of(ctx).resolved_database_url
    _say(url, check(url), as_json=as_json)


@app.command("backup", epilog="Example: pdmuxd db backup pdmuxd-monday.db")
def backup_(
    ctx: typer.Context,
    path: Annotated[Path, typer.Argument(metavar="FILE", help="A file that does not exist yet.")],
    as_json: AsJson = False,
) -> None:
    """Copy the database to a file, also while the daemon runs. `pdmuxd db restore` puts it back."""
    from pdmuxd.controlplane.database.opening import backup

    backup(settings_of(ctx).resolved_database_url, path)
    if as_json:
        print_json({"backup": str(path)})
    else:
        typer.echo(f"backed up to {path}")


@app.command("restore", epilog="Example: pdmuxd db restore pdmuxd-monday.db")
def restore_(
    ctx: typer.Context,
    path: Annotated[Path, typer.Argument(metavar="FILE", help="What `pdmuxd db backup` wrote.")],
    as_json: AsJson = False,
) -> None:
    """Put a backup in the place of the database, which is kept beside it. The daemon must be stopped."""
    from pdmuxd.controlplane.database.opening import restore
    from pdmuxd.daemon.process.lock import exclusive
    from pdmuxd.migrations import head_revision

    settings = settings_of(ctx)
    settings.resolved_state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    with exclusive(settings.resolved_state_dir):
        revision, kept = restore(settings.resolved_database_url, path, now=datetime.now(UTC))
    if as_json:
        print_json({"restored": str(path), "revision": revision, "kept": str(kept) if kept else None})
        return
    typer.echo(f"restored {path}, at schema {revision}")
    if kept is not None:
        typer.echo(f"what was there before is in {kept}")
    if revision != head_revision():
        typer.echo("it is of an older schema; run: pdmuxd db upgrade")


def _say(url: str, revision: str, *, as_json: bool) -> None:
    shown = mask_url(url)
    if as_json:
        print_json({"database": shown, "revision": revision})
    else:
        typer.echo(f"{shown} is at schema {revision}")
