"""What multiplexing itself costs, on one server of ours: switches, our share of a turn, layers, memory.

    PYTHONPATH=SITE python3 tests/bench/gpu/micro.py --model llama-8b --results RESULTS.jsonl
    python tests/bench/gpu/micro.py --show RESULTS.jsonl

The server is the one that serves, with `probe_plugin.py` beside pdmuxd's own plugin. It measures switches,
layer-wise prefill and memory before it serves (about 20 s with Llama-8B's shape), and the host's time per
turn under the load of `--cell`, once for each of `--policies`.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import os
import re
import sys
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(1, str(Path(__file__).parents[2] / "support"))

import micro_table
import probe_plugin
import sglang_plugin
from arms import Arm
from bench import gpu_name
from client import send_all
from linked import linked
from model_folder import SHAPES, write_model_folder
from options import add_common, whole_numbers
from outcome import outcome_of
from predicting import predictors
from runs import MISSED, append_result, build, read_results
from server import ServerError
from workload import Cell
from workload import build as build_requests

_SERVED = re.compile(r"Capture target decode CUDA graph end.*mem usage=([\d.]+) GB")
_MEMORY = re.compile(r"Load weight begin\. avail mem=([\d.]+) GB")
_LOOK_S, _LOOKS = 0.3, 60
_SETTLED_S = 2.5
"""The loop tells of its turns when it was idle for a second."""


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


async def measure(options: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Start the server, load it under each policy; everything that was found."""
    arm, probes = Arm(name=f"ours:{options.policies[0]}"), Probes(folder / "probes.jsonl")
    model = write_model_folder(options.model, options.work / options.model, **options.config)
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
            await load(options, base_url, policy)
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
    files = Path(__file__).parent.glob("probe_*.py")
    return sglang_plugin.install(folder, probe_plugin.PLUGIN, "probe_plugin", files)


def environment(arm: Arm, folder: Path, options: argparse.Namespace) -> dict[str, str]:
    """The arm's, with the plugin."""
    found = arm.environment(cpu=options.cpu)
    own = install_probes(folder)
    own[probe_plugin.OUT] = str(folder / "probes.jsonl")
    own[probe_plugin.SIZES] = ",".join(map(str, options.prefill_tokens))
    own["PYTHONPATH"] = os.pathsep.join(filter(None, (own["PYTHONPATH"], found.get("PYTHONPATH"))))
    return found | own


async def load(options: argparse.Namespace, base_url: str, policy: str) -> None:
    """One run of the cell. Raises: ServerError if nothing was served."""
    traces = json.loads(options.traces.read_text()) if options.traces.exists() else {}
    requests = build_requests(options.cell, traces, seed=1, duration_s=options.duration_s)
    seen = await send_all(
        base_url,
        requests,
        vocab=int(SHAPES[options.model]["vocab_size"]),
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


def options_of(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--model", choices=sorted(SHAPES), default="llama-8b")
    parser.add_argument("--policies", type=lambda text: text.split(","), default=["auto", "muxwise"])
    parser.add_argument("--cell", type=Cell.parse, default=Cell(workload="conv", rate=16.0))
    parser.add_argument("--tbt-ms", type=float, default=50.0)
    parser.add_argument("--prefill-tokens", type=whole_numbers, default=[1024, 4096, 16384])
    parser.add_argument("--show", type=Path, help="print the last results in this file, and measure nothing")
    return add_common(parser, argv)


def main() -> int:
    """Measure, keep, print."""
    options = options_of()
    if options.show is not None:
        kept = [one for one in read_results(options.show) if one.get("what") == "micro"]
        shown = micro_table.lines(kept[-1]["found"]) if kept else [f"{options.show}: nothing of micro.py"]
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


if __name__ == "__main__":
    sys.exit(main())
