"""`pdmuxd profile`: measure a model on this GPU, and keep, compare and activate what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from pdmuxd.daemon.cli import profile_files, profile_learned, profile_run
from pdmuxd.daemon.cli.admin_client import admin_client
from pdmuxd.daemon.cli.output import AsJson, instant, percent, print_fields, print_json, print_table
from pdmuxd.daemon.cli.profile_format import ProfileId, print_profile

app = typer.Typer(help="Measure a model on this GPU; list, compare and activate profiles.")

for part in (profile_run, profile_files, profile_learned):
    app.add_typer(part.app)


@app.command("list", epilog="Example: pdmuxd profile list")
def list_(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List all profiles, newest first."""
    with admin_client(ctx) as client:
        found = client.list_profiles()
    if as_json:
        print_json(found)
        return
    rows = [
        {
            "id": one["id"],
            "name": one["name"],
            "version": one["version"],
            "active": one["active"],
            "device": one["device"],
            "GPUs": one["gpus"],
            "model": one["model"],
            "samples": one["samples"],
            "worst p90": percent(round(one["worst_p90_error_ratio"], 4)),
            "made": instant(one["created_at"]),
        }
        for one in found
    ]
    print_table(rows, empty="there are no profiles: make one with pdmuxd profile run")


@app.command(epilog="Example: pdmuxd profile show 3")
def show(
    ctx: typer.Context,
    profile_id: Annotated[
        int | None, typer.Argument(metavar="[ID]", help="What is in force if left out.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show a profile with its errors on held-out samples, or what the policies predict with."""
    with admin_client(ctx) as client:
        active = client.get_active_profile()
        found = active if profile_id is None else client.get_profile(profile_id)
    if as_json:
        print_json(found)
        return
    profile = active["profile"] if profile_id is None else found
    if profile_id is None:
        print_fields({"predicts with": active["predicts_with"], "in force": active["in_force"]})
        if active["difference"]:
            typer.echo(f"the active profile does not fit this engine: {active['difference']}")
    if profile is None:
        typer.echo("no profile is active")
        return
    print_profile(profile)


@app.command(epilog="Example: pdmuxd profile diff 2 3")
def diff(ctx: typer.Context, before: ProfileId, after: ProfileId, as_json: AsJson = False) -> None:
    """List what differs from one profile to another."""
    with admin_client(ctx) as client:
        found = client.diff_profiles(before, after)
    if as_json:
        print_json(found)
        return
    rows = [
        {
            "quantity": one["quantity"],
            str(before): _number(one["before"], one["unit"]),
            str(after): _number(one["after"], one["unit"]),
            "change": _relative(one["before"], one["after"]),
        }
        for one in found
    ]
    print_table(rows, empty="the two are the same")


@app.command(epilog="Example: pdmuxd profile activate 3")
def activate(
    ctx: typer.Context,
    profile_id: ProfileId,
    force: Annotated[
        bool, typer.Option("--force", help="Even if it is inaccurate, or lacks SM counts.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Put a profile in force, without a restart. One of another GPU or model is refused."""
    with admin_client(ctx) as client:
        active = client.activate_profile(profile_id, {"force": force})
    _print_active(active, as_json)


@app.command(epilog="Example: pdmuxd profile deactivate")
def deactivate(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Let the engine predict with what it has of its own."""
    with admin_client(ctx) as client:
        active = client.deactivate_profile()
    _print_active(active, as_json)


@app.command(epilog="Example: pdmuxd profile rollback")
def rollback(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Put in force what was before the newest activation."""
    with admin_client(ctx) as client:
        active = client.roll_back_profile()
    _print_active(active, as_json)


def _print_active(active: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(active)
        return
    profile = active["profile"]
    named = (
        "none" if profile is None else f"{profile['id']} ({profile['name']}, version {profile['version']})"
    )
    print_fields({"active profile": named})
    if active["difference"]:
        typer.echo(f"it does not fit this engine: {active['difference']}")


def _number(value: float | None, unit: str) -> str:
    return "-" if value is None else f"{value:.4g} {unit}".strip()


def _relative(before: float | None, after: float | None) -> str:
    if before is None or after is None or not before:
        return ""
    return f"{after / before - 1.0:+.1%}"
