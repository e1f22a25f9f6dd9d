"""`pdmuxd db`: the control plane's database.

What works on it is imported where it is used: that takes a while, and `--help` can do without.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from pdmuxd.daemon.cli.admin_address import settings_of
from pdmuxd.daemon.cli.admin_client import running_daemon
from pdmuxd.daemon.cli.output import AsJson, print_json
from pdmuxd.daemon.process.redaction import mask_url
from pdmuxd.engine.core.errors import PdmuxdError

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


@app.command(
    "backup",
    epilog="\b\nExamples:\n  pdmuxd db backup monday.db\n  pdmuxd db backup /backup/pdmuxd.db --every 10",
)
def backup_(
    ctx: typer.Context,
    path: Annotated[
        Path, typer.Argument(metavar="FILE", help="A file that does not exist yet, unless --every is given.")
    ],
    every_s: Annotated[
        float | None,
        typer.Option(
            "--every",
            min=1.0,
            max=86_400.0,
            help="Go on for good: replace FILE by a new copy so many seconds after the last one.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Copy the database to a file, also while the daemon runs. `pdmuxd db restore` puts it back.

    A running daemon is asked for its settings version first, and the copy must hold it.
    """
    _say_copied(path, _copy(ctx, path, replace=every_s is not None), as_json=as_json)
    while every_s is not None:
        time.sleep(every_s)
        try:
            _copy(ctx, path, replace=True)
        except PdmuxdError as error:
            # The daemon is being replaced, or the disk is full: the next one may succeed.
            typer.echo(f"not copied, {path} is as it was: {error}", err=True)


def _copy(ctx: typer.Context, path: Path, *, replace: bool) -> tuple[int, int | None]:
    """Settings versions: of the copy, and of the daemon before it; None where no daemon runs."""
    from pdmuxd.controlplane.database.opening import backup

    with running_daemon(ctx) as client:
        wanted = None if client is None else client.get_version()["settings_version"]
    url = settings_of(ctx).resolved_database_url
    return backup(url, path, at_least=wanted or 0, replace=replace), wanted


def _say_copied(path: Path, versions: tuple[int, int | None], *, as_json: bool) -> None:
    version, wanted = versions
    if as_json:
        print_json({"backup": str(path), "settings_version": version, "daemon_settings_version": wanted})
        return
    of_daemon = "no daemon runs" if wanted is None else f"the daemon serves by version {wanted}"
    typer.echo(f"backed up to {path}, at settings version {version}; {of_daemon}")


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
