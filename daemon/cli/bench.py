"""`pdmuxd bench`: does pdmuxd pay on this machine?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from pdmuxd.daemon.cli import completing
from pdmuxd.daemon.cli.option_groups import with_option_groups
from pdmuxd.daemon.cli.trace_options import FORMAT, NO_PROGRESS, TTFT_FIXED, TTFT_PER_1K, command_line
from pdmuxd.engine.core.slo import ATTAINMENT_RANGE
from pdmuxd.engine.emulator.profile import DEFAULT_PROFILE

EPILOG = """\b
Examples:
  pdmuxd bench --model /models/Llama-3.1-8B --trace my.jsonl --rates 4,8,16 --tbt-ms 50
  pdmuxd bench --engine emulated --load chat --rates 20,40 --duration-s 15 --dry-run"""


def register(app: typer.Typer) -> None:
    """Add the `bench` command."""
    app.command("bench", epilog=EPILOG)(bench)


_ENGINE = typer.Option(help="What to measure: SGLang on a GPU, or the emulated engine, to try the command.")
_MODEL = typer.Option(metavar="FOLDER", help="The model's folder; needed unless the engine is emulated.")
_ARMS = typer.Option(
    metavar="NAME,...",
    help="What to compare: stock, chunk-N and pdmux are SGLang's own; ours:POLICY is pdmuxd.",
)
_TRACE = typer.Option(metavar="FILE", help="Your trace: Mooncake JSONL, Azure CSV, or pdmuxd's own JSONL.")
_LOAD = typer.Option(
    metavar="KIND",
    help="Without a trace: a kind of load that `pdmuxd generate` knows.  [default: chat]",
    show_default=False,
)
_RATES = typer.Option(
    metavar="R,R,...", help="Requests a second; the trace is sped up or slowed down to each."
)
_TBT = typer.Option(metavar="MS,MS,...", help="TBT targets, each of which gets a verdict.")
_SEEDS = typer.Option(
    metavar="N,N,...", help="Everything is run once with each seed, which draws the requests."
)
_DURATION = typer.Option(min=1.0, max=86_400.0, help="Seconds in which requests arrive in a run.")
_DRAIN = typer.Option(
    min=0.0, max=3_600.0, help="Seconds to wait after the last arrival before a run is ended."
)
_ATTAINMENT = typer.Option(
    min=ATTAINMENT_RANGE[0], max=ATTAINMENT_RANGE[1], help="Share of requests that must be good."
)
_PROFILE = typer.Option(
    metavar="NAME|FILE",
    help="The emulated engine's profile; on a GPU, a file that `pdmuxd profile run --output` wrote there.  "
    f"[default, if emulated: {DEFAULT_PROFILE}]",
    autocompletion=completing.profiles,
    show_default=False,
)
_PYTHON = typer.Option(
    metavar="PATH", help="The Python that has SGLang; by default that of `pdmuxd serve`.", show_default=False
)
_ARGS = typer.Option("--sglang-args", help="Further flags of SGLang, for every engine.", show_default=False)
_OUT = typer.Option(
    metavar="FOLDER",
    help="Where results, logs and the page are written; a run continues in the folder it began in.",
)
_START = typer.Option(min=1.0, max=7_200.0, help="Seconds within which a server must have started.")


@dataclass(frozen=True, slots=True, kw_only=True)
class _EngineOptions:
    """What is measured."""

    engine: Annotated[Literal["sglang", "emulated"], _ENGINE] = "sglang"
    model: Annotated[Path | None, _MODEL] = None
    arms: Annotated[str, _ARMS] = "stock,chunk-512,chunk-1024,chunk-2048,pdmux,ours:auto"
    profile: Annotated[str | None, _PROFILE] = None
    tp_size: Annotated[int, typer.Option(min=1, max=64, help="GPUs that share the model.")] = 1
    python: Annotated[Path | None, _PYTHON] = None
    sglang_args: Annotated[str, _ARGS] = ""
    cpu: Annotated[bool, typer.Option("--cpu", hidden=True)] = False
    start_timeout_s: Annotated[float, _START] = 1_200.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _LoadOptions:
    """What is asked of it."""

    trace: Annotated[Path | None, _TRACE] = None
    trace_format: Annotated[str | None, FORMAT] = None
    load: Annotated[str | None, _LOAD] = None
    rates: Annotated[str, _RATES] = "2,4,8,16"
    tbt_ms: Annotated[str, _TBT] = "50"
    ttft_fixed_ms: Annotated[float, TTFT_FIXED] = 1000.0
    ttft_per_1k_ms: Annotated[float, TTFT_PER_1K] = 1000.0
    attainment: Annotated[float, _ATTAINMENT] = 0.99
    seeds: Annotated[str, _SEEDS] = "1"
    duration_s: Annotated[float, _DURATION] = 60.0
    drain_s: Annotated[float, _DRAIN] = 10.0


@with_option_groups
def bench(
    ctx: typer.Context,
    *,
    engines: _EngineOptions,
    loads: _LoadOptions,
    out: Annotated[Path, _OUT] = Path("pdmuxd-bench"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be run, and how long.")] = False,
    no_progress: Annotated[bool, NO_PROGRESS] = False,
) -> int:
    """Measure whether pdmuxd serves more than SGLang alone on this GPU, with your model and load.

    It is compared with stock SGLang, with SGLang's mixed chunks and with SGLang's own pdmux. The verdict
    stands first in the last lines of the output, and on the page.

    To continue a run that was interrupted, give the same command again.
    """
    from pdmuxd.daemon.bench.decide.command import Place, measure, show_plan
    from pdmuxd.daemon.bench.decide.reading import Given, check, read
    from pdmuxd.daemon.cli.output import standard_output

    given = Given(
        engine=engines.engine,
        model=engines.model,
        arms=engines.arms,
        profile=engines.profile,
        tp_size=engines.tp_size,
        python=engines.python,
        sglang_args=engines.sglang_args,
        trace=loads.trace,
        trace_format=loads.trace_format,
        load=loads.load,
        rates=loads.rates,
        tbt_ms=loads.tbt_ms,
        ttft_fixed_ms=loads.ttft_fixed_ms,
        ttft_per_1k_ms=loads.ttft_per_1k_ms,
        attainment=loads.attainment,
        seeds=loads.seeds,
        duration_s=loads.duration_s,
        drain_s=loads.drain_s,
    )
    wanted = read(given)
    python = None if engines.engine == "emulated" else given.sglang_python()
    place = Place(folder=out, start_s=engines.start_timeout_s, cpu=engines.cpu, python=python)
    if dry_run:
        show_plan(wanted, place, standard_output())
        return 0
    check(wanted, python, out, on_gpu=not engines.cpu)
    return measure(
        wanted, place, standard_output(), command=command_line(ctx, "bench"), progress=not no_progress
    )
