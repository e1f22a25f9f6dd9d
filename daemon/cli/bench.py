"""`pdmuxd bench`: engines measured against each other on this machine."""

from __future__ import annotations

from collections.abc import Callable

import typer

from pdmuxd.daemon.bench.plans.names import PLANS, run_plan

EPILOG = "Example: pdmuxd bench matrix --plan"

app = typer.Typer(epilog=EPILOG)


def _command(name: str) -> Callable[[typer.Context], int]:
    def run(ctx: typer.Context) -> int:
        return run_plan(name, ctx.args)

    return run


for _name, _plan in PLANS.items():
    app.command(
        _name,
        help=_plan.about,
        add_help_option=bool(_plan.example),
        epilog=f"Example: pdmuxd bench {_name} {_plan.example}" if _plan.example else None,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )(_command(_name))
