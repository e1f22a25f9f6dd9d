"""`pdmuxd install-sglang`: SGLang in an environment of its own, where the daemon finds it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pdmuxd.engine.sglang.api.versions import TESTED

EPILOG = """\b
Examples:
  pdmuxd install-sglang --dry-run
  pdmuxd install-sglang --folder /srv/sglang"""

_FOLDER = typer.Option("--folder", metavar="DIR", help="Where. Unset: `sglang` in the state directory.")
_VERSION = typer.Option("--version", metavar="X.Y.Z", help=f"One of {', '.join(TESTED)}.")
_DRY = typer.Option("--dry-run", help="Say what would be done, check the disk, and do nothing.")


def register(app: typer.Typer) -> None:
    """Add the `install-sglang` command."""
    app.command("install-sglang", epilog=EPILOG)(install_sglang)


def install_sglang(
    ctx: typer.Context,
    folder: Annotated[Path | None, _FOLDER] = None,
    version: Annotated[str, _VERSION] = TESTED[-1],
    dry_run: Annotated[bool, _DRY] = False,
) -> None:
    """Install SGLang, or finish an installation that was broken off. 11 GB, several minutes.

    The daemon finds it in the state directory by itself; for another folder set engine.sglang.python. Run it
    again after an update of pdmuxd: the plugin there has to be of the daemon's version, and the rest stays.
    """
    from pdmuxd.daemon.cli.admin_address import settings_of
    from pdmuxd.daemon.settings.places import SGLANG_FOLDER
    from pdmuxd.daemon.sglang_environment import install

    place = (settings_of(ctx).resolved_state_dir / SGLANG_FOLDER if folder is None else folder).absolute()
    wanted = install.plan(place, version)
    install.check_disk(place)
    if dry_run:
        pins = f"versions of {wanted.lock}" if wanted.lock is not None else "what fits it now"
        typer.echo(f"would install SGLang {wanted.version} ({pins}) into {place}")
        return
    install.install(wanted, typer.echo)
    if folder is not None:
        typer.echo(f'for the daemon: engine.sglang.python = "{wanted.python}"')
