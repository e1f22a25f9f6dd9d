"""`pdmuxd limit`: what tenants and keys may use, and what of it they have used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import typer

from pdmuxd.controlplane.tenants.limit_values import NAMES, LimitAction
from pdmuxd.daemon.cli.admin_client import AdminClient, admin_client
from pdmuxd.daemon.cli.output import AsJson, print_json, print_table
from pdmuxd.daemon.cli.tenant_options import NONE, TenantName

if TYPE_CHECKING:
    from pdmuxd.tui.client.api import models

app = typer.Typer(help="Limit what tenants and their keys may use.")

OfKey = Annotated[
    str | None, typer.Option("--key", metavar="KEY", help="Of this key of the tenant, not of all together.")
]
_FORM = "NAME=VALUE, NAME=VALUE:wait, NAME=VALUE:refuse, or NAME=none"


def _names(incomplete: str) -> list[str]:
    return [f"{name}=" for name in NAMES if name.startswith(incomplete)]


@app.command(epilog="Example: pdmuxd limit show chat")
def show(ctx: typer.Context, tenant: TenantName, key: OfKey = None, as_json: AsJson = False) -> None:
    """Show the limits of a tenant or a key, and what of them is used now."""
    with admin_client(ctx) as client:
        found = _limits(client, tenant, key)
    _require_owner(found, tenant)
    _print(found, as_json=as_json)


@app.command("set", epilog="Example: pdmuxd limit set chat requests_per_min=600:wait tokens_per_day=none")
def set_(
    ctx: typer.Context,
    tenant: TenantName,
    limits: Annotated[
        list[str],
        typer.Argument(
            metavar="LIMIT...", help=f"{_FORM}. Names: {', '.join(NAMES)}.", autocompletion=_names
        ),
    ],
    key: OfKey = None,
    as_json: AsJson = False,
) -> None:
    """Set or remove limits; what is not named stays. Above one, requests wait or are refused (default)."""
    change = dict(_parsed(text) for text in limits)
    with admin_client(ctx) as client:
        _require_owner(_limits(client, tenant, key), tenant)
        body = cast("models.LimitsPatch", change)
        found = (
            client.change_tenant_limits(tenant, body) if key is None else client.change_key_limits(key, body)
        )
    _print(found, as_json=as_json)


def _limits(client: AdminClient, tenant: str, key: str | None) -> models.LimitsOut:
    return client.get_tenant_limits(tenant) if key is None else client.get_key_limits(key)


def _require_owner(found: Mapping[str, Any], tenant: str) -> None:
    """Refuse a key of another tenant. Raises: BadParameter."""
    if found["tenant"] != tenant:
        raise typer.BadParameter(f"key {found['key_id']} is of tenant {found['tenant']}, not {tenant}")


def _parsed(text: str) -> tuple[str, dict[str, object] | None]:
    """One LIMIT. Raises: BadParameter."""
    name, equals, rest = text.partition("=")
    if not equals or name not in NAMES:
        raise typer.BadParameter(f"{text[:60]!r} is no limit; write {_FORM}, with one of {', '.join(NAMES)}")
    if rest == NONE:
        return name, None
    value, _, action = rest.partition(":")
    if not value.isascii() or not value.isdecimal() or (action and action not in get_args(LimitAction)):
        raise typer.BadParameter(f"{text[:60]!r} is no limit; write {_FORM}")
    return name, {"value": int(value), **({"action": action} if action else {})}


def _print(found: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    rows = [
        {
            "limit": one["name"],
            "of": one["of"],
            "value": one["value"],
            "used": "" if one["used"] is None else one["used"],
            "above it": "wait" if one["action"] == "wait" else "refuse",
        }
        for one in found["limits"]
    ]
    print_table(rows, empty=f"there are no limits but max_in_flight, {found['max_in_flight']}")
    if rows:
        counted = "count" if found["count_cached_tokens"] else "do not count"
        typer.echo(f"max_in_flight is {found['max_in_flight']}; tokens from the prefix cache {counted}")
