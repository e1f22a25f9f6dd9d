"""`pdmuxd token`: the token that only reads."""

from __future__ import annotations

import typer

from pdmuxd.daemon.serving.reader_token import ReaderToken

app = typer.Typer(help="Make and end the reader token, which may read everything and change nothing.")


@app.command(epilog="Example: pdmuxd token issue > reader-token")
def issue(ctx: typer.Context) -> None:
    """Make a reader token and print it, this once; one that there was ends.

    It works at once, also while the daemon runs. Only its hash is kept.
    """
    token = _token(ctx)
    secret = token.issue()
    typer.echo(secret)
    typer.echo(f"Its hash is in {token.path}; the token cannot be shown again.", err=True)


@app.command(epilog="Example: pdmuxd token revoke")
def revoke(ctx: typer.Context) -> None:
    """End the reader token, at once."""
    typer.echo("The reader token has ended." if _token(ctx).revoke() else "There is no reader token.")


@app.command(epilog="Example: pdmuxd token status")
def status(ctx: typer.Context) -> None:
    """Say whether there is a reader token."""
    token = _token(ctx)
    typer.echo(
        f"There is a reader token; its hash is in {token.path}."
        if token.sha256() is not None
        else "There is no reader token; make one with: pdmuxd token issue"
    )


def _token(ctx: typer.Context) -> ReaderToken:
    return ReaderToken(ctx.obj.settings.resolved_reader_token_file)
