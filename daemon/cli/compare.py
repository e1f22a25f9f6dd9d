"""`pdmuxd compare TRACE`: which rate does each policy hold?"""

from __future__ import annotations

import re
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
)
from pdmuxd.daemon.cli.trace_results import check_outputs, publish
from pdmuxd.daemon.compare.ablate import with_ablations
from pdmuxd.daemon.compare.document import Origin, build_document
from pdmuxd.daemon.compare.ladder import rungs
from pdmuxd.daemon.compare.plan import DEFAULT_DOUBLINGS, DEFAULT_RESOLUTION, MAX_RATE_RPS, ComparePlan
from pdmuxd.daemon.compare.progress import CompareProgress
from pdmuxd.daemon.compare.rows import notes, table, verdict
from pdmuxd.daemon.compare.schema import CompareDocument
from pdmuxd.daemon.compare.stages import Comparison, compare
from pdmuxd.daemon.compare.workload import without_longer
from pdmuxd.daemon.replay.feasible import check_tbt_feasible
from pdmuxd.daemon.replay.shape import Shaping
from pdmuxd.engine.core.policies.registry import CHUNK_RANGE_TOKENS
from pdmuxd.engine.core.slo import DEFAULT_SLO, TBT_RANGE_S

EPILOG = (
    "Example: pdmuxd compare mooncake.jsonl --policies auto,chunked:512,static:96,36 --tbt-ms 20,50 --jobs 2 "
    "--html report.html"
)
DEFAULT_POLICIES = "auto,muxwise,drift,duet,upstream,prefill-first,chunked:512"
MIN_RATE_RPS = 0.0001


def register(app: typer.Typer) -> None:
    """Add the `compare` command."""
    app.command("compare", epilog=EPILOG)(compare_policies)


_POLICIES = typer.Option(
    "--policies",
    "--policy",
    metavar="SPEC,...",
    autocompletion=completing.policies,
    show_default=False,
    help=f"Any of {POLICY_SYNTAX}, with commas between; a number after a comma goes on with the policy "
    f"before it. May be repeated.  [default: {DEFAULT_POLICIES}]",
)
_TBT = typer.Option("--tbt-ms", metavar="MS,...", help="Targets for each gap between two tokens.")
_RATES = typer.Option(
    "--rates", metavar="RATE,...", help="Try these, in requests a second, instead of searching."
)
_SECONDS = typer.Option("--seconds", min=1, max=86400, help="Of arrivals in a run; then it is drained.")
_SEEDS = typer.Option("--seeds", min=1, max=100, help="Runs at every rate, each with other draws.")
_SEED = typer.Option("--seed", min=0, help="The first of the seeds.")
_RESOLUTION = typer.Option(
    "--resolution", min=0.001, max=0.5, help="How far apart, relatively, the rates of the search are."
)
_DOUBLINGS = typer.Option(
    "--doublings",
    min=0,
    max=6,
    help="Run what the search found twice as long, so many times at most, until no more requests miss in the "
    "second half than in the first; the search goes on at lower rates where the longer run does not hold. "
    "Not with --rates, whose runs are as long as asked.",
)
_SHUFFLE = typer.Option("--shuffle", help="Draw the trace's requests in a seeded order.")
_MAX_INPUT = typer.Option("--max-input", min=1, help="Leave out requests with more input tokens.")
_ABLATE = typer.Option("--ablate", help="Also run every policy with one of its mechanisms off at a time.")
_LADDER = typer.Option(
    "--ladder",
    metavar="TOKENS",
    min=CHUNK_RANGE_TOKENS[0],
    max=CHUNK_RANGE_TOKENS[1],
    help="Run what leads from chunks of so many tokens to auto, one mechanism after the other, and say what "
    "each adds; with --policies these as well.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _RunOptions:
    """What is run for each policy, and how closely the rate is searched."""

    rates: Annotated[str | None, _RATES] = None
    seconds: Annotated[float, _SECONDS] = 60.0
    seeds: Annotated[int, _SEEDS] = 3
    seed: Annotated[int, _SEED] = 0
    resolution: Annotated[float, _RESOLUTION] = DEFAULT_RESOLUTION
    doublings: Annotated[int, _DOUBLINGS] = DEFAULT_DOUBLINGS
    shuffle: Annotated[bool, _SHUFFLE] = False
    max_input: Annotated[int | None, _MAX_INPUT] = None
    ablate: Annotated[bool, _ABLATE] = False
    ladder: Annotated[int | None, _LADDER] = None


@with_option_groups
def compare_policies(
    ctx: typer.Context,
    trace: Annotated[Path, TRACE],
    *,
    policies: Annotated[list[str] | None, _POLICIES] = None,
    tbt_ms: Annotated[str, _TBT] = f"{DEFAULT_SLO.tbt_s * 1000.0:g}",
    options: TraceOptions,
    runs: _RunOptions,
    targets: TargetOptions,
    output: OutputOptions,
) -> None:
    """Find the highest rate that each policy holds within its targets, in virtual time."""
    check_outputs(output.json, output.html)
    too_long = options.too_long
    tbts_s = [
        tbt / 1000.0 for tbt in _numbers("--tbt-ms", tbt_ms, *(limit * 1000.0 for limit in TBT_RANGE_S))
    ]
    source = ctx.get_parameter_source("doublings")
    is_given = source is not None and source.name != "DEFAULT"
    refuse_together(runs.rates is not None and is_given, "--rates", "--doublings")
    rates_rps = _numbers("--rates", runs.rates, MIN_RATE_RPS, MAX_RATE_RPS) if runs.rates is not None else ()
    loaded = options.load_profile()
    named = _split(policies) if policies else [] if runs.ladder else _split([DEFAULT_POLICIES])
    if runs.ladder is not None:
        named = list(dict.fromkeys((*named, *rungs(runs.ladder))))
    specs = checked_policies(named, loaded, "--policies")
    for tbt_s in tbts_s:
        check_tbt_feasible(loaded, tbt_s)
    shaping = Shaping(sort=options.sort, tick_s=0.0)
    read, left_out = load_trace(trace, options.trace_format, shaping, loaded, too_long), 0
    if runs.max_input is not None:
        read, left_out = without_longer(read, runs.max_input)
    plan = ComparePlan(
        trace=read,
        profile=loaded,
        ttft_fixed_s=targets.ttft_fixed_ms / 1000.0,
        ttft_per_1k_new_tokens_s=targets.ttft_per_1k_ms / 1000.0,
        attainment_ratio=targets.attainment,
        e2e_s=targets.e2e_s,
        seconds=runs.seconds,
        seeds=tuple(range(runs.seed, runs.seed + runs.seeds)),
        shuffle=runs.shuffle,
        resolution=runs.resolution,
        doublings=0 if rates_rps else runs.doublings,
    )
    console = Console(stderr=True)
    with CompareProgress(console, shown=console.is_terminal and not output.no_progress) as progress:
        comparison = compare(
            plan,
            with_ablations(specs) if runs.ablate else specs,
            tbts_s,
            rates_rps=rates_rps,
            detail=output.html is not None,
            jobs=output.jobs,
            progress=progress,
        )
    origin = Origin(
        command=command_line(ctx, "compare"),
        version=version("pdmuxd"),
        created_at=datetime.now(UTC),
        rates_rps=tuple(rates_rps),
        max_input_tokens=runs.max_input,
        left_out_longer=left_out,
    )
    _publish(build_document(plan, comparison, origin), comparison, plan, output)


def _split(given: Sequence[str]) -> list[str]:
    """Policies between commas. No name begins with a digit, so `static:96,36` stays together."""
    return [spec for text in given for spec in re.split(r",(?!\s*\d)", text)]


def _numbers(flag: str, text: str, low: float, high: float) -> list[float]:
    """Numbers between commas, each once, in the order given."""
    found = []
    for part in text.split(","):
        try:
            number = float(part)
        except ValueError:
            number = low - 1.0
        if not low <= number <= high:
            raise typer.BadParameter(
                f"{part.strip()!r} is not allowed; give numbers from {low:g} to {high:g} with commas between",
                param_hint=f"'{flag}'",
            )
        found.append(number)
    return list(dict.fromkeys(found))


def _publish(
    document: CompareDocument, comparison: Comparison, plan: ComparePlan, output: OutputOptions
) -> None:
    workload, runs = document.workload, document.runs

    def page() -> str:
        from pdmuxd.daemon.compare.report.page import render  # plotly takes half a second to import

        slos = [plan.slo(common.tbt_s) for common in comparison.common]
        return render(document, comparison.common, slos)

    publish(
        document,
        title=f"{workload.file}: {workload.requests:,} requests of {workload.mean_input_tokens:,.0f} input "
        f"and {workload.mean_output_tokens:,.0f} output tokens on average; runs of {runs.seconds:g} s, "
        f"{len(runs.seeds)} seeds",
        verdict=verdict(document),
        notes=notes(document),
        table=table(document),
        page=page,
        json=output.json,
        html=output.html,
    )
