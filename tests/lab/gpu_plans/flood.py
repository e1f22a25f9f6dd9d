"""What a flood costs the tenant beside it, at the clients, through the real daemon.

    python tests/lab flood --model llama-8b --results RESULTS.jsonl
    python tests/lab flood --engine emulator --duration-s 20 --flood-s 40

One tenant sends its load by itself; then it sends the same load again, and another tenant sends many times
its share beside it. Each has its own key, the same targets and the daemon's usual limits. The figure is the
calm tenant's share of good requests, alone and beside the flood. The exit code is 3 if the flood took more
than two points of it, or if a request of the calm tenant failed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from gpu_servers.model_folder import SHAPES
from gpu_servers.options import DaemonRunOptions, add_daemon_options, new_parser, one_cell, parse_run
from gpu_servers.outcome import kept_and_printed
from gpu_servers.serving import Daemon, serving, settings_of, with_logs
from pdmuxd.daemon.bench.arms import Arm
from pdmuxd.daemon.bench.load.client import Seen, send_all
from pdmuxd.daemon.bench.load.score import record, summary
from pdmuxd.daemon.bench.load.workload import Cell, Request, TtftTarget, from_trace
from pdmuxd.daemon.bench.results import append_result
from pdmuxd.daemon.bench.servers.server import ArmError, ServerError
from pdmuxd.daemon.replay.generate import KINDS, generate

LIMIT_POINTS = 2.0
LEAST_ALONE = 0.9
"""A calm tenant that is served worse than this by itself has nothing that a flood could take."""
PAUSE_S = 5.0
"""Between the two parts, so that the second does not begin with what the first has left."""
_AROUND_S = 8.0
"""Prompts are written, tenants made, the daemon ends."""
_SHORTEST_S = 10.0
_STEPS_SHOWN = 5
CALM, FLOOD = "calm", "flood"
TTFT = TtftTarget()
"""As tenants have it: a fixed time and one per 1,000 new tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(DaemonRunOptions):
    """The command line."""

    calm: Cell
    flood: Cell
    flood_s: float
    tbt_ms: float


def load(cell: Cell, tenant: str, duration_s: float) -> list[Request]:
    """A tenant's requests. Raises: ArmError if none arrives in that time."""
    rows = generate(cell.workload, rate_per_s=cell.rate, duration_s=duration_s, seed=1)
    if not rows:
        raise ArmError(f"{cell}: no request arrives within {duration_s:g} s")
    return from_trace(rows, name=f"{tenant}/{cell}", ttft=TTFT)


async def measure(options: Options, folder: Path) -> dict[str, Any]:
    """The calm tenant alone, then beside the flood, which begins a little after it."""
    began_s = time.monotonic()
    for cell, duration_s in ((options.calm, options.duration_s), (options.flood, options.flood_s)):
        load(cell, CALM, duration_s)  # ahead of a start that takes a minute
    environment = Arm(name="ours:auto").environment(cpu=options.cpu)
    async with serving(
        settings_of(options, options.engine, options.model, options.policy),
        environment=environment,
        folder=folder,
        start_s=options.start_s,
        kernels_file=options.kernels_file,
    ) as daemon:
        options = within(options, options.budget_s - (time.monotonic() - began_s))
        profile = options.predictors.get(options.model) if options.engine == "sglang" else None
        predicts_with = await daemon.predict_with(profile)
        print(f"the policies predict with {predicts_with}", flush=True)
        keys = {tenant: await new_tenant(daemon, tenant, options.tbt_ms) for tenant in (CALM, FLOOD)}

        async def send(cell: Cell, tenant: str, duration_s: float) -> list[Seen]:
            return await send_all(
                daemon.data_url,
                load(cell, tenant, duration_s),
                vocab=int(SHAPES[options.model]["vocab_size"]),
                tenants=False,
                drain_s=options.drain_s,
                name=f"{tenant}{duration_s:g}",
                key=keys[tenant],
            )

        started = await daemon.steps()
        alone = await send(options.calm, CALM, options.duration_s)
        before = await daemon.steps()
        print(f"{options.calm} alone: {_figures(_part(options, alone))}", flush=True)
        engine = await daemon.get("/api/v1/engine")
        told: dict[str, Any] = {"predicts_with": predicts_with, "steps": {"alone": before - started}}
        first = result(options, {"alone": alone}, engine) | told | {"what": "flood, alone"}
        append_result(options.results, first)
        await asyncio.sleep(PAUSE_S)
        beside, flood = await asyncio.gather(
            send(options.calm, CALM, options.flood_s), send(options.flood, FLOOD, options.flood_s)
        )
        told["steps"]["beside"] = await daemon.steps() - before
        engine = await daemon.get("/api/v1/engine")
    return result(options, {"alone": alone, "beside": beside, "flood": flood}, engine) | told


def within(options: Options, left_s: float) -> Options:
    """With both parts shortened alike, if they would not end in what is left: half a flood says more than one
    that was cut off."""
    around_s = PAUSE_S + 2.0 * options.drain_s + _AROUND_S
    wanted_s = options.duration_s + options.flood_s
    share = max(0.0, left_s - around_s) / wanted_s
    if share >= 1.0:
        return options
    if share * options.flood_s < _SHORTEST_S:
        raise ServerError(f"{left_s:.0f} s are left, too few for a flood of {_SHORTEST_S:g} s")
    print(f"{left_s:.0f} s are left: both parts are shortened to {share:.0%}", flush=True)
    return replace(options, duration_s=share * options.duration_s, flood_s=share * options.flood_s)


async def new_tenant(daemon: Daemon, name: str, tbt_ms: float) -> str:
    """Create a tenant; the secret of its key."""
    slo = {"ttft_fixed_ms": 1000, "ttft_per_1k_new_tokens_ms": 1000, "tbt_ms": tbt_ms}
    await daemon.post("/api/v1/tenants", {"name": name, "slo": {**slo, "attainment_ratio": 0.99}})
    issued = await daemon.post(f"/api/v1/tenants/{name}/keys", {"label": "bench"})
    return str(issued["secret"])


def result(options: Options, seen: dict[str, Sequence[Seen]], engine: dict[str, Any]) -> dict[str, Any]:
    """What was measured, as it is kept."""
    return {
        "what": "flood",
        "engine": options.engine,
        "model": options.model,
        "policy": options.policy,
        "calm": str(options.calm),
        "flood": str(options.flood),
        "alone_s": options.duration_s,
        "flood_s": options.flood_s,
        "tbt_ms": options.tbt_ms,
        "parts": {part: _part(options, ones) for part, ones in seen.items()},
        "restarts": engine["restarts"],
    }


def _part(options: Options, seen: Sequence[Seen]) -> dict[str, Any]:
    run = record(seen)
    return summary(run, tbt_ms=options.tbt_ms) | {"why": run["errors"]}


def lost_points(found: dict[str, Any]) -> float | None:
    """Of the calm tenant's good requests; None where a part has none."""
    alone, beside = (found["parts"][part]["good_ratio"] for part in ("alone", "beside"))
    return None if alone is None or beside is None else 100.0 * (alone - beside)


def lines(found: dict[str, Any]) -> list[str]:
    """For people."""
    said = []
    for part, name in (("alone", f"{found['calm']} alone"), ("beside", "the same beside the flood")):
        said.append(f"{name}: {_figures(found['parts'][part])}")
    said.append(f"the flood, {found['flood']}: {_figures(found['parts']['flood'])}")
    said.append(
        f"steps beside it, by the policies with {found['predicts_with']}: {_most(found['steps']['beside'])}"
    )
    points = lost_points(found)
    told = (
        "nothing was served" if points is None else f"{points:.1f} points (at most {LIMIT_POINTS:g} wanted)"
    )
    said.append(f"the flood cost {told}; restarts {found['restarts']}")
    if points is not None and found["parts"]["alone"]["good_ratio"] < LEAST_ALONE:
        said.append(f"that says little: alone the calm tenant was not good in {LEAST_ALONE:.0%} either")
    return said


def _most(steps: Mapping[str, int]) -> str:
    """Those that there were most of, so that a fallback shows."""
    first = sorted(steps.items(), key=lambda item: -item[1])[:_STEPS_SHOWN]
    return ", ".join(f"{what} {count:,}" for what, count in first) or "none"


def _figures(part: dict[str, Any]) -> str:
    good = "-" if part["good_ratio"] is None else f"{100 * part['good_ratio']:.1f}%"
    why = f" ({part['why'][0]})" if part["why"] else ""
    return (
        f"{part['requests']} requests, {good} good, TTFT p50 / p99 {part['ttft_p50_ms']:.0f} / "
        f"{part['ttft_p99_ms']:.0f} ms, {part['input_tps']:,.0f} input tokens/s, "
        f"refused or failed {part['errors']}{why}"
    )


def is_met(found: dict[str, Any]) -> bool:
    """Whether the flood took no more than two points of a tenant that is served well by itself, and nothing
    of it failed."""
    points = lost_points(found)
    failed = any(found["parts"][part]["errors"] for part in ("alone", "beside"))
    is_kept = points is not None and points <= LIMIT_POINTS
    is_told = is_kept and found["parts"]["alone"]["good_ratio"] >= LEAST_ALONE
    return is_told and not failed and not found["restarts"]


def options_of(argv: list[str] | None = None) -> Options:
    """The command line."""
    parser = new_parser("flood", __doc__)
    add_daemon_options(parser)
    parser.add_argument("--calm", type=one_cell, default=Cell.parse("summaries:3"), help="KIND:RATE")
    parser.add_argument("--flood", type=one_cell, default=Cell.parse("summaries:30"), help="KIND:RATE")
    parser.add_argument("--flood-s", type=float, default=300.0, help="of both together")
    parser.add_argument("--tbt-ms", type=float, default=50.0)
    options = parse_run(parser, argv, Options, duration_s=100.0)
    wrong = [str(cell) for cell in (options.calm, options.flood) if cell.workload not in KINDS]
    if wrong:
        parser.error(f"--calm, --flood: {wrong[0]} is no generated load; allowed are {', '.join(KINDS)}")
    if not (options.flood_s > 0 and options.duration_s > 0 and options.tbt_ms > 0):
        parser.error("--duration-s, --flood-s and --tbt-ms: numbers above 0")
    return options


def main(argv: list[str] | None = None) -> int:
    """Measure, keep, print."""
    options = options_of(argv)
    return kept_and_printed(
        partial(with_logs, partial(measure, options), options.log_dir, "flood"),
        options.results,
        lines=lines,
        is_met=is_met,
    )
