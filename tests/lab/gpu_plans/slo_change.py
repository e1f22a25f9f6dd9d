"""How long an SLO change through REST takes to be in force under load, and whether a request is lost.

    python tests/lab slo-change --model llama-8b --results RESULTS.jsonl
    python tests/lab slo-change --engine emulator --duration-s 15

The daemon is the real one. Requests come through its gateway while the tenant's TBT target is edited to and
fro. Two times are counted from the moment an edit is sent: until the daemon tells that the engine has
confirmed the settings version that holds it, and until it tells of a decision whose slack only the new
target can explain. Telling is part of both, and takes up to 0.1 s. A request is lost when it does not end
with all of its tokens. The exit code is 3 if an edit took more than a second or a request was lost.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from gpu_plans.slo_edits import TENANT, Edit, edit_to_and_fro
from gpu_servers.model_folder import SHAPES
from gpu_servers.options import DaemonRunOptions, add_daemon_options, new_parser, numbers, parse_run
from gpu_servers.outcome import kept_and_printed
from gpu_servers.serving import serving, settings_of, with_logs
from pdmuxd.daemon.bench.arms import Arm
from pdmuxd.daemon.bench.load.client import Seen, send_all
from pdmuxd.daemon.bench.load.score import quantile
from pdmuxd.daemon.bench.load.workload import BLOCK_TOKENS, Request

LIMIT_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(DaemonRunOptions):
    """The command line."""

    edits: int
    targets_ms: list[float]
    rate: float
    input_tokens: int
    output_tokens: int


def load(rate: float, duration_s: float, *, input_tokens: int, output_tokens: int) -> list[Request]:
    """Poisson arrivals; enough tokens each that some request decodes at any moment."""
    rng = random.Random("slo change")
    requests: list[Request] = []
    at_s = 0.0
    while at_s < duration_s:
        size = rng.randint(input_tokens // 2, input_tokens * 3 // 2)
        blocks = tuple(f"slo/{len(requests)}/{i}" for i in range(-(-size // BLOCK_TOKENS)))
        requests.append(
            Request(at_s=at_s, input_tokens=size, new_tokens=size, output_tokens=output_tokens, blocks=blocks)
        )
        at_s += rng.expovariate(rate)
    return requests


async def measure(options: Options, folder: Path) -> dict[str, Any]:
    """Start the daemon, load it, edit, count."""
    requests = load(
        options.rate,
        options.duration_s,
        input_tokens=options.input_tokens,
        output_tokens=options.output_tokens,
    )
    every_s = options.duration_s / (options.edits + 1)
    environment = Arm(name="ours:auto").environment(cpu=options.cpu)
    async with serving(
        settings_of(options, options.engine, options.model, options.policy),
        environment=environment,
        folder=folder,
        start_s=options.start_s,
        kernels_file=options.kernels_file,
    ) as daemon:
        profile = options.predictors.get(options.model) if options.engine == "sglang" else None
        print(f"the policies predict with {await daemon.predict_with(profile)}", flush=True)
        await daemon.put(TENANT, _first_slo(min(options.targets_ms)))
        seen, edits = await asyncio.gather(
            send_all(
                daemon.data_url,
                requests,
                vocab=int(SHAPES[options.model]["vocab_size"]),
                tenants=False,
                drain_s=options.drain_s,
                name="slo",
                key=daemon.key,
            ),
            edit_to_and_fro(daemon, options.targets_ms, options.edits, every_s),
        )
        engine = await daemon.get("/api/v1/engine")
    return result(options, seen, edits, engine)


def _first_slo(tbt_ms: float) -> dict[str, float]:
    return {
        "ttft_fixed_ms": 1000,
        "ttft_per_1k_new_tokens_ms": 1000,
        "tbt_ms": tbt_ms,
        "attainment_ratio": 0.99,
    }


def result(
    options: Options, seen: Sequence[Seen], edits: Sequence[Edit], engine: dict[str, Any]
) -> dict[str, Any]:
    """What was measured, as it is kept."""
    lost = [one.error or one.outcome for one in seen if one.outcome != "done"]
    return {
        "what": "slo_change",
        "engine": options.engine,
        "model": options.model,
        "policy": options.policy,
        "edits": [
            {"tbt_ms": edit.tbt_ms, "in_force_s": edit.in_force_s, "decided_s": edit.decided_s}
            for edit in edits
        ],
        "requests": len(seen),
        "lost": len(lost),
        "lost_why": sorted(set(lost))[:5],
        "restarts": engine["restarts"],
    }


def lines(found: dict[str, Any]) -> list[str]:
    """For people."""
    said = []
    for name, what in (("in_force_s", "confirmed by the engine"), ("decided_s", "seen in a decision")):
        times = [edit[name] for edit in found["edits"] if edit[name] is not None]
        missing = len(found["edits"]) - len(times)
        said.append(
            f"{what}: {len(times)} of {len(times) + missing} edits, "
            f"median {1e3 * quantile(times, 0.5):.0f} ms, "
            f"longest {1e3 * max(times, default=float('nan')):.0f} ms"
            + (f"; {missing} never" if missing else "")
        )
    why = f" ({'; '.join(found['lost_why'])})" if found["lost"] else ""
    said.append(f"requests: {found['requests']}, lost {found['lost']}{why}; restarts {found['restarts']}")
    return said


def is_met(found: dict[str, Any]) -> bool:
    """Whether each edit was in force within a second, and nothing was lost."""
    times = [edit[name] for edit in found["edits"] for name in ("in_force_s", "decided_s")]
    in_time = all(seconds is not None and seconds <= LIMIT_S for seconds in times)
    return bool(times) and in_time and not found["lost"] and not found["restarts"]


def options_of(argv: list[str] | None = None) -> Options:
    """The command line."""
    parser = new_parser("slo-change", __doc__)
    add_daemon_options(parser)
    parser.add_argument("--edits", type=int, default=10)
    parser.add_argument("--targets-ms", type=numbers, default=[50.0, 500.0], help="two TBT targets far apart")
    parser.add_argument("--rate", type=float, default=8.0, help="requests per second")
    parser.add_argument("--input-tokens", type=int, default=1000)
    parser.add_argument("--output-tokens", type=int, default=200)
    options = parse_run(parser, argv, Options, duration_s=40.0, drain_s=30.0)
    if len(options.targets_ms) != 2 or len(set(options.targets_ms)) != 2:
        parser.error("--targets-ms: two different targets, such as 50,500")
    if options.edits < 1 or options.rate <= 0:
        parser.error("--edits and --rate: at least 1 edit, a rate above 0")
    return options


def main(argv: list[str] | None = None) -> int:
    """Measure, keep, print."""
    options = options_of(argv)
    return kept_and_printed(
        partial(with_logs, partial(measure, options), options.log_dir, "slo"),
        options.results,
        lines=lines,
        is_met=is_met,
    )
