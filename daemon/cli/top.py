"""`pdmuxd top`: the console in a terminal."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from pdmuxd.engine.core.errors import AuthError

EPILOG = """\b
Examples:
  pdmuxd top
  ssh -L 8081:127.0.0.1:8081 node & pdmuxd top --url http://127.0.0.1:8081 --token-file ./token"""

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        envvar="PDMUXD_URL",
        help="The daemon's admin address. Left out: the running daemon's, else that of the settings.",
        show_default=False,
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="Holds the admin or the reader token. Left out: PDMUXD_ADMIN_TOKEN, else that of the settings.",
        show_default=False,
    ),
]
Token = Annotated[str | None, typer.Option("--token", envvar="PDMUXD_ADMIN_TOKEN", hidden=True)]
Light = Annotated[bool, typer.Option("--light", help="Begin with colours for a light background.")]


def register(app: typer.Typer) -> None:
    """Add the `top` command."""
    app.command("top", epilog=EPILOG)(top)


def top(
    ctx: typer.Context,
    url: Url = None,
    token_file: TokenFile = None,
    token: Token = None,
    light: Light = False,
) -> None:
    """Watch the SM split, tenants and decisions live, and tune them."""
    # Collecting garbage among imported modules finds none and is a tenth of the time to the first screen.
    gc.disable()
    origin = origin_given(ctx, url)
    read_token = _token_reader(ctx, token_file, token)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise typer.BadParameter(
            "top needs a terminal; for scripts there are `pdmuxd slo` and the REST interface"
        )
    # Imported late, so that `--help` and wrong options answer at once.
    from pdmuxd.tui.client.target import Target
    from pdmuxd.tui.run import run_console

    target = Target(url=origin, token=read_token, console_version=version("pdmuxd"))
    raise typer.Exit(run_console(target, is_light=light))


def origin_given(ctx: typer.Context, url: str | None) -> str:
    """The daemon's admin address as asked for, else the running daemon's. Raises: typer.BadParameter."""
    if url is None:
        from pdmuxd.daemon.cli.admin_address import origin_of, settings_of
        from pdmuxd.daemon.process.lock import holder_of

        settings = settings_of(ctx)
        holder = holder_of(settings.resolved_state_dir)
        return (holder.admin_url if holder else None) or origin_of(settings.admin)
    parts = urlsplit(url)
    try:
        has_port = parts.port is None or parts.port > 0
    except ValueError:
        has_port = False
    if parts.scheme not in ("http", "https") or not parts.hostname or not has_port:
        raise typer.BadParameter(f"--url is {url!r}; allowed is an address such as http://127.0.0.1:8081")
    return url.rstrip("/")


def _token_reader(ctx: typer.Context, path: Path | None, token: str | None) -> Callable[[], str]:
    """Reads the token at once, so that a wrong path is said here, and again when asked.

    Raises: AuthError.
    """
    from pdmuxd.daemon.cli.admin_address import read_token, settings_of

    if path is None and token:
        return lambda: token
    file = path if path is not None else settings_of(ctx).resolved_token_file
    last = read_token(file)

    def read() -> str:
        nonlocal last
        # The file may just be replaced: try the last token; if it is no longer valid, the daemon says so.
        with contextlib.suppress(AuthError):
            last = read_token(file)
        return last

    return read
