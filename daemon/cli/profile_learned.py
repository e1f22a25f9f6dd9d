"""`pdmuxd profile changes`, `freeze`, `thaw` and `reset`."""

from __future__ import annotations

from typing import Annotated

import typer

from pdmuxd.daemon.cli.admin_client import admin_client
from pdmuxd.daemon.cli.output import AsJson, instant, print_json, print_table
from pdmuxd.daemon.cli.profile_format import ProfileId

app = typer.Typer()


@app.command(epilog="Example: pdmuxd profile changes 3 --limit 20")
def changes(
    ctx: typer.Context,
    profile_id: ProfileId,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Show only so many.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List what serving has taught and when, newest first, with the evidence."""
    with admin_client(ctx) as client:
        found = client.list_profile_changes(profile_id, limit=limit)
    if as_json:
        print_json(found)
        return
    rows = [
        {
            "when": instant(one["created_at"]),
            "what": one["kind"] + (" (at its bound)" if one["at_bound"] else ""),
            "of": one["subject"],
            "before": f"{one['before']:.3g}",
            "after": f"{one['after']:.3g}",
            "evidence": one["evidence"],
        }
        for one in found
    ]
    print_table(rows, empty="nothing was learned yet")


@app.command(epilog="Example: pdmuxd profile freeze 3")
def freeze(ctx: typer.Context, profile_id: ProfileId) -> None:
    """Learn nothing any more while the profile is in force."""
    _set_frozen(ctx, profile_id, True)


@app.command(epilog="Example: pdmuxd profile thaw 3")
def thaw(ctx: typer.Context, profile_id: ProfileId) -> None:
    """Learn again."""
    _set_frozen(ctx, profile_id, False)


@app.command(epilog="Example: pdmuxd profile reset 3 --cell 36-2-0-5-3")
def reset(
    ctx: typer.Context,
    profile_id: ProfileId,
    cell: Annotated[
        str | None, typer.Option(metavar="CELL", help="Only this guard cell.", show_default=False)
    ] = None,
) -> None:
    """Forget what serving has taught, of one guard cell or altogether."""
    with admin_client(ctx) as client:
        if cell is None:
            client.reset_profile_learned(profile_id)
        else:
            client.reset_profile_cell(profile_id, cell)


def _set_frozen(ctx: typer.Context, profile_id: int, frozen: bool) -> None:
    with admin_client(ctx) as client:
        client.freeze_profile(profile_id, {"frozen": frozen})
