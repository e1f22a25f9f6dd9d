"""`pdmuxd web`: where the pages for a browser are."""

from __future__ import annotations

from typing import Annotated

import httpx
import typer

from pdmuxd.daemon.cli.top import Url, origin_given

EPILOG = """\b
Examples:
  pdmuxd web
  pdmuxd web --open
  ssh -N -L 8081:127.0.0.1:8081 node & pdmuxd web --url http://127.0.0.1:8081 --open"""
PATH = "/ui"
LOGIN_PATH = "/ui/login"
TIMEOUT_S = 10.0

Open = Annotated[bool, typer.Option("--open", help="Open them in this machine's browser.")]


def register(app: typer.Typer) -> None:
    """Add the `web` command."""
    app.command("web", epilog=EPILOG)(web)


def web(ctx: typer.Context, url: Url = None, open_: Open = False) -> None:
    """Print the address of the daemon's pages for a browser.

    The admin address serves them, behind a login with an admin or reader token. They need no internet.
    """
    origin = origin_given(ctx, url)
    try:
        status = httpx.get(origin + LOGIN_PATH, timeout=TIMEOUT_S, trust_env=False).status_code
    except httpx.HTTPError as error:
        said = f"no daemon answers at {origin} ({type(error).__name__}); start one with: pdmuxd serve"
        typer.echo(said, err=True)
        raise typer.Exit(1) from None
    if status != httpx.codes.OK:
        typer.echo(f"what answers at {origin} has no pages: {LOGIN_PATH} gave HTTP {status}", err=True)
        raise typer.Exit(1)
    typer.echo(f"{origin}{PATH}")
    if open_ and typer.launch(origin + PATH) != 0:
        typer.echo("no browser could be started here: open the address yourself", err=True)
