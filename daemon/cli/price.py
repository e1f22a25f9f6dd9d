"""`pdmuxd price`: what tokens cost, by tenant and model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from pdmuxd.controlplane.tenants.prices import CURRENCY_ALLOWED
from pdmuxd.daemon.cli.admin_client import admin_client
from pdmuxd.daemon.cli.output import AsJson, print_json, print_table

if TYPE_CHECKING:
    from pdmuxd.tui.client.api import models

app = typer.Typer(help="Say what tokens cost, so that usage is told in money too.")

Tenant = Annotated[str | None, typer.Option(metavar="NAME", help="Of this tenant; else of all without one.")]
Model = Annotated[str | None, typer.Option(metavar="MODEL", help="Of this model; else of every one.")]
_ALL = "every one"


@app.command(epilog="Example: pdmuxd price show")
def show(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Show the price list."""
    with admin_client(ctx) as client:
        found = client.get_prices()
    _print(found, as_json=as_json)


@app.command(
    "set", epilog="Example: pdmuxd price set --input 0.15 --cached 0.03 --output 0.60 --currency EUR"
)
def set_(
    ctx: typer.Context,
    given: Annotated[
        str, typer.Option("--input", metavar="PRICE", help="Of a million computed prompt tokens.")
    ],
    output: Annotated[str, typer.Option(metavar="PRICE", help="Of a million produced tokens.")],
    cached: Annotated[
        str | None,
        typer.Option(
            metavar="PRICE", help="Of a million prompt tokens from the prefix cache; else as --input."
        ),
    ] = None,
    tenant: Tenant = None,
    model: Model = None,
    currency: Annotated[
        str | None, typer.Option(help=f"Of all prices, {CURRENCY_ALLOWED}; else as it is.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Set one price; a PRICE is a decimal number. Usage is told by the prices that hold when it is shown."""
    line = {"tenant": tenant, "model": model, "input": given, "cached": cached or given, "output": output}
    with admin_client(ctx) as client:
        before = client.get_prices()
        body = {
            "currency": currency or before["currency"],
            "prices": [*_others(before, tenant, model), line],
        }
        if body["currency"] is None:
            raise typer.BadParameter(f"the first price needs a currency: --currency, {CURRENCY_ALLOWED}")
        found = client.set_prices(cast("models.PricesIn", body), if_match=before["version"])
    _print(found, as_json=as_json)


@app.command(epilog="Example: pdmuxd price remove --tenant chat")
def remove(ctx: typer.Context, tenant: Tenant = None, model: Model = None, as_json: AsJson = False) -> None:
    """Remove one price: that of a tenant, a model, both, or without either that of all."""
    with admin_client(ctx) as client:
        before = client.get_prices()
        left = _others(before, tenant, model)
        if len(left) == len(before["prices"]):
            raise typer.BadParameter(f"there is no price of tenant {tenant or _ALL}, model {model or _ALL}")
        body = {"currency": before["currency"] if left else None, "prices": left}
        found = client.set_prices(cast("models.PricesIn", body), if_match=before["version"])
    _print(found, as_json=as_json)


def _others(found: Mapping[str, Any], tenant: str | None, model: str | None) -> list[Mapping[str, Any]]:
    return [price for price in found["prices"] if (price["tenant"], price["model"]) != (tenant, model)]


def _print(found: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    rows = [
        {
            "tenant": price["tenant"] or _ALL,
            "model": price["model"] or _ALL,
            **{kind: price[kind] for kind in ("input", "cached", "output")},
        }
        for price in found["prices"]
    ]
    print_table(rows, empty="tokens have no prices")
    if rows:
        typer.echo(f"{found['currency']} for a million tokens")
