"""What multiplexing itself costs, on one server of ours: switches, our share of a turn, layers, memory.

    python tests/lab micro --model llama-8b --results RESULTS.jsonl
    python tests/lab micro --show RESULTS.jsonl

The server is the one that serves, with `tests/lab/in_sglang/probe_plugin.py` beside pdmuxd's own plugin. It
measures switches, layer-wise prefill and memory before it serves (about 20 s with Llama-8B's shape), and the
host's time per turn under the load of `--cell`, once for each of `--policies`.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import os
import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from gpu_plans import micro_table
from gpu_servers import sglang_plugin
from gpu_servers.linked import linked
from gpu_servers.model_folder import SHAPES
from gpu_servers.options import LAB, RunOptions, new_parser, one_cell, parse_run, whole_numbers
from gpu_servers.outcome import MISSED, outcome_of
from gpu_servers.shapes import shape_model
from in_sglang import probe_plugin
from pdmuxd.daemon.bench.arms import Arm
from pdmuxd.daemon.bench.load.client import send_all
from pdmuxd.daemon.bench.load.workload import Cell
from pdmuxd.daemon.bench.load.workload import build as build_requests
from pdmuxd.daemon.bench.models import ServedModel
from pdmuxd.daemon.bench.results import append_result, build, read_results
from pdmuxd.daemon.bench.servers.nvidia import gpu_name
from pdmuxd.daemon.bench.servers.predicting import predictors
from pdmuxd.daemon.bench.servers.server import ServerError

_SERVED = re.compile(r"Capture target decode CUDA graph end.*mem usage=([\d.]+) GB")
_MEMORY = re.compile(r"Load weight begin\. avail mem=([\d.]+) GB")
_LOOK_S, _LOOKS = 0.3, 60
_SETTLED_S = 2.5
"""The loop tells of its turns when it was idle for a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(RunOptions):
    """The command line."""

    model: str
    policies: list[str]
    cell: Cell
    tbt_ms: float
    prefill_tokens: list[int]
    show: Path | None


class Probes:
    """The lines that the plugin writes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def all(self) -> list[dict[str, Any]]:
        """So far."""
        return list(read_results(self._path))

    def turns(self) -> list[dict[str, Any]]:
        """Reports of turns so far, one per load."""
        return [one for one in self.all() if one["what"] == "turns"]

    async def longest_turns(self, since: int) -> dict[str, Any] | None:
        """Of the reports behind the first `since`, that of the most turns; None if none comes.

        SGLang's own warm-up and whoever asks for its health are loads as well, though short ones.
        """
        for _ in range(_LOOKS):
            await asyncio.sleep(_LOOK_S)
            new = self.turns()[since:]
            if new:
                await asyncio.sleep(_SETTLED_S)
                return max(self.turns()[since:], key=lambda one: int(one["turns"]))
        return None


async def measure(options: Options, folder: Path) -> list[dict[str, Any]]:
    """Start the server, load it under each policy; everything that was found."""
    arm, probes = Arm(name=f"ours:{options.policies[0]}"), Probes(folder / "probes.jsonl")
    model = shape_model(options.model, options.work, options.config)
    log = options.log_dir / f"{options.model}-micro.log"
    log.unlink(missing_ok=True)
    around = environment(arm, folder, options)
    server = linked(arm, options, model=model, folder=folder, log=log, environment=around)
    async with server as (base_url, link):
        found: list[dict[str, Any]] = []
        for policy in options.policies:
            loaded = predictors(options.predictors, options.model)
            await link.set(policy=policy, tbt_ms=options.tbt_ms, predictors=loaded)
            before = len(probes.turns())
            await load(options, model, base_url, policy)
            turns = await probes.longest_turns(before)
            if turns is None:
                found.append(
                    {"what": "failed", "probe": "turns", "error": f"nothing was told under {policy}"}
                )
                break
            found.append(turns | {"policy": policy, "cell": str(options.cell)})
    return [one for one in probes.all() if one["what"] not in {"turns", "ready"}] + found + from_log(log)


def install_probes(folder: Path) -> dict[str, str]:
    """The environment of a server that loads the probes."""
    # A link, so that nothing else of the laboratory is on the server's path.
    (folder / "in_sglang").symlink_to(LAB / "in_sglang")
    return sglang_plugin.install(folder, probe_plugin.PLUGIN, probe_plugin.__name__)


def environment(arm: Arm, folder: Path, options: Options) -> dict[str, str]:
    """The arm's, with the plugin."""
    found = arm.environment(cpu=options.cpu)
    own = install_probes(folder)
    own[probe_plugin.OUT] = str(folder / "probes.jsonl")
    own[probe_plugin.SIZES] = ",".join(map(str, options.prefill_tokens))
    own["PYTHONPATH"] = os.pathsep.join(filter(None, (own["PYTHONPATH"], found.get("PYTHONPATH"))))
    return found | own


async def load(options: Options, model: ServedModel, base_url: str, policy: str) -> None:
    """One run of the cell. Raises: ServerError if nothing was served."""
    traces = json.loads(options.traces.read_text()) if options.traces.exists() else {}
    requests = build_requests(options.cell, traces, seed=1, duration_s=options.duration_s)
    seen = await send_all(
        base_url,
        requests,
        vocab=model.vocab,
        tenants=True,
        drain_s=options.drain_s,
        name=f"micro-{policy}",
    )
    if not any(one.tokens for one in seen):
        raise ServerError(f"no request had a token under {policy}, the first: {seen[0].error or 'cut'}")


def from_log(log: Path) -> list[dict[str, Any]]:
    """What SGLang itself says of memory."""
    text = log.read_text(errors="replace")
    said = {"graphs of all groups": _SERVED, "free before the weights": _MEMORY}
    return [
        {"what": "memory", "of": of, "bytes": round(float(found[1]) * 2**30)}
        for of, pattern in said.items()
        if (found := pattern.search(text))
    ]


def options_of(argv: list[str] | None = None) -> Options:
    """The command line."""
    parser = new_parser("micro", __doc__)
    parser.add_argument("--model", choices=sorted(SHAPES), default="llama-8b")
    parser.add_argument("--policies", type=lambda text: text.split(","), default=["auto", "muxwise"])
    parser.add_argument("--cell", type=one_cell, default=Cell(workload="conv", rate=16.0))
    parser.add_argument("--tbt-ms", type=float, default=50.0)
    parser.add_argument("--prefill-tokens", type=whole_numbers, default=[1024, 4096, 16384])
    parser.add_argument("--show", type=Path, help="print the last results in this file, and measure nothing")
    return parse_run(parser, argv, Options)


def main(argv: list[str] | None = None) -> int:
    """Measure, keep, print."""
    options = options_of(argv)
    if options.show is not None:
        kept = [one for one in read_results(options.show) if one.get("what") == "micro"]
        shown = micro_table.lines(kept[-1]["found"]) if kept else [f"{options.show}: nothing of micro"]
        print("\n".join(shown))
        return 0 if kept else 1
    found = outcome_of(partial(measure, options))
    if found is None:
        return 1
    kept_result = {
        "what": "micro",
        "model": options.model,
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "gpu": gpu_name(),
        "build": build(),
        "found": found,
    }
    append_result(options.results, kept_result)
    print("\n".join(micro_table.lines(found)))
    return MISSED if any(one["what"] == "failed" for one in found) else 0
