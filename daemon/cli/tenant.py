"""`pdmuxd tenant`: tenants, their limits and shares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from pdmuxd.controlplane.milliseconds import to_ms
from pdmuxd.daemon.cli import tenant_key
from pdmuxd.daemon.cli.admin_client import admin_client
from pdmuxd.daemon.cli.option_groups import with_option_groups
from pdmuxd.daemon.cli.output import (
    AsJson,
    instant,
    milliseconds,
    percent,
    print_fields,
    print_json,
    print_table,
)
from pdmuxd.daemon.cli.slo import columns_of, fields_of, when_in_force, without_none
from pdmuxd.daemon.cli.tenant_options import ShareOptions, SloOptions, TenantName
from pdmuxd.engine.core.slo import DEFAULT_SLO

if TYPE_CHECKING:
    from pdmuxd.tui.client.api import models

app = typer.Typer(help="Manage tenants and their API keys.")
app.add_typer(tenant_key.app, name="key")

DEFAULT_TARGETS = {
    "ttft_fixed_ms": to_ms(DEFAULT_SLO.ttft_fixed_s),
    "ttft_per_1k_new_tokens_ms": to_ms(DEFAULT_SLO.ttft_per_1k_new_tokens_s),
    "tbt_ms": to_ms(DEFAULT_SLO.tbt_s),
    "attainment_ratio": DEFAULT_SLO.attainment_ratio,
}


@app.command(epilog="Example: pdmuxd tenant create chat --tbt-ms 40")
@with_option_groups
def create(
    ctx: typer.Context,
    tenant: TenantName,
    targets: SloOptions,
    share: ShareOptions,
    cache_group: Annotated[
        str | None,
        typer.Option("--cache-group", help="Share the prefix cache with the tenants of this group."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create a tenant; what is not given gets its default."""
    slo = without_none({**DEFAULT_TARGETS, **targets.given()})
    given = share.given()
    if cache_group is not None:
        given["cache_group"] = cache_group
    body: dict[str, object] = {"name": tenant, "slo": slo, **given}
    with admin_client(ctx) as client:
        created = client.create_tenant(cast("models.TenantIn", body))
        created["slo"] = when_in_force(client, tenant, created["slo"])
    _print_tenant(created, as_json=as_json)
    if not as_json:
        typer.echo(f"It has no API key yet; issue one with: pdmuxd tenant key issue {tenant}")


@app.command("list", epilog="Example: pdmuxd tenant list --json")
def list_(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List all tenants."""
    with admin_client(ctx) as client:
        tenants = list(client.iter_tenants())
    if as_json:
        print_json(tenants)
    else:
        print_table([_tenant_columns(one) for one in tenants], empty="there are no tenants")


@app.command(epilog="Example: pdmuxd tenant show chat")
def show(ctx: typer.Context, tenant: TenantName, as_json: AsJson = False) -> None:
    """Show one tenant with its targets and keys."""
    with admin_client(ctx) as client:
        found = client.get_tenant(tenant)
        keys = list(client.iter_keys(tenant))
    if as_json:
        print_json({**found, "keys": keys})
        return
    _print_tenant(found, as_json=False)
    print_table([tenant_key.key_columns(key) for key in keys], empty="it has no API keys")


@app.command(epilog="Example: pdmuxd tenant enable chat")
def enable(ctx: typer.Context, tenant: TenantName, as_json: AsJson = False) -> None:
    """Let a tenant's keys work again."""
    _update(ctx, tenant, {"enabled": True}, as_json=as_json)


@app.command(epilog="Example: pdmuxd tenant disable chat")
def disable(ctx: typer.Context, tenant: TenantName, as_json: AsJson = False) -> None:
    """Refuse a tenant's keys; what it has in flight finishes, and nothing of it is deleted."""
    _update(ctx, tenant, {"enabled": False}, as_json=as_json)


@app.command(epilog="Example: pdmuxd tenant alias chat 'claude-*' gpt-4o")
def alias(
    ctx: typer.Context,
    tenant: TenantName,
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Names, each with * at its end or without; these alone are known from now on."),
    ] = None,
    nothing: Annotated[bool, typer.Option("--none", help="No other name any more.")] = False,
    as_json: AsJson = False,
) -> None:
    """Say under which other names a tenant's requests may ask for the served model."""
    if bool(names) == nothing:
        raise typer.BadParameter("give either names or --none")
    _update(ctx, tenant, {"model_aliases": names or []}, as_json=as_json)


@app.command("set", epilog="Example: pdmuxd tenant set chat --class interactive --weight 2")
@with_option_groups
def set_(
    ctx: typer.Context,
    tenant: TenantName,
    share: ShareOptions,
    as_json: AsJson = False,
) -> None:
    """Change a tenant's share of the GPU; what is not given stays. Targets: pdmuxd slo set."""
    change = share.given()
    if not change:
        raise typer.BadParameter("give at least one of the options; pdmuxd tenant set --help lists them")
    _update(ctx, tenant, change, as_json=as_json)


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
        keys = list(client.iter_keys(tenant))
        working = sum(key["revoked_at"] is None for key in keys)
        if not yes:
            question = f"Delete tenant {tenant}, its history and its keys ({working} in use)?"
            typer.confirm(question, abort=True, err=True)
        client.delete_tenant(tenant)
    if as_json:
        print_json({"deleted": tenant})
    else:
        typer.echo(f"deleted tenant {tenant}")


def _update(ctx: typer.Context, tenant: str, change: Mapping[str, object], *, as_json: bool) -> None:
    with admin_client(ctx) as client:
        updated = client.update_tenant(tenant, cast("models.TenantPatch", change))
    _print_tenant(updated, as_json=as_json)


def _print_tenant(tenant: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(tenant)
    else:
        print_fields({**_tenant_fields(tenant), **fields_of(tenant["slo"])})


def _tenant_columns(tenant: Mapping[str, Any]) -> dict[str, object]:
    """What of a tenant fits the row of a table on a terminal of 80 columns."""
    slo = columns_of(tenant["slo"])
    return {
        "tenant": tenant["name"],
        "enabled": tenant["enabled"],
        "limit": tenant["max_in_flight"],
        "class": tenant["priority_class"],
        "weight": f"{tenant['weight']:g}",
        **{name: slo[name] for name in ("TTFT ms", "TBT ms", "share", "in force")},
    }


def _tenant_fields(tenant: Mapping[str, Any]) -> dict[str, object]:
    wait, cost = tenant["max_wait_ms"], tenant["max_tbt_cost_ratio"]
    limits = [f"{name} {limit['value']} ({limit['action']})" for name, limit in tenant["limits"].items()]
    return {
        "tenant": tenant["name"],
        "enabled": tenant["enabled"],
        "max in flight": tenant["max_in_flight"],
        "class": tenant["priority_class"],
        "weight": f"{tenant['weight']:g}",
        "longest wait": "the engine's" if wait is None else milliseconds(wait),
        "late requests": {"serve": "are served", "refuse": "are refused"}[tenant["late_action"]],
        "TBT cost": "not limited" if cost is None else f"at most {percent(cost)} of all prefill time",
        "limits": ", ".join(limits) or "none but these",
        "cached tokens": "count" if tenant["count_cached_tokens"] else "do not count",
        "model aliases": ", ".join(tenant["model_aliases"]) or "none",
        "shares cache": tenant["cache_group"] or "no",
        "created": instant(tenant["created_at"]),
    }
