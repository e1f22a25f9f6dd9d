"""`pdmuxd version`."""

from __future__ import annotations

import json
import platform
from importlib.metadata import version
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the `version` command."""
    app.command("version", epilog="Example: pdmuxd version --json")(show)


def show(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Print the versions of pdmuxd and of the Python that runs it."""
    versions = {"pdmuxd": version("pdmuxd"), "python": platform.python_version()}
    if as_json:
        typer.echo(json.dumps(versions))
    else:
        typer.echo(f"pdmuxd {versions['pdmuxd']} (Python {versions['python']})")
