"""`pdmuxd status`: one look at the running daemon."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import typer

from pdmuxd.controlplane.events.messages import IncidentEvent
from pdmuxd.daemon.cli.admin_address import settings_of
from pdmuxd.daemon.cli.admin_client import AdminClient, running_daemon
from pdmuxd.daemon.cli.output import AsJson, instant, percent, print_fields, print_json, print_table
from pdmuxd.engine.core.errors import PdmuxdError
from pdmuxd.tui.show.incidents import harm_in_words, help_in_words, missed_in_words

EPILOG = """\b
Examples:
  pdmuxd status
  pdmuxd status --json | jq .engine.state"""

WINDOW_MS = 300_000.0
"""Targets met and missed are those of the last five minutes."""
SHOWN = 50
"""Tenants: as many as one can look through."""
_WITHOUT_DATABASE = ("database_lost", "database_unwritable")
INCIDENTS = 5
"""Those that are open first, then the newest."""


def register(app: typer.Typer) -> None:
    """Add the `status` command."""
    app.command("status", epilog=EPILOG)(status)


def status(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Show the daemon, its engine, what is in flight, the tenants' targets and the alarms.

    The exit code is 0 if the engine serves, and 1 if it does not or no daemon runs.
    """
    with running_daemon(ctx) as client:
        if client is None:
            _say_that_none_runs(ctx, as_json=as_json)
            raise typer.Exit(1)
        engine = client.get_engine()
        found = {
            "running": True,
            "admin": client.where,
            "version": client.get_version()["version"],
            "engine": engine,
            "alarms": (alarms := client.list_alarms()["active"]),
            "duties": client.list_duties(),
            **_tenants(client),
            **_incidents(client, alarms),
        }
    if as_json:
        print_json(found)
    else:
        _print(found)
    if engine["state"] != "serving":
        raise typer.Exit(1)


def _tenants(client: AdminClient) -> dict[str, Any]:
    """All tenants if they are few; of more those that miss their targets, then others that are active."""
    page = client.get_attainment(limit=SHOWN)
    if page["totals"] is not None and page["totals"]["tenants"] > SHOWN:
        missed = client.get_attainment(state="missed", limit=SHOWN)["tenants"]
        active = client.get_attainment(active=True, limit=SHOWN)["tenants"]
        found = {tenant["tenant"]: tenant for tenant in (*missed, *active)}
        page["tenants"] = list(found.values())[:SHOWN]
    return {"totals": page["totals"], "tenants": page["tenants"]}


def _incidents(client: AdminClient, alarms: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The last ones, or why they cannot be read: the rest of `status` needs no database."""
    for alarm in alarms:
        if alarm["kind"] in _WITHOUT_DATABASE:
            return {"incidents": None, "incidents_unknown": f"see the alarm {alarm['kind']}"}
    try:
        return {"incidents": client.list_incidents(limit=INCIDENTS)["incidents"]}
    except PdmuxdError as error:  # also that it did not answer in time
        return {"incidents": None, "incidents_unknown": str(error)}


def _say_that_none_runs(ctx: typer.Context, *, as_json: bool) -> None:
    state_dir = settings_of(ctx).resolved_state_dir
    if as_json:
        print_json({"running": False, "state_dir": str(state_dir)})
    else:
        typer.echo(f"no daemon runs on the state directory {state_dir}; start one with: pdmuxd serve")


def _print(found: Mapping[str, Any]) -> None:
    engine, tenants, totals = found["engine"], found["tenants"], found["totals"]
    print_fields(
        {
            "daemon": f"pdmuxd {found['version']}, admin plane {found['admin']}",
            **engine_fields(engine),
            "in flight": in_flight_text(engine, totals["in_flight"]),
            "tenants": f"{totals['tenants']:,}; in 5 min {totals['met']:,} met their targets, "
            f"{totals['missed']:,} missed them",
            "duties": duties_text(found["duties"]),
        }
    )
    typer.echo()
    print_table([_columns(tenant) for tenant in tenants], empty="no tenant is active")
    if left := totals["tenants"] - len(tenants):
        typer.echo(f"and {left:,} more that are not shown; those that miss their targets come first")
    if found["incidents"] is None:
        typer.echo(f"incidents cannot be read: {found['incidents_unknown']}")
    else:
        _print_incidents(found["incidents"])
    _print_alarms(found["alarms"])


def duties_text(duties: Sequence[Mapping[str, Any]]) -> str:
    """What the daemon does by itself, and what of it fails."""
    failing = [f"{duty['name']} fails ({duty['failed']})" for duty in duties if duty["failed"]]
    return "; ".join(failing) or f"{len(duties)}, all of them go well"


def engine_fields(engine: Mapping[str, Any]) -> dict[str, object]:
    """The engine for people, a field a line."""
    held = ", drained by an operator: `pdmuxd engine resume` ends it" if engine["held"] else ""
    process = f", process {engine['pid']}" if engine["pid"] is not None else ""
    fields: dict[str, object] = {
        "engine": f"{engine['state']} since {instant(engine['since'])}{process}{held}",
        "restarts": engine["restarts"],
    }
    if engine["last_error"]:
        fields["last error"] = engine["last_error"]
    if engine["engine"] is not None:
        hello = engine["engine"]
        fields["model"] = f"{hello['model']} on {hello['device']} ({hello['engine']})"
    if engine["stats"] is not None:
        stats = engine["stats"]
        fields["policy"] = (
            f"{engine['policy']}: now {stats['prefill_sms']} prefill SMs, {stats['decode_sms']} decode"
        )
    wanted, acked = engine["wanted_version"], engine["acked_version"]
    if acked != wanted:
        fields["settings"] = f"version {wanted} is not in force yet; the engine has {acked}"
    return fields


def in_flight_text(engine: Mapping[str, Any], at_gateway: int) -> str:
    """What is in flight at the gateway, and what of it waits in the engine."""
    stats = engine["stats"]
    if stats is None or engine["state"] == "down":
        return f"{at_gateway} at the gateway"
    hidden = ", ".join(f"{count} {reason}" for reason, count in stats.get("hidden", {}).items() if count)
    return (
        f"{at_gateway} at the gateway; in the engine {stats['waiting']} waiting, "
        + (f"not shown to the policy: {hidden}; " if hidden else "")
        + f"{stats['prefilling']} in prefill, {stats['running']} in decode"
    )


def _columns(tenant: Mapping[str, Any]) -> dict[str, object]:
    return {
        "tenant": tenant["tenant"],
        "in flight": tenant["in_flight"],
        "waiting": _waiting(tenant),
        "asked": percent(tenant["target_ratio"]),
        "TTFT met": _met(tenant["ttft"]),
        "TBT met": _met(tenant["tbt"]),
        "served": _served(tenant["availability"]),
    }


def _waiting(tenant: Mapping[str, Any]) -> str:
    if not tenant["late_now"]:
        return str(tenant["waiting"])
    return f"{tenant['waiting']}, {tenant['late_now']} late (oldest {tenant['oldest_wait_ms'] / 1000:.1f} s)"


def _met(windows: Sequence[Mapping[str, Any]]) -> str:
    window = next(window for window in windows if window["window_ms"] == WINDOW_MS)
    if not window["judged"]:
        return "no traffic in 5 min"
    met = window["judged"] - window["missed"]
    return f"{met} of {window['judged']} ({percent(round(met / window['judged'], 4))})"


def _served(windows: Sequence[Mapping[str, Any]]) -> str:
    window = next(window for window in windows if window["window_ms"] == WINDOW_MS)
    if not window["asked"]:
        return "no traffic in 5 min"
    served = window["asked"] - window["unserved"]
    limited = f"; {window['limited']} over its limits" if window["limited"] else ""
    return f"{served} of {window['asked']} ({percent(round(served / window['asked'], 4))}){limited}"


def _print_incidents(incidents: Sequence[Mapping[str, Any]]) -> None:
    for told in incidents:
        one = IncidentEvent.model_validate(told)
        missed = f"{one.tenant} {'misses' if one.state == 'open' else 'missed'} {missed_in_words(one)}"
        if one.state == "open":
            typer.echo(f"INCIDENT {missed} since {instant(told['began_at'])}: {harm_in_words(one)}")
        else:
            typer.echo(f"over: {missed} from {instant(told['began_at'])} to {instant(told['over_at'])}")
        typer.echo(f"  likely cause: {told['text']}")
        if one.command:
            typer.echo(f"  what would help: {help_in_words(one)}")


def _print_alarms(alarms: Sequence[Mapping[str, Any]]) -> None:
    if not alarms:
        typer.echo("no alarm is raised")
    for alarm in alarms:
        of = f" of {alarm['tenant']}" if alarm.get("tenant") else ""
        typer.echo(f"ALARM {alarm['kind']}{of} ({alarm['severity']}): {alarm['text']}")
