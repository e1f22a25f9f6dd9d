"""`pdmuxd replay TRACE`: how would each policy have served this trace?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pdmuxd.daemon.cli import completing
from pdmuxd.daemon.cli.option_groups import with_option_groups
from pdmuxd.daemon.cli.trace_options import (
    POLICY_SYNTAX,
    TRACE,
    OutputOptions,
    TargetOptions,
    TraceOptions,
    checked_policies,
    command_line,
    load_trace,
    refuse_together,
    target_option,
)
from pdmuxd.daemon.cli.trace_results import check_outputs, publish
from pdmuxd.daemon.replay.document import ReplayDocument, build_document
from pdmuxd.daemon.replay.feasible import check_tbt_feasible
from pdmuxd.daemon.replay.jobs import replay_policies
from pdmuxd.daemon.replay.notes import notes
from pdmuxd.daemon.replay.progress import ReplayProgress
from pdmuxd.daemon.replay.rows import table, verdict
from pdmuxd.daemon.replay.run import PolicyReplay, ReplayPlan
from pdmuxd.daemon.replay.shape import Shaping
from pdmuxd.engine.core.policies.registry import DEFAULT_POLICY
from pdmuxd.engine.core.slo import DEFAULT_SLO, TBT_RANGE_S, Slo

EPILOG = (
    "Example: pdmuxd replay mooncake.jsonl --policy muxwise --policy chunked:512 --rate-scale 0.5 "
    "--html report.html"
)


def register(app: typer.Typer) -> None:
    """Add the `replay` command."""
    app.command("replay", epilog=EPILOG)(replay)


def _spread(text: str) -> float | None:
    """None for `auto`, 0 for `off`."""
    if text == "auto":
        return None
    if text == "off":
        return 0.0
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0.0 < seconds <= 3600.0:
        raise typer.BadParameter(f"{text!r} is not allowed; give auto, off, or seconds up to 3600")
    return seconds


_POLICY = typer.Option(
    "--policy",
    metavar="SPEC",
    autocompletion=completing.policies,
    show_default=False,
    help=f"One of {POLICY_SYNTAX}. May be repeated: results are shown side by side.  "
    f"[default: {DEFAULT_POLICY}]",
)
_SPREAD = typer.Option(
    "--spread-ticks",
    metavar="auto|off|SECONDS",
    help="Spread arrivals recorded on a coarse clock over each of its ticks.",
)
_RATE_SCALE = typer.Option("--rate-scale", min=0.0001, max=10000, help="Divide arrival times by this.")
_RATE = typer.Option("--rate", min=0.0001, max=100000, help="Scale to this many requests a second.")
_LIMIT = typer.Option("--limit", min=1, help="Replay only so many requests.")
_FROM = typer.Option("--from-s", min=0, help="Leave out what arrives earlier; seconds of the trace.")
_TO = typer.Option("--to-s", min=0, help="Leave out what arrives then or later.")
_SEED = typer.Option("--seed", min=0, help="For spreading ticks and choosing the dots of a plot.")
_TBT = target_option("--tbt-ms", TBT_RANGE_S, "Target for each gap between two tokens.")


@dataclass(frozen=True, slots=True, kw_only=True)
class _ShapeOptions:
    """Which part of a trace, and how fast it is replayed."""

    rate_scale: Annotated[float | None, _RATE_SCALE] = None
    rate: Annotated[float | None, _RATE] = None
    spread_ticks: Annotated[str, _SPREAD] = "auto"
    limit: Annotated[int | None, _LIMIT] = None
    from_s: Annotated[float, _FROM] = 0.0
    to_s: Annotated[float | None, _TO] = None
    seed: Annotated[int, _SEED] = 0

    def shaping(self, *, sort: bool) -> Shaping:
        """Raises: BadParameter for two rates, or ticks that are none."""
        refuse_together(self.rate is not None and self.rate_scale is not None, "--rate", "--rate-scale")
        return Shaping(
            sort=sort,
            from_s=self.from_s,
            to_s=self.to_s,
            limit=self.limit,
            tick_s=_spread(self.spread_ticks),
            rate_scale=self.rate_scale or 1.0,
            rate_rps=self.rate,
            seed=self.seed,
        )


@with_option_groups
def replay(
    ctx: typer.Context,
    trace: Annotated[Path, TRACE],
    *,
    policy: Annotated[list[str] | None, _POLICY] = None,
    options: TraceOptions,
    shape: _ShapeOptions,
    tbt_ms: Annotated[float, _TBT] = DEFAULT_SLO.tbt_s * 1000.0,
    targets: TargetOptions,
    output: OutputOptions,
) -> None:
    """Replay a trace in virtual time on the emulated engine and compare policies."""
    shaping, too_long = shape.shaping(sort=options.sort), options.too_long
    check_outputs(output.json, output.html)
    slo = Slo(
        ttft_fixed_s=targets.ttft_fixed_ms / 1000.0,
        ttft_per_1k_new_tokens_s=targets.ttft_per_1k_ms / 1000.0,
        tbt_s=tbt_ms / 1000.0,
        attainment_ratio=targets.attainment,
        e2e_s=targets.e2e_s,
    )
    loaded = options.load_profile()
    policies = checked_policies(policy or [DEFAULT_POLICY], loaded, "--policy")
    check_tbt_feasible(loaded, slo.tbt_s)
    plan = ReplayPlan(
        trace=load_trace(trace, options.trace_format, shaping, loaded, too_long),
        profile=loaded,
        slo=slo,
        seed=shape.seed,
    )
    replays = _run(plan, policies, output.jobs, shown=not output.no_progress)
    document = build_document(
        plan,
        shaping,
        replays,
        command=command_line(ctx, "replay"),
        version=version("pdmuxd"),
        created_at=datetime.now(UTC),
    )
    _publish(document, replays, slo, output)


def _run(plan: ReplayPlan, policies: Sequence[str], jobs: int, *, shown: bool) -> list[PolicyReplay]:
    console = Console(stderr=True)
    shown = shown and console.is_terminal
    with ReplayProgress(policies, len(plan.trace.requests), console=console, shown=shown) as progress:
        return replay_policies(plan, policies, jobs, progress.update)


def _publish(
    document: ReplayDocument,
    replays: Sequence[PolicyReplay],
    slo: Slo,
    output: OutputOptions,
) -> None:
    trace = document.trace

    def page() -> str:
        from pdmuxd.daemon.replay.report.page import render  # plotly takes half a second to import

        return render(document, replays, slo)

    publish(
        document,
        title=f"{trace.file}: {trace.requests:,} requests in {trace.arrival_span_s:,.0f} s, "
        f"{trace.input_tokens:,} input and {trace.output_tokens:,} output tokens",
        verdict=verdict(document),
        notes=notes(document),
        table=table(document),
        page=page,
        json=output.json,
        html=output.html,
    )
