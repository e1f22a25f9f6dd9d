"""`pdmuxd tenant key`: the API keys of a tenant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from pdmuxd.daemon.cli.admin_client import admin_client
from pdmuxd.daemon.cli.durations import Expires, duration_s, lifetime_of
from pdmuxd.daemon.cli.output import AsJson, instant, print_fields, print_json, print_secret, print_table
from pdmuxd.daemon.cli.tenant_options import TenantName

if TYPE_CHECKING:
    from pdmuxd.tui.client.api import models

app = typer.Typer(help="Manage a tenant's API keys.")

KeyId = Annotated[str, typer.Argument(metavar="KEY", help="The key's id, as listed.")]


@app.command(epilog="Example: pdmuxd tenant key issue chat --label laptop --expires 90d")
def issue(
    ctx: typer.Context,
    tenant: TenantName,
    label: Annotated[str, typer.Option(help="To tell keys apart.")] = "",
    scopes: Annotated[
        list[str] | None,
        typer.Option("--scope", help="serve, read or admin; may be repeated. Left out: serve."),
    ] = None,
    expires: Expires = None,
    as_json: AsJson = False,
) -> None:
    """Issue a key; its secret is shown this once."""
    body: dict[str, object] = {"label": label, "lifetime_s": lifetime_of(expires)}
    if scopes:
        body["scopes"] = scopes
    with admin_client(ctx) as client:
        key = client.issue_key(tenant, cast("models.KeyIn", body))
    _print_issued(key, as_json=as_json)


@app.command(epilog="Example: pdmuxd tenant key rotate key_2f6c9a0b1d3e4f58 --overlap 7d")
def rotate(
    ctx: typer.Context,
    key_id: KeyId,
    overlap: Annotated[
        str, typer.Option(metavar="DURATION", help="How long the old secret stays good: 0s, 12h, 7d.")
    ] = "1d",
    as_json: AsJson = False,
) -> None:
    """Issue a key in the place of another, which ends after the overlap."""
    with admin_client(ctx) as client:
        key = client.rotate_key(key_id, {"overlap_s": int(duration_s(overlap, "--overlap"))})
    _print_issued(key, as_json=as_json)


@app.command("list", epilog="Example: pdmuxd tenant key list chat")
def list_keys(ctx: typer.Context, tenant: TenantName, as_json: AsJson = False) -> None:
    """List a tenant's keys, revoked ones too; secrets are not known."""
    with admin_client(ctx) as client:
        keys = list(client.iter_keys(tenant))
    if as_json:
        print_json(keys)
    else:
        print_table([key_columns(key) for key in keys], empty=f"tenant {tenant} has no API keys")


@app.command(epilog="Example: pdmuxd tenant key revoke key_2f6c9a0b1d3e4f58")
def revoke(
    ctx: typer.Context,
    key_id: KeyId,
    as_json: AsJson = False,
) -> None:
    """Revoke a key, at once and for good."""
    with admin_client(ctx) as client:
        key = client.revoke_key(key_id)
    if as_json:
        print_json(key)
    else:
        print_fields(key_columns(key))


def _print_issued(key: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(key)
        return
    fields = {"key": key["key_id"], "tenant": key["tenant"], "label": key["label"]}
    ends = {"expires": instant(key["expires_at"])} if key["expires_at"] else {}
    print_fields({**fields, "scopes": ", ".join(key["scopes"]), **ends})
    print_secret(key["secret"])


def key_columns(key: Mapping[str, Any]) -> dict[str, object]:
    """What fits a terminal; `--json` has the rest."""
    return {
        "key": key["key_id"],
        "label": key["label"],
        "scopes": " ".join(key["scopes"]),
        "state": key["state"],
        "ends in": key["last4"],
        "last used": instant(key["last_used_at"]),
    }
