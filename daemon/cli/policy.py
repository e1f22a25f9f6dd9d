"""`pdmuxd policy`: which policy decides, among which splits, and which one shadows it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from pdmuxd.daemon.cli.admin_client import AdminClient, admin_client
from pdmuxd.daemon.cli.completing import policies
from pdmuxd.daemon.cli.output import AsJson, instant, percent, print_fields, print_json, print_table

if TYPE_CHECKING:
    from pdmuxd.tui.client.api import models

app = typer.Typer(help="Show and change the policy in force, its splits and its shadow, while serving.")

IN_FORCE_WITHIN_S = 2.0
_POLL_S = 0.05
_DEFAULT, _NONE = "default", "none"

Spec = Annotated[
    str | None,
    typer.Argument(
        metavar="[POLICY]",
        help="Such as muxwise:preempt; `default` is engine.policy.",
        autocompletion=policies,
    ),
]
Shadow = Annotated[
    str | None,
    typer.Option(
        "--shadow", help="A policy that decides without acting, or `none`.", autocompletion=policies
    ),
]
Partitions = Annotated[
    str | None,
    typer.Option(
        "--partitions",
        metavar="P,D;...",
        help="Prefill and decode SMs of each split, or `default`.",
    ),
]


@app.command(epilog="Example: pdmuxd policy show")
def show(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Show what was set, what of it is in force, and how a shadow's decisions differ."""
    with admin_client(ctx) as client:
        found = client.get_policy()
    _print(found, as_json=as_json)


@app.command("set", epilog='Example: pdmuxd policy set muxwise --shadow auto --partitions "112,20;96,36"')
def set_(
    ctx: typer.Context,
    policy: Spec = None,
    partitions: Partitions = None,
    shadow: Shadow = None,
    as_json: AsJson = False,
) -> None:
    """Set the policy, its splits or its shadow; what is not given stays. In force at the next safe point."""
    if policy is None and partitions is None and shadow is None:
        raise typer.BadParameter("give a policy, --partitions or --shadow")
    with admin_client(ctx) as client:
        before = client.get_policy()
        asked: Mapping[str, Any] = before
        body = {name: asked[name] for name in ("policy", "partitions", "shadow")}
        if policy is not None:
            body["policy"] = None if policy == _DEFAULT else policy
        if partitions is not None:
            body["partitions"] = None if partitions == _DEFAULT else _pairs(partitions)
        if shadow is not None:
            body["shadow"] = None if shadow == _NONE else shadow
        after = _when_taken(
            client, client.set_policy(cast("models.PolicyIn", body), if_match=before["version"])
        )
    _print(after, as_json=as_json)


@app.command(epilog="Example: pdmuxd policy rollback --to 2")
def rollback(
    ctx: typer.Context,
    to: Annotated[
        int | None, typer.Option("--to", min=0, help="The version; 0 is what the settings have.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Set again what an earlier version was, without --to the one before."""
    with admin_client(ctx) as client:
        after = _when_taken(client, client.roll_back_policy({} if to is None else {"version": to}))
    _print(after, as_json=as_json)


@app.command(epilog="Example: pdmuxd policy history")
def history(
    ctx: typer.Context,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Show only so many.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List the edits, newest first."""
    with admin_client(ctx) as client:
        revisions = client.list_policy_history(limit=limit)
    if as_json:
        print_json(revisions)
        return
    rows = [
        {"version": one["version"], **_wanted(one), "since": instant(one["created_at"])} for one in revisions
    ]
    print_table(rows, empty="the policy is that of the settings; nothing was set")


@app.command("list", epilog="Example: pdmuxd policy list")
def list_(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List the policies that there are."""
    with admin_client(ctx) as client:
        known = client.list_policies()
    if as_json:
        print_json(known)
    else:
        rows = [{"syntax": one["syntax"], "what it does": one["summary"]} for one in known]
        print_table(rows, empty="there are none")


def _when_taken(client: AdminClient, found: Any) -> Any:  # noqa: ANN401 - JSON
    """Read the policy until the engine has answered, or the time is over. Without a daemon: at once."""
    deadline_s = time.monotonic() + IN_FORCE_WITHIN_S
    while client.is_daemon and found["waits_for"] == "engine" and time.monotonic() < deadline_s:
        time.sleep(_POLL_S)
        found = client.get_policy()
    return found


def _print(found: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    state = "yes"
    if found["waits_for"] == "next_start":
        state = f"with the engine's next start: {found['why']}"
    elif found["waits_for"] is not None:
        state = "no: the engine has not confirmed it"
    print_fields(
        {
            **_wanted(found),
            "running": found["running"] or "-",
            "in force": state,
            "version": f"{found['version']} (settings version {found['settings_version']})",
        }
    )
    report = found["shadow_report"]
    if report is not None and report["decisions"]:
        typer.echo(
            f"of {report['decisions']:,} decisions the shadow would have taken "
            f"{percent(report['same_ratio'])} alike; {percent(report['other_mode_ratio'])} in another mode, "
            f"{percent(report['other_split_ratio'])} with another split, "
            f"{percent(report['other_requests_ratio'])} for other requests"
        )
        typer.echo(
            f"TBT target missed by prediction: {percent(report['late_ratio'])}, "
            f"the shadow's {percent(report['shadow_late_ratio'])}; SMs for prefill: "
            f"{report['prefill_sms_mean']:.1f}, the shadow's {report['shadow_prefill_sms_mean']:.1f}"
        )


def _wanted(found: Mapping[str, Any]) -> dict[str, object]:
    pairs = found["partitions"]
    return {
        "policy": found["policy"] or f"{_DEFAULT} (engine.policy)",
        "splits": _DEFAULT
        if pairs is None
        else ";".join(f"{one['prefill_sms']},{one['decode_sms']}" for one in pairs),
        "shadow": found["shadow"] or _NONE,
    }


def _pairs(text: str) -> list[dict[str, int]]:
    try:
        pairs = [tuple(map(int, pair.split(","))) for pair in text.split(";")]
        return [{"prefill_sms": prefill, "decode_sms": decode} for prefill, decode in pairs]
    except ValueError:
        raise typer.BadParameter(
            f"--partitions is {text!r}; allowed are pairs of SMs such as 112,20;96,36, or {_DEFAULT}"
        ) from None
