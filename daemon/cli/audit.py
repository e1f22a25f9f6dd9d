"""`pdmuxd audit`: who changed what."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from pdmuxd.controlplane.database.audit import APPLIED
from pdmuxd.daemon.cli.admin_client import admin_client
from pdmuxd.daemon.cli.output import AsJson, instant, print_json, print_table

_NAMED = 5


def register(app: typer.Typer) -> None:
    """Add the `audit` command."""
    app.command("audit", epilog="Example: pdmuxd audit --tenant chat --limit 5")(audit)


def audit(
    ctx: typer.Context,
    tenant: Annotated[str | None, typer.Option(help="Only what concerns this tenant.")] = None,
    who: Annotated[str | None, typer.Option(help="Only of this token or key.")] = None,
    action: Annotated[str | None, typer.Option(help="Only this, such as key.issue.")] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="INSTANT", help="Only from this instant on: 2026-11-25T14:00Z."),
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="INSTANT", help="Only before this instant.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=500, help="Show only so many.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List changes, newest first: who, when, why, and what was before and after."""
    with admin_client(ctx) as client:
        found = client.list_audit(
            tenant=tenant, who=who, action=action, since=since, until=until, limit=limit
        )
    if as_json:
        print_json(found)
    else:
        print_table([_columns(entry) for entry in found["entries"]], empty="nothing was changed")


def _columns(entry: Mapping[str, Any]) -> dict[str, object]:
    return {
        "when": instant(entry["at"]),
        "who": f"{entry['who_kind']} {entry['who']}",
        "from": entry["source"] or "",
        "what": f"{entry['action']} {entry['subject']}",
        "change": _tenants(entry["after"])
        if entry["action"] == APPLIED
        else _difference(entry["before"] or {}, entry["after"] or {}),
        "why": entry["why"] or "",
    }


def _tenants(after: Mapping[str, Any]) -> str:
    """The tenants that a configuration changed: of a thousand no table could show what."""
    names = list(after["tenants"])
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more + " (--json shows all)"


def _difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """The fields that changed; of something new or gone, that it is."""
    if not before or not after:
        return "new" if after else "gone"
    changed = [name for name in after if before.get(name) != after[name] and name != "version"]
    return ", ".join(f"{name} {_shown(before.get(name))} -> {_shown(after[name])}" for name in changed)


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
