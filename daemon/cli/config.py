"""`pdmuxd config`: what is set, and what can be."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pdmuxd.daemon.settings import LoadedSettings

app = typer.Typer(help="Show the effective settings, or an example of all.")


@app.command("show", epilog="Example: pdmuxd --set data.port=8090 config show --json")
def show(
    ctx: typer.Context, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
) -> None:
    """Print every setting with its effective value and where it comes from. Passwords are masked."""
    from pdmuxd.daemon.settings.show import effective, table

    loaded: LoadedSettings = ctx.obj
    if as_json:
        typer.echo(json.dumps(effective(loaded), indent=2))
        return
    for line in table(loaded):
        typer.echo(line)


@app.command("example", epilog="Example: pdmuxd config example > pdmuxd.toml")
def example() -> None:
    """Print a pdmuxd.toml with every key, its default and what is allowed."""
    from pdmuxd.daemon.settings.example import example_toml

    typer.echo(example_toml(), nl=False)
