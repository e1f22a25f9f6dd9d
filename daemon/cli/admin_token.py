"""`pdmuxd admin-token`: tokens of operators and their programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from pdmuxd.daemon.cli.admin_client import admin_client
from pdmuxd.daemon.cli.durations import Expires, lifetime_of
from pdmuxd.daemon.cli.output import AsJson, instant, print_fields, print_json, print_secret, print_table

if TYPE_CHECKING:
    from pdmuxd.tui.client.api import models

app = typer.Typer(help="Issue, list and revoke named tokens for the admin address.")

TokenName = Annotated[str, typer.Argument(metavar="NAME", help="Whose it is, such as deploy or alice.")]


@app.command(epilog="Example: pdmuxd admin-token issue deploy --expires 90d")
def issue(
    ctx: typer.Context,
    name: TokenName,
    role: Annotated[str, typer.Option(help="admin, or reader, which changes nothing.")] = "admin",
    expires: Expires = None,
    as_json: AsJson = False,
) -> None:
    """Issue a token; its secret is shown this once. The audit names it as who made a change."""
    with admin_client(ctx) as client:
        body = {"name": name, "role": role, "lifetime_s": lifetime_of(expires)}
        token = client.issue_admin_token(cast("models.AdminTokenIn", body))
    if as_json:
        print_json(token)
        return
    print_fields({"admin token": token["name"], "role": token["role"]})
    print_secret(token["secret"])


@app.command("list", epilog="Example: pdmuxd admin-token list")
def list_(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List the tokens, revoked ones too. The one in admin.token_file is not among them."""
    with admin_client(ctx) as client:
        tokens = client.list_admin_tokens()
    if as_json:
        print_json(tokens)
    else:
        print_table([_columns(token) for token in tokens], empty="there are no admin tokens but the file's")


@app.command(epilog="Example: pdmuxd admin-token revoke deploy")
def revoke(ctx: typer.Context, name: TokenName, as_json: AsJson = False) -> None:
    """Revoke a token, at once and for good."""
    with admin_client(ctx) as client:
        token = client.revoke_admin_token(name)
    if as_json:
        print_json(token)
    else:
        print_fields(_columns(token))


def _columns(token: Mapping[str, Any]) -> dict[str, object]:
    return {
        "name": token["name"],
        "role": token["role"],
        "ends in": token["last4"],
        "issued": instant(token["created_at"]),
        "by": token["created_by"],
        "expires": instant(token["expires_at"]),
        "revoked": instant(token["revoked_at"]),
        "last used": instant(token["last_used_at"]),
    }
