"""`pdmuxd serve`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pdmuxd.daemon.cli import completing
from pdmuxd.daemon.cli.engine_flags import ENGINE, MODEL, read_settings

if TYPE_CHECKING:
    from pdmuxd.daemon.settings import LoadedSettings

EXAMPLES = """\b
Examples:
  pdmuxd serve --first-run
  pdmuxd serve --port 8090 --policy static:96,36
  pdmuxd serve --engine sglang --model /srv/models/llama-3.1-8b-instruct"""

_FIRST_RUN = typer.Option(
    "--first-run", help="Migrate the database and create a first tenant with a key, where there is none."
)
_PORT = typer.Option("--port", metavar="PORT", help="Same as --set data.port=PORT.")
_ADMIN_PORT = typer.Option("--admin-port", metavar="PORT", help="Same as --set admin.port=PORT.")
_PROFILE = typer.Option(
    "--profile",
    metavar="NAME",
    help="Same as --set engine.profile=NAME.",
    autocompletion=completing.profiles,
)
_POLICY = typer.Option(
    "--policy",
    metavar="POLICY",
    help="Same as --set engine.policy=POLICY.",
    autocompletion=completing.policies,
)


def register(app: typer.Typer) -> None:
    """Add the `serve` command."""
    app.command("serve", epilog=EXAMPLES)(serve)


def serve(
    ctx: typer.Context,
    first_run: Annotated[bool, _FIRST_RUN] = False,
    port: Annotated[str | None, _PORT] = None,
    admin_port: Annotated[str | None, _ADMIN_PORT] = None,
    engine: Annotated[str | None, ENGINE] = None,
    model: Annotated[str | None, MODEL] = None,
    profile: Annotated[str | None, _PROFILE] = None,
    policy: Annotated[str | None, _POLICY] = None,
) -> int:
    """Run the daemon: the data plane, the admin plane, and an engine that it keeps running.

    SIGTERM or Ctrl-C lets requests in flight finish within drain_timeout_s; a second one stops at once.
    """
    from pdmuxd.daemon import app  # what only a daemon needs is imported when one starts

    flags = {
        "data.port": port,
        "admin.port": admin_port,
        "engine.kind": engine,
        "engine.sglang.model": model,
        "engine.profile": profile,
        "engine.policy": policy,
    }
    return app.serve(_loaded(ctx, flags), first_run=first_run, reread=lambda: read_settings(ctx, flags))


def _loaded(ctx: typer.Context, flags: dict[str, str | None]) -> LoadedSettings:
    """The settings with this command's own flags above those of the root command."""
    from pdmuxd.daemon.process.logging import configure_logging

    loaded = read_settings(ctx, flags)
    configure_logging(loaded.settings.log.level, loaded.settings.log.format)
    return loaded
