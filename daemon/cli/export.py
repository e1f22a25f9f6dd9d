"""`pdmuxd export`: tenants and policy as the file that `pdmuxd apply` reads."""

from __future__ import annotations

from typing import Any

import typer
import yaml

from pdmuxd.daemon.cli.admin_client import admin_client
from pdmuxd.daemon.cli.output import AsJson, print_json

_HEAD = "# Written by: pdmuxd export. API keys and admin tokens are not in it: only their hashes are stored."
_WIDTH = 120


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Example: pdmuxd export > tenants.yaml")(export)


def export(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Print all tenants and the policy as YAML; applied as it stands, it changes nothing."""
    with admin_client(ctx) as client:
        found = client.get_config()
    if as_json:
        print_json(found)
        return
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text = yaml.dump(_short(found), Dumper=dumper, sort_keys=False, default_flow_style=None, width=_WIDTH)
    typer.echo(f"{_HEAD}\n{text}", nl=False)


def _short(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Leave out what is null or empty, which is what it is when it is left out; whole numbers as such."""
    if isinstance(value, dict):
        return {name: _short(one) for name, one in value.items() if one is not None and one != {}}
    if isinstance(value, list):
        return [_short(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
