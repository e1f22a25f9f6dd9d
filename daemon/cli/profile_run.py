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
        str | None, typer.Option(metavar="NAME", help="Default: the model's name.", show_default=False)
    ] = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write it to a file, and do not store it.")
    ] = None,
    activate: Annotated[bool, typer.Option("--activate", help="Put it in force if it is accurate.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Activate it even if it is not accurate.")] = False,
    check: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Then measure unseen shapes for a tenth of the time, keep them in a file and say how "
            "far off the profile is.",
        ),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Do not go on from what a broken-off run has measured.")
    ] = False,
    engine: Annotated[str | None, ENGINE] = None,
    model: Annotated[str | None, MODEL] = None,
) -> int:
    """Measure the configured engine, which is started for it: no daemon may run meanwhile.

    Ctrl-C ends measuring; what was measured until then is a profile. The next run on the same engine, model
    and GPU goes on from it, as it does after a crash; its budget includes what was spent before.
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
