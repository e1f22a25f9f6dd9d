"""`pdmuxd web-console`: the console in a browser."""

from __future__ import annotations

import asyncio
import socket
from typing import Annotated

import typer

from pdmuxd.daemon.cli.top import Url, origin_given

EPILOG = """\b
Examples:
  pdmuxd web-console
  ssh -L 8082:127.0.0.1:8082 node   # then http://127.0.0.1:8082 in a browser here"""

LOOPBACK = "127.0.0.1"
PORT = 8082

Port = Annotated[
    int, typer.Option("--port", min=0, max=65535, metavar="PORT", help="Where on loopback; 0 takes any.")
]


def register(app: typer.Typer) -> None:
    """Add the `web-console` command."""
    app.command("web-console", epilog=EPILOG)(serve)


def serve(ctx: typer.Context, url: Url = None, port: Port = PORT) -> None:
    """Serve the console to browsers on this machine, behind a login with the admin or reader token.

    It listens on 127.0.0.1 only; from elsewhere, forward the port with ssh. It needs no internet.
    """
    origin = origin_given(ctx, url)
    # Imported late: a browser's console is one command of many.
    from pdmuxd.daemon.web.server import WebConsole, serve_until_told

    try:
        listener = socket.create_server((LOOPBACK, port))
    except OSError as error:
        raise typer.BadParameter(
            f"--port: cannot listen on {LOOPBACK}:{port}: {error.strerror}; choose another"
        ) from None
    bound = int(listener.getsockname()[1])
    said = f"the console of {origin} is at http://{LOOPBACK}:{bound}/ (Ctrl+C ends it)"
    app = WebConsole(origin, port=bound).app()
    asyncio.run(serve_until_told(app, listener, on_ready=lambda: typer.echo(said)))
