"""`pdmuxd profile run`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pdmuxd.daemon.cli.engine_flags import ENGINE, MODEL, read_settings
from pdmuxd.engine.core.errors import InvalidValueError

app = typer.Typer()

DEFAULT_BUDGET = "5m"
BUDGET_S = (10.0, 86400.0)
UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0}
INTERRUPTED = 130


@app.command(
    epilog="Example: pdmuxd profile run --model /srv/models/llama-3.1-8b-instruct --budget 3m --activate"
)
def run(
    ctx: typer.Context,
    budget: Annotated[
        str, typer.Option(metavar="TIME", help="How long to measure at most: 90s, 5m, 1h.")
    ] = DEFAULT_BUDGET,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The profile's name; by default the model's.", show_default=False),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the profile to a file, and do not store it.")
    ] = None,
    activate: Annotated[
        bool, typer.Option("--activate", help="Put the profile in force if it is accurate.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Put the profile in force even if it is not accurate.")
    ] = False,
    check: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="After the profile, measure batches that it has not seen for a tenth of the time, write "
            "them to a file and say how far off the profile is.",
        ),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Measure all again, also what an interrupted run has measured.")
    ] = False,
    engine: Annotated[str | None, ENGINE] = None,
    model: Annotated[str | None, MODEL] = None,
) -> int:
    """Start the configured engine and measure it. No daemon may run meanwhile.

    Ctrl-C stops the measurement, and a profile is made of what was measured until then. The next run on the
    same engine, model and GPU continues there, also after a crash. Its budget includes the time spent before.
    """
    budget_s = seconds_of(budget)
    settings = read_settings(ctx, {"engine.kind": engine, "engine.sglang.model": model}).settings
    from pdmuxd.daemon.profiling.command import Wanted, profile_engine

    wanted = Wanted(
        budget_s=budget_s,
        name=name,
        output=output,
        activate=activate or force,
        force=force,
        check=check,
        fresh=fresh,
    )
    return INTERRUPTED if profile_engine(settings, wanted) else 0


def seconds_of(text: str) -> float:
    """90, 90s, 5m or 1h in seconds. Raises: InvalidValueError."""
    number, unit = (text[:-1], text[-1]) if text[-1:] in UNITS_S else (text, "s")
    try:
        seconds = float(number) * UNITS_S[unit]
    except ValueError:
        seconds = 0.0
    if not BUDGET_S[0] <= seconds <= BUDGET_S[1]:
        raise InvalidValueError("--budget", f"--budget is {text[:20]!r}; allowed are 10s to 24h, such as 5m")
    return seconds
