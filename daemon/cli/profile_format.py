"""How a profile is shown, and how the command line names one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from pdmuxd.daemon.cli.output import percent, print_fields, print_table

ProfileId = Annotated[int, typer.Argument(metavar="ID", help="From `pdmuxd profile list`.")]


def print_profile(profile: Mapping[str, Any]) -> None:
    """Print a profile with its errors on held-out samples."""
    guard = profile["guard"]
    fields = {
        "profile": f"{profile['id']} ({profile['name']}, version {profile['version']}, {profile['origin']})",
        "active": profile["active"],
        "frozen": profile["frozen"],
        "provenance": profile["provenance"],
        "measured in": f"{profile['took_ms'] / 1000:.0f} s",
    }
    if guard is not None:
        fields["guard"] = (
            f"{guard['pairs']} pairs; held out, {percent(round(guard['exceeded_ratio'], 4))} were slower "
            f"than their bound, which is {percent(round(guard['overestimate_ratio'], 3))} too high on average"
        )
    print_fields(fields)
    for one in profile["left_out"]:
        typer.echo(f"left out: {one}")
    for one in profile["doubts"]:
        typer.echo(f"doubtful: {one}")
    rows = [
        {
            "predictor": fit["predictor"],
            "SMs": fit["sms"] or "all",
            "samples": fit["samples"],
            "outliers": fit["outliers"],
            "p50": percent(round(fit["p50_error_ratio"], 4)),
            "p90": percent(round(fit["p90_error_ratio"], 4)),
            "max": percent(round(fit["max_error_ratio"], 4)),
        }
        for fit in profile["fits"]
    ]
    print_table(rows, empty="nothing is fitted")
