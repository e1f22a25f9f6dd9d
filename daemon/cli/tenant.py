"""`pdmuxd tenant`: tenants and their API keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import quote

import typer

from pdmuxd.controlplane.milliseconds import to_ms
from pdmuxd.daemon.cli.admin_client import admin_client
from pdmuxd.daemon.cli.durations import Expires, duration_s, lifetime_of
from pdmuxd.daemon.cli.output import AsJson, instant, print_fields, print_json, print_secret, print_table
from pdmuxd.daemon.cli.slo import Attainment, Tbt, TtftFixed, TtftPer1k, changed, columns_of, fields_of
from pdmuxd.engine.core.slo import DEFAULT_SLO

app = typer.Typer(help="Manage tenants and their API keys.")
key_app = typer.Typer(help="Manage a tenant's API keys.")
app.add_typer(key_app, name="key")

DEFAULT_TARGETS = {
    "ttft_fixed_ms": to_ms(DEFAULT_SLO.ttft_fixed_s),
    "ttft_per_1k_new_tokens_ms": to_ms(DEFAULT_SLO.ttft_per_1k_new_tokens_s),
    "tbt_ms": to_ms(DEFAULT_SLO.tbt_s),
    "attainment_ratio": DEFAULT_SLO.attainment_ratio,
}

KeyId = Annotated[str, typer.Argument(metavar="KEY", help="The key's id, as listed.")]
TenantName = Annotated[str, typer.Argument(metavar="TENANT", help="The tenant's name.")]
MaxInFlight = Annotated[
    int | None,
    typer.Option("--max-in-flight", help="Requests that may be open at once.", show_default=False),
]


@app.command(epilog="Example: pdmuxd tenant create chat --tbt-ms 40")
def create(
    ctx: typer.Context,
    tenant: TenantName,
    ttft_fixed_ms: TtftFixed = None,
    ttft_per_1k_ms: TtftPer1k = None,
    tbt_ms: Tbt = None,
    attainment: Attainment = None,
    max_in_flight: MaxInFlight = None,
    cache_group: Annotated[
        str | None,
        typer.Option("--cache-group", help="Share the prefix cache with the tenants of this group."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create a tenant; targets that are not given get their defaults."""
    slo = {**DEFAULT_TARGETS, **changed(ttft_fixed_ms, ttft_per_1k_ms, tbt_ms, attainment)}
    body: dict[str, object] = {"name": tenant, "slo": slo}
    if max_in_flight is not None:
        body["max_in_flight"] = max_in_flight
    if cache_group is not None:
        body["cache_group"] = cache_group
    with admin_client(ctx) as client:
        created = client.post("/tenants", body)
    _print_tenant(created, as_json=as_json)
    if not as_json:
        typer.echo(f"It has no API key yet; issue one with: pdmuxd tenant key issue {tenant}")


@app.command("list", epilog="Example: pdmuxd tenant list --json")
def list_(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List all tenants."""
    with admin_client(ctx) as client:
        tenants = client.pages("/tenants")
    if as_json:
        print_json(tenants)
    else:
        print_table(
            [{**_columns(one), **columns_of(one["slo"])} for one in tenants], empty="there are no tenants"
        )


@app.command(epilog="Example: pdmuxd tenant show chat")
def show(ctx: typer.Context, tenant: TenantName, as_json: AsJson = False) -> None:
    """Show one tenant with its targets and keys."""
    with admin_client(ctx) as client:
        found = client.get(_path(tenant))
        keys = client.pages(f"{_path(tenant)}/keys")
    if as_json:
        print_json({**found, "keys": keys})
        return
    _print_tenant(found, as_json=False)
    print_table([_key_columns(key) for key in keys], empty="it has no API keys")


@app.command(epilog="Example: pdmuxd tenant enable chat")
def enable(ctx: typer.Context, tenant: TenantName, as_json: AsJson = False) -> None:
    """Let a tenant's keys work again."""
    _update(ctx, tenant, {"enabled": True}, as_json=as_json)


@app.command(epilog="Example: pdmuxd tenant disable chat")
def disable(ctx: typer.Context, tenant: TenantName, as_json: AsJson = False) -> None:
    """Refuse a tenant's keys; what it has in flight finishes, and nothing of it is deleted."""
    _update(ctx, tenant, {"enabled": False}, as_json=as_json)


@app.command(epilog="Example: pdmuxd tenant limit chat 64")
def limit(
    ctx: typer.Context,
    tenant: TenantName,
    max_in_flight: Annotated[int, typer.Argument(help="Requests that may be open at once.")],
    as_json: AsJson = False,
) -> None:
    """Limit how many requests a tenant may have open at once."""
    _update(ctx, tenant, {"max_in_flight": max_in_flight}, as_json=as_json)


@app.command(epilog="Example: pdmuxd tenant share-cache chat --group assistants")
def share_cache(
    ctx: typer.Context,
    tenant: TenantName,
    group: Annotated[str | None, typer.Option("--group", help="With the tenants of this group.")] = None,
    nobody: Annotated[bool, typer.Option("--nobody", help="With nobody any more.")] = False,
    as_json: AsJson = False,
) -> None:
    """Say with whom a tenant shares the prefix cache: who shares can tell what the others have sent."""
    if (group is None) != nobody:
        raise typer.BadParameter("give either --group NAME or --nobody")
    _update(ctx, tenant, {"cache_group": group}, as_json=as_json)


@app.command(epilog="Example: pdmuxd tenant delete chat --yes")
def delete(
    ctx: typer.Context,
    tenant: TenantName,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete a tenant with its keys and the history of its targets."""
    with admin_client(ctx) as client:
        keys = client.pages(f"{_path(tenant)}/keys")
        working = sum(key["revoked_at"] is None for key in keys)
        if not yes:
            question = f"Delete tenant {tenant}, its history and its keys ({working} in use)?"
            typer.confirm(question, abort=True, err=True)
        client.delete(_path(tenant))
    if as_json:
        print_json({"deleted": tenant})
    else:
        typer.echo(f"deleted tenant {tenant}")


@key_app.command(epilog="Example: pdmuxd tenant key issue chat --label laptop --expires 90d")
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
        key = client.post(f"{_path(tenant)}/keys", body)
    _print_issued(key, as_json=as_json)


@key_app.command(epilog="Example: pdmuxd tenant key rotate key_2f6c9a0b1d3e4f58 --overlap 7d")
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
        body = {"overlap_s": int(duration_s(overlap, "--overlap"))}
        key = client.post(f"/keys/{quote(key_id, safe='')}/rotate", body)
    _print_issued(key, as_json=as_json)


@key_app.command("list", epilog="Example: pdmuxd tenant key list chat")
def list_keys(ctx: typer.Context, tenant: TenantName, as_json: AsJson = False) -> None:
    """List a tenant's keys, revoked ones too; secrets are not known."""
    with admin_client(ctx) as client:
        keys = client.pages(f"{_path(tenant)}/keys")
    if as_json:
        print_json(keys)
    else:
        print_table([_key_columns(key) for key in keys], empty=f"tenant {tenant} has no API keys")


@key_app.command(epilog="Example: pdmuxd tenant key revoke key_2f6c9a0b1d3e4f58")
def revoke(
    ctx: typer.Context,
    key_id: KeyId,
    as_json: AsJson = False,
) -> None:
    """Revoke a key, at once and for good."""
    with admin_client(ctx) as client:
        key = client.delete(f"/keys/{quote(key_id, safe='')}")
    if as_json:
        print_json(key)
    else:
        print_fields(_key_columns(key))


def _path(tenant: str) -> str:
    return f"/tenants/{quote(tenant, safe='')}"


def _update(ctx: typer.Context, tenant: str, change: Mapping[str, object], *, as_json: bool) -> None:
    with admin_client(ctx) as client:
        updated = client.patch(_path(tenant), change)
    _print_tenant(updated, as_json=as_json)


def _print_tenant(tenant: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(tenant)
    else:
        more = {"shares cache": tenant["cache_group"] or "no", "created": instant(tenant["created_at"])}
        print_fields({**_columns(tenant), **more, **fields_of(tenant["slo"])})


def _columns(tenant: Mapping[str, Any]) -> dict[str, object]:
    return {
        "tenant": tenant["name"],
        "enabled": tenant["enabled"],
        "max in flight": tenant["max_in_flight"],
    }


def _print_issued(key: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(key)
        return
    fields = {"key": key["key_id"], "tenant": key["tenant"], "label": key["label"]}
    ends = {"expires": instant(key["expires_at"])} if key["expires_at"] else {}
    print_fields({**fields, "scopes": ", ".join(key["scopes"]), **ends})
    print_secret(key["secret"])


def _key_columns(key: Mapping[str, Any]) -> dict[str, object]:
    """What fits a terminal; `--json` has the rest."""
    return {
        "key": key["key_id"],
        "label": key["label"],
        "scopes": " ".join(key["scopes"]),
        "state": key["state"],
        "ends in": key["last4"],
        "last used": instant(key["last_used_at"]),
    }
