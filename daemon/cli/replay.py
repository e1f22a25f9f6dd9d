"""`pdmuxd replay TRACE`: how would each policy have served this trace?"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from typer.models import OptionInfo

from pdmuxd.daemon.replay.document import ReplayDocument, build_document, check_writable, to_json, write_file
from pdmuxd.daemon.replay.formats.read import open_trace
from pdmuxd.daemon.replay.jobs import replay_policies
from pdmuxd.daemon.replay.notes import notes
from pdmuxd.daemon.replay.progress import ReplayProgress
from pdmuxd.daemon.replay.run import PolicyReplay, ReplayPlan
from pdmuxd.daemon.replay.shape import Shaping, TooLong, fit, shape
from pdmuxd.daemon.replay.table import ResultTable
from pdmuxd.daemon.replay.trace import Trace, TraceFormat
from pdmuxd.engine.core.policies.registry import DEFAULT_POLICY, build_policy, known_policies
from pdmuxd.engine.core.slo import (
    ATTAINMENT_RANGE,
    DEFAULT_SLO,
    TBT_RANGE_S,
    TTFT_FIXED_RANGE_S,
    TTFT_PER_1K_RANGE_S,
    Slo,
)
from pdmuxd.engine.emulator.profile import DEFAULT_PROFILE, Profile, load_profile

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


def _target(flag: str, range_s: tuple[float, float], text: str) -> OptionInfo:
    option: OptionInfo = typer.Option(flag, min=range_s[0] * 1000.0, max=range_s[1] * 1000.0, help=text)
    return option


_POLICY_SYNTAX = ", ".join(info.syntax for info in known_policies())
_TRACE = typer.Argument(metavar="TRACE", help="Mooncake JSONL, Azure CSV, or pdmuxd's own JSONL.")
_FORMAT = typer.Option("--format", help="Instead of telling the format from the first line.")
_POLICY = typer.Option(
    "--policy",
    metavar="SPEC",
    show_default=DEFAULT_POLICY,
    help=f"One of {_POLICY_SYNTAX}. May be repeated: results are shown side by side.",
)
_PROFILE = typer.Option("--profile", help="A shipped profile, or a JSON file.")
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
_SORT = typer.Option("--sort", help="Accept a trace that is not in order of arrival.")
_DROP = typer.Option("--drop-too-long", help="Leave out requests that the engine cannot hold.")
_CLIP = typer.Option("--clip", help="Shorten requests that the engine cannot hold.")
_SEED = typer.Option("--seed", min=0, help="For spreading ticks and choosing the dots of a plot.")
_TTFT_FIXED = _target("--ttft-fixed-ms", TTFT_FIXED_RANGE_S, "TTFT target, fixed part.")
_TTFT_PER_1K = _target("--ttft-per-1k-ms", TTFT_PER_1K_RANGE_S, "TTFT target, per 1,000 new prompt tokens.")
_TBT = _target("--tbt-ms", TBT_RANGE_S, "Target for each gap between two tokens.")
_ATTAINMENT = typer.Option(
    "--attainment", min=ATTAINMENT_RANGE[0], max=ATTAINMENT_RANGE[1], help="Share that must meet a target."
)
_JOBS = typer.Option("--jobs", min=1, max=64, help="Policies replayed at the same time, each in a process.")
_JSON = typer.Option("--json", metavar="PATH", help="Write the numbers as JSON.")
_HTML = typer.Option("--html", metavar="PATH", help="Write a report with plots, one file that works offline.")
_NO_PROGRESS = typer.Option("--no-progress", help="No progress bar, even on a terminal.")


def replay(
    ctx: typer.Context,
    trace: Annotated[Path, _TRACE],
    policy: Annotated[list[str] | None, _POLICY] = None,
    profile: Annotated[str, _PROFILE] = DEFAULT_PROFILE,
    trace_format: Annotated[TraceFormat | None, _FORMAT] = None,
    rate_scale: Annotated[float | None, _RATE_SCALE] = None,
    rate: Annotated[float | None, _RATE] = None,
    spread_ticks: Annotated[str, _SPREAD] = "auto",
    limit: Annotated[int | None, _LIMIT] = None,
    from_s: Annotated[float, _FROM] = 0.0,
    to_s: Annotated[float | None, _TO] = None,
    sort: Annotated[bool, _SORT] = False,
    drop_too_long: Annotated[bool, _DROP] = False,
    clip: Annotated[bool, _CLIP] = False,
    seed: Annotated[int, _SEED] = 0,
    ttft_fixed_ms: Annotated[float, _TTFT_FIXED] = DEFAULT_SLO.ttft_fixed_s * 1000.0,
    ttft_per_1k_ms: Annotated[float, _TTFT_PER_1K] = DEFAULT_SLO.ttft_per_1k_new_tokens_s * 1000.0,
    tbt_ms: Annotated[float, _TBT] = DEFAULT_SLO.tbt_s * 1000.0,
    attainment: Annotated[float, _ATTAINMENT] = DEFAULT_SLO.attainment_ratio,
    jobs: Annotated[int, _JOBS] = 1,
    json: Annotated[Path | None, _JSON] = None,
    html: Annotated[Path | None, _HTML] = None,
    no_progress: Annotated[bool, _NO_PROGRESS] = False,
) -> None:
    """Replay a trace in virtual time on the emulated engine and compare policies."""
    _refuse_together(rate is not None and rate_scale is not None, "--rate", "--rate-scale")
    _refuse_together(drop_too_long and clip, "--drop-too-long", "--clip")
    for output in (json, html):
        if output is not None:
            check_writable(output)
    slo = Slo(
        ttft_fixed_s=ttft_fixed_ms / 1000.0,
        ttft_per_1k_new_tokens_s=ttft_per_1k_ms / 1000.0,
        tbt_s=tbt_ms / 1000.0,
        attainment_ratio=attainment,
    )
    shaping = Shaping(
        sort=sort,
        from_s=from_s,
        to_s=to_s,
        limit=limit,
        tick_s=_spread(spread_ticks),
        rate_scale=rate_scale or 1.0,
        rate_rps=rate,
        seed=seed,
    )
    loaded = load_profile(profile)
    policies = _policies(policy, loaded)
    too_long = TooLong.DROP if drop_too_long else TooLong.CLIP if clip else TooLong.REFUSE
    plan = ReplayPlan(
        trace=_load(trace, trace_format, shaping, loaded, too_long), profile=loaded, slo=slo, seed=seed
    )
    replays = _run(plan, policies, jobs, shown=not no_progress)
    document = build_document(
        plan,
        shaping,
        replays,
        command=_command_line(ctx),
        version=version("pdmuxd"),
        created_at=datetime.now(UTC),
    )
    _publish(document, replays, slo, json, html)


def _refuse_together(both: bool, one: str, other: str) -> None:
    if both:
        raise typer.BadParameter(f"{one} and {other} cannot be given together")


def _policies(given: Sequence[str] | None, profile: Profile) -> list[str]:
    """Check every policy against the device before the first is replayed."""
    policies = [spec.strip() for spec in given or [DEFAULT_POLICY]]
    for index, spec in enumerate(policies):
        build_policy(spec, profile.policy_context)
        if spec in policies[:index]:
            raise typer.BadParameter(f"--policy {spec} is given twice")
    return policies


def _load(
    path: Path, trace_format: TraceFormat | None, shaping: Shaping, profile: Profile, too_long: TooLong
) -> Trace:
    found, requests = open_trace(path, trace_format)
    context, pool = profile.model.max_context_tokens, profile.kv_capacity_tokens
    name = f"the model's context of {context:,}" if context <= pool else f"the KV pool of {pool:,}"
    return fit(shape(path, found, requests, shaping), min(context, pool), too_long, f"{name} tokens")


def _run(plan: ReplayPlan, policies: Sequence[str], jobs: int, *, shown: bool) -> list[PolicyReplay]:
    console = Console(stderr=True)
    shown = shown and console.is_terminal
    with ReplayProgress(policies, len(plan.trace.requests), console=console, shown=shown) as progress:
        return replay_policies(plan, policies, jobs, progress.update)


def _publish(
    document: ReplayDocument,
    replays: Sequence[PolicyReplay],
    slo: Slo,
    json: Path | None,
    html: Path | None,
) -> None:
    """Print the table, then write the files that were asked for."""
    console = Console(highlight=False)
    trace, profile = document.trace, document.profile
    console.print(
        f"{trace.file}: {trace.requests:,} requests in {trace.arrival_span_s:,.0f} s, "
        f"{trace.input_tokens:,} input and {trace.output_tokens:,} output tokens",
        markup=False,
    )
    console.print(f"{profile.name}: {profile.model} on {profile.device} ({profile.provenance})", markup=False)
    for note in notes(document):
        console.print(f"Note: {note}", markup=False)
    console.print(ResultTable(document))
    if json is not None:
        write_file(json, to_json(document))
        console.print(f"JSON written to {json}", markup=False)
    if html is not None:
        from pdmuxd.daemon.replay.report.page import render  # plotly takes half a second to import

        write_file(html, render(document, replays, slo).encode())
        console.print(f"Report written to {html}", markup=False)


def _command_line(ctx: typer.Context) -> str:
    """The command that was given, as the shell wants it: every option that is not at its default."""
    words = ["pdmuxd", "replay"]
    for parameter in ctx.command.params:
        value = ctx.params.get(parameter.name or "")
        if value is None or value == parameter.default or parameter.name == "no_progress":
            continue
        values = value if isinstance(value, (list, tuple)) else [value]
        for item in values:
            if parameter.param_type_name == "argument":
                words.append(str(item))
            elif item is True:
                words.append(parameter.opts[0])
            else:
                words += [parameter.opts[0], f"{item:g}" if isinstance(item, float) else str(item)]
    return shlex.join(words)
