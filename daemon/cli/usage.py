"""`pdmuxd usage`: what each tenant used in a period, for charge-back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from pdmuxd.daemon.cli.admin_client import admin_client
from pdmuxd.daemon.cli.output import AsJson, percent, print_json, print_table

EPILOG = """\b
Examples:
  pdmuxd usage
  pdmuxd usage --from 2026-01-01T00:00:00Z --to 2026-02-01T00:00:00Z --csv > january.csv"""


def register(app: typer.Typer) -> None:
    """Add the `usage` command."""
    app.command("usage", epilog=EPILOG)(usage)


def usage(
    ctx: typer.Context,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="INSTANT",
            help="Where the period begins; by default at the start of this month.",
        ),
    ] = None,
    end: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="INSTANT", help="Where the period ends; by default at the start of this hour."
        ),
    ] = None,
    tenant: Annotated[str | None, typer.Option(help="Show this tenant alone.")] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, a line per tenant and model.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what each tenant used: requests, tokens, SM time, refusals, cost, attainment.

    Write an INSTANT with its time zone, such as 2026-11-25T14:00Z. It is a whole hour; within the last two
    days it may be a whole minute.
    """
    with admin_client(ctx) as client:
        if as_csv:
            typer.echo(client.get_usage_csv(from_=start, to=end, tenant=tenant), nl=False)
            return
        found = client.get_usage(from_=start, to=end, tenant=tenant)
    if as_json:
        print_json(found)
        return
    typer.echo(f"from {found['from']} until before {found['to']}")
    print_table([_columns(line) for line in found["lines"]], empty="nothing was used")


def _columns(line: Mapping[str, Any]) -> dict[str, object]:
    return {
        "tenant": line["tenant"],
        "model": line["model"],
        "requests": line["requests"],
        "prefilled": line["prefill_tokens"],
        "cached": line["cached_tokens"],
        "output": line["output_tokens"],
        "SM s": round(line["prefill_sm_s"] + line["decode_sm_s"], 1),
        "refused": line["refused"],
        "cost": "-" if line["cost"] is None else f"{line['cost']} {line['currency']}",
        "TTFT met": _met(line["ttft_attainment_ratio"]),
        "TBT met": _met(line["tbt_attainment_ratio"]),
    }


def _met(ratio: float | None) -> str:
    return "-" if ratio is None else percent(round(ratio, 4))
