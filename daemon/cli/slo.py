"""`pdmuxd slo`: show and set latency targets."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from pdmuxd.daemon.cli.admin_client import AdminClient, admin_client
from pdmuxd.daemon.cli.option_groups import with_option_groups
from pdmuxd.daemon.cli.outlook import print_outlook
from pdmuxd.daemon.cli.output import (
    AsJson,
    instant,
    milliseconds,
    percent,
    print_fields,
    print_json,
    print_table,
)
from pdmuxd.daemon.cli.tenant_options import SloOptions, TenantName
from pdmuxd.daemon.cli.tuning import candidates, first_kept, in_a_line, proposals, require_traffic
from pdmuxd.daemon.cli.what_if import follow, print_outcomes

if TYPE_CHECKING:
    from pdmuxd.tui.client.api import models

app = typer.Typer(help="Show and set tenants' latency targets.")

IN_FORCE_WITHIN_S = 2.0
"""Twice the time within which an edit must reach the engine."""
_POLL_S = 0.05


@app.command(epilog="Example: pdmuxd slo show chat")
def show(
    ctx: typer.Context,
    tenant: Annotated[str | None, typer.Argument(metavar="[TENANT]", help="All tenants if left out.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the targets of one tenant or of all, and whether the engine already works with them."""
    with admin_client(ctx) as client:
        if tenant is not None:
            slo = client.get_slo(tenant)
            if as_json:
                print_json(slo)
            else:
                print_fields({"tenant": tenant, **fields_of(slo)})
                _say_who_sets_the_split(client)
            return
        slos = {one["name"]: one["slo"] for one in client.iter_tenants()}
        if as_json:
            print_json(slos)
        else:
            print_table(
                [{"tenant": name, **columns_of(slo)} for name, slo in slos.items()],
                empty="there are no tenants",
            )
            _say_who_sets_the_split(client)


@app.command("set", epilog="Example: pdmuxd slo set chat --tbt-ms 40 --ttft-fixed-ms 500")
@with_option_groups
def set_(
    ctx: typer.Context,
    tenant: TenantName,
    targets: SloOptions,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what they would give, and set nothing.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Set targets that are predicted to be infeasible, too.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Set targets; those that are not given stay. In force within a second, without a restart.

    Says what is predicted of them at the load of the last minutes, and refuses what is infeasible then.
    """
    if dry_run:
        _preview(ctx, tenant, targets, as_json=as_json)
        return
    changes = targets.given()
    if not changes:
        raise typer.BadParameter(
            "give at least one of --ttft-fixed-ms, --ttft-per-1k-ms, --tbt-ms, --attainment, --e2e-ms"
        )
    with admin_client(ctx) as client:
        before = client.get_slo(tenant)
        wanted = cast("models.SloIn", without_none({**targets_of(before), **changes}))
        done = client.set_slo(tenant, wanted, force=force, if_match=before["version"])
        outlook = done["outlook"]
        after = when_in_force(client, tenant, done)
        if as_json:
            print_json({**after, "outlook": outlook})
        else:
            print_fields({"tenant": tenant, **fields_of(after)})
            if outlook is not None:
                print_outlook(outlook)
            _say_who_sets_the_split(client)


@app.command(epilog="Example: pdmuxd slo preview chat --tbt-ms 20")
@with_option_groups
def preview(
    ctx: typer.Context,
    tenant: TenantName,
    targets: SloOptions,
    as_json: AsJson = False,
) -> None:
    """Predict what all tenants would get with these targets, at the load of the last minutes.

    Nothing is changed.
    """
    _preview(ctx, tenant, targets, as_json=as_json)


@app.command(epilog="Example: pdmuxd slo tune chat --policies auto,muxwise --tbt-ms 15,20,30")
def tune(
    ctx: typer.Context,
    tenant: TenantName,
    tbt_ms: Annotated[
        str | None,
        typer.Option("--tbt-ms", help="TBT targets to try, with commas. Unset: from half of what holds."),
    ] = None,
    policies: Annotated[
        str | None, typer.Option("--policies", help="Policies to try, with commas. Unset: the one in force.")
    ] = None,
    minutes: Annotated[float, typer.Option(min=0.1, max=1440, help="Recent traffic to replay.")] = 10.0,
    yes: Annotated[bool, typer.Option("--yes", help="Apply the proposal without asking.")] = False,
    as_json: AsJson = False,
) -> None:
    """Propose the strictest targets, and the policy, that recent traffic would have kept for every tenant.

    Replays it on the emulator for each; nothing is applied without a yes.
    """
    with admin_client(ctx) as client:
        before = client.get_slo(tenant)
        variants = candidates(tenant, targets_of(before), tbt_ms, policies)
        done = follow(
            client, client.begin_replay(cast("models.ReplayIn", {"minutes": minutes, "variants": variants}))
        )
        require_traffic(tenant, done, before["attainment_ratio"])
        own = client.preview_slo(tenant, cast("models.SloIn", targets_of(before)))["tenants"][0]
        found = first_kept(
            proposals(
                tenant,
                done,
                variants,
                ttft_delivery_ms=own["ttft_delivery_ms"],
                gap_delivery_ms=own["gap_delivery_ms"],
            ),
            lambda targets: client.preview_slo(tenant, cast("models.SloIn", targets)),
        )
        if as_json:
            print_json({"proposal": found, "replay": done})
        else:
            print_outcomes(done)
            typer.echo(in_a_line(tenant, found))
        if found is None or as_json or not (yes or typer.confirm("Apply it?")):
            return
        if found["policy"] is not None:
            policy = client.get_policy()
            body = {
                "partitions": policy["partitions"],
                "shadow": policy["shadow"],
                "policy": found["policy"],
            }
            client.set_policy(cast("models.PolicyIn", body), if_match=policy["version"])
        after = client.set_slo(tenant, found["targets"], if_match=before["version"])
        print_fields({"tenant": tenant, **fields_of(when_in_force(client, tenant, after))})


@app.command(epilog="Example: pdmuxd slo history chat")
def history(
    ctx: typer.Context,
    tenant: TenantName,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Show only so many.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List the edits of a tenant's targets, newest first."""
    with admin_client(ctx) as client:
        revisions = client.list_slo_history(tenant, limit=limit)
    if as_json:
        print_json(revisions)
    else:
        print_table(
            [{**columns_of(one), "since": instant(one["created_at"])} for one in revisions],
            empty="there are no edits",
        )


def targets_of(slo: Mapping[str, Any]) -> dict[str, Any]:
    """The targets of an answer, as a request has them."""
    names = ("ttft_fixed_ms", "ttft_per_1k_new_tokens_ms", "tbt_ms", "attainment_ratio", "e2e_ms")
    return without_none({name: slo.get(name) for name in names})


def without_none(targets: Mapping[str, Any]) -> dict[str, Any]:
    """What is left out of a request is none: a daemon that does not know a target is not asked of it."""
    return {name: value for name, value in targets.items() if value is not None}


def fields_of(slo: Mapping[str, Any]) -> dict[str, object]:
    """An SLO for people, a field a line."""
    per_1k = milliseconds(slo["ttft_per_1k_new_tokens_ms"])
    return {
        "TTFT": f"{milliseconds(slo['ttft_fixed_ms'])} and {per_1k} per 1,000 new tokens",
        "TBT": milliseconds(slo["tbt_ms"]),
        "whole": "no target" if slo["e2e_ms"] is None else milliseconds(slo["e2e_ms"]),
        "attainment": percent(slo["attainment_ratio"]),
        "SLO version": f"{slo['version']} (settings version {slo['settings_version']})",
        "in force": slo["in_force"],
        "since": instant(slo["created_at"]),
    }


def columns_of(slo: Mapping[str, Any]) -> dict[str, object]:
    """The targets for people, a row each, short enough that a table fits a terminal."""
    return {
        "TTFT ms": f"{slo['ttft_fixed_ms']:.15g}",
        "per 1K ms": f"{slo['ttft_per_1k_new_tokens_ms']:.15g}",
        "TBT ms": f"{slo['tbt_ms']:.15g}",
        "whole ms": "" if slo["e2e_ms"] is None else f"{slo['e2e_ms']:.15g}",
        "share": percent(slo["attainment_ratio"]),
        "version": slo["version"],
        "in force": slo["in_force"],
    }


def _preview(ctx: typer.Context, tenant: str, targets: SloOptions, *, as_json: bool) -> None:
    changes = targets.given()
    with admin_client(ctx) as client:
        wanted = without_none({**targets_of(client.get_slo(tenant)), **changes})
        outlook = client.preview_slo(tenant, cast("models.SloIn", wanted))
    if as_json:
        print_json(outlook)
    else:
        print_outlook(outlook)


def when_in_force(client: AdminClient, tenant: str, done: models.SloSetOut | models.SloOut) -> models.SloOut:
    """Read the SLO until the engine has confirmed it, for at most IN_FORCE_WITHIN_S."""
    slo = cast("models.SloOut", {name: value for name, value in done.items() if name != "outlook"})
    if not client.is_daemon:
        return slo
    deadline_s = time.monotonic() + IN_FORCE_WITHIN_S
    while not slo["in_force"] and time.monotonic() < deadline_s:
        time.sleep(_POLL_S)
        slo = client.get_slo(tenant)
    return slo


@app.command(epilog="Example: pdmuxd slo cost")
def cost(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Show whose TBT target bound the last minutes, and the share of the prefill time that it cost all."""
    with admin_client(ctx) as client:
        costs = client.get_tbt_costs()
    if as_json:
        print_json(costs)
        return
    print_table(
        [
            {
                "tenant": one["tenant"],
                "TBT": milliseconds(one["tbt_ms"]),
                "strictest": percent(one["time_ratio"]),
                "others' TBT": milliseconds(one["others_tbt_ms"]),
                "prefill busy": percent(one["prefill_busy_ratio"]),
                "without": percent(one["prefill_busy_ratio_without"]),
                "costs": percent(one["prefill_ratio"]),
                "may cost": _most(one["max_tbt_cost_ratio"]),
                "capped since": instant(one["capped_since"]) if one["capped_since"] else "",
            }
            for one in costs
        ],
        empty="no two tenants have sent requests in the last minutes",
    )


def _most(ratio: float | None) -> str:
    return "any" if ratio is None else percent(ratio)


def _say_who_sets_the_split(client: AdminClient) -> None:
    strictest = client.get_engine()["strictest_tbt"]
    if strictest is not None:
        target = milliseconds(strictest["tbt_ms"])
        typer.echo(
            f"The strictest TBT is {target}, of tenant {strictest['tenant']}: decode is one batch on one "
            "partition, so while that tenant is active its target sets the split for all."
        )
