"""`pdmuxd what-if`: recent traffic, replayed on the emulator under other settings."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from pdmuxd.daemon.cli.admin_client import AdminClient, admin_client
from pdmuxd.daemon.cli.completing import policies
from pdmuxd.daemon.cli.output import AsJson, instant, print_json, print_table
from pdmuxd.engine.core.errors import PdmuxdError

if TYPE_CHECKING:
    from pdmuxd.tui.client.api import models

app = typer.Typer(help="Replay recent traffic under other settings. Nothing is applied.")

POLL_S = 0.3


@app.command(epilog="Example: pdmuxd what-if replay --tbt-ms chat=20 --policy muxwise --rate 1.5")
def replay(
    ctx: typer.Context,
    minutes: Annotated[
        float, typer.Option(min=0.1, max=1440, help="How many of the last minutes to replay.")
    ] = 10.0,
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy", help="Use this policy instead of the one in force.", autocompletion=policies
        ),
    ] = None,
    tbt_ms: Annotated[
        list[str] | None,
        typer.Option(
            "--tbt-ms", metavar="TENANT=MS", help="Give this tenant another TBT target. May be repeated."
        ),
    ] = None,
    rate: Annotated[
        float, typer.Option(min=0.05, max=20, help="Send all requests so many times as fast.")
    ] = 1.0,
    scale: Annotated[
        list[str] | None,
        typer.Option(
            "--scale",
            metavar="TENANT=TIMES",
            help="Send so many times the tenant's requests. May be repeated.",
        ),
    ] = None,
    priority_class: Annotated[
        list[str] | None,
        typer.Option(
            "--class",
            metavar="TENANT=CLASS",
            help="Give this tenant another priority class. May be repeated.",
        ),
    ] = None,
    weight: Annotated[
        list[str] | None,
        typer.Option(
            "--weight", metavar="TENANT=WEIGHT", help="Give this tenant another weight. May be repeated."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Replay recent traffic twice, with the settings in force and with yours, and show both results."""
    sharing: dict[str, dict[str, object]] = {}
    for name, chosen in _named("--class", priority_class):
        sharing.setdefault(name, {})["priority_class"] = chosen
    for name, number in _pairs("--weight", weight).items():
        sharing.setdefault(name, {})["weight"] = number
    with admin_client(ctx) as client:
        targets = {}
        for name, value in _pairs("--tbt-ms", tbt_ms).items():
            slo: Mapping[str, Any] = client.get_slo(name)
            names = ("ttft_fixed_ms", "ttft_per_1k_new_tokens_ms", "attainment_ratio", "e2e_ms")
            held = {each: slo[each] for each in names if slo[each] is not None}
            targets[name] = {**held, "tbt_ms": value}
        variant = {
            "label": "asked",
            "policy": policy,
            "targets": targets,
            "rate_scale": rate,
            "tenant_scale": _pairs("--scale", scale),
            "sharing": sharing,
        }
        done = follow(
            client, client.begin_replay({"minutes": minutes, "variants": [cast("models.VariantIn", variant)]})
        )
    if as_json:
        print_json(done)
    else:
        print_outcomes(done)


@app.command("list", epilog="Example: pdmuxd what-if list")
def list_(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List the latest replays."""
    with admin_client(ctx) as client:
        jobs = client.list_replays()
    if as_json:
        print_json(jobs)
        return
    rows = [
        {
            "id": job["id"],
            "state": job["state"],
            "requests": job["requests"],
            "progress": f"{job['progress_ratio']:.0%}",
            "begun": instant(job["created_at"]),
        }
        for job in jobs
    ]
    print_table(rows, empty="nothing was replayed since the daemon started")


@app.command(epilog="Example: pdmuxd what-if cancel 0c8b6f5d2a11")
def cancel(ctx: typer.Context, job: Annotated[str, typer.Argument(metavar="ID")]) -> None:
    """End a replay."""
    with admin_client(ctx) as client:
        typer.echo(client.cancel_replay(job)["state"])


def follow(client: AdminClient, job: Mapping[str, Any]) -> Mapping[str, Any]:
    """Wait until a replay is done; Ctrl-C cancels it. Raises: PdmuxdError if it fails."""
    typer.echo(f"replaying {job['requests']:,} requests ...", err=True)
    try:
        while job["state"] in ("waiting", "running"):
            time.sleep(POLL_S)
            job = client.get_replay(job["id"])
    except KeyboardInterrupt:
        client.cancel_replay(job["id"])
        raise
    if job["state"] != "done":
        raise PdmuxdError(f"the replay is {job['state']}: {job['reason'] or 'somebody ended it'}")
    return job


def print_outcomes(job: Mapping[str, Any]) -> None:
    """A row for each variant and tenant."""
    print_table(
        [
            {
                "variant": outcome["label"],
                "tenant": one["tenant"],
                "TTFT p99 ms": _number(one["ttft_p99_ms"]),
                "TTFT met": _share(one["ttft_attainment_ratio"]),
                "TBT p99 ms": _number(one["tbt_p99_ms"]),
                "TBT met": _share(one["tbt_attainment_ratio"]),
                "kept": "yes" if one["kept"] else "no",
                "good/s": f"{outcome['goodput_per_s']:.2f}",
            }
            for outcome in job["outcomes"]
            for one in outcome["tenants"]
        ],
        empty="no request was replayed",
    )


def _pairs(option: str, texts: list[str] | None) -> dict[str, float]:
    found = {}
    for name, value in _named(option, texts, "NUMBER"):
        try:
            found[name] = float(value)
        except ValueError:
            raise typer.BadParameter(f"{option} is {name}={value}; allowed is TENANT=NUMBER") from None
    return found


def _named(option: str, texts: list[str] | None, what: str = "NAME") -> Iterator[tuple[str, str]]:
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise typer.BadParameter(f"{option} is {text!r}; allowed is TENANT={what}")
        yield name, value


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
