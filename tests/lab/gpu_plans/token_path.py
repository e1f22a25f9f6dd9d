"""What a token costs on both of its ways, through the daemon, at the client.

    python tests/lab token-path --model llama-8b --results RESULTS.jsonl

Runs `bench_token_path.py` on a model's shape, with the flags of the other measurements, and
keeps what it found.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from gpu_servers.model_folder import SHAPES
from gpu_servers.options import LAB, RunOptions, new_parser, parse_run, whole_numbers
from gpu_servers.outcome import kept_and_printed
from gpu_servers.serving import settings_of
from pdmuxd.daemon.bench.arms import Arm
from pdmuxd.daemon.bench.results import build
from pdmuxd.daemon.bench.servers.server import ServerError, started

SCRIPT = LAB / "bench_token_path.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(RunOptions):
    """The command line."""

    engine: str
    model: str
    streams: list[int]
    seconds: float
    warm_up_s: float
    script: Path


def command_of(options: Options, found: Path) -> list[str]:
    """The script's command line; it writes what it found to `found`."""
    settings = settings_of(options, options.engine, options.model, "auto")
    command = [sys.executable, str(options.script), "--streams", *map(str, options.streams)]
    command += ["--seconds", f"{options.seconds:g}", "--warm-up-s", f"{options.warm_up_s:g}"]
    command += ["--json", str(found)]
    if options.engine == "sglang":
        # It gives the kind and the model itself.
        model = next(value for key, _, value in map(_parts, settings) if key == "engine.sglang.model")
        command += ["--model", model]
    given = ("engine.kind", "engine.sglang.model")
    return command + [word for one in settings if _parts(one)[0] not in given for word in ("--set", one)]


def _parts(setting: str) -> tuple[str, str, str]:
    return setting.partition("=")


async def measure(options: Options, folder: Path) -> dict[str, Any]:
    """Run the script within its time; what it had found counts when it fails then.

    Raises: ServerError with its last words if it found nothing.
    """
    if not options.script.is_file():
        raise ServerError(f"there is no {options.script}: run it in the project's folder, or name it")
    found, log = folder / "found.json", options.log_dir / "token-path.log"
    environment = Arm(name="ours:auto").environment(cpu=options.cpu)
    failure = ""
    async with started(command_of(options, found), environment=environment, log=log) as process:
        try:
            code = await asyncio.wait_for(process.wait(), min(options.budget_s, 1e6))
        except TimeoutError:
            failure = f"not done within {options.budget_s:.0f} s: {_words(log)}"
        else:
            if code != 0:
                failure = f"{options.script.name} exited with {code}: {_words(log)}"
    known = _read(found)
    if failure and not known.get("rows"):
        raise ServerError(failure)
    head = {"what": "token-path", "build": build(), "model": options.model}
    return head | known | ({"failure": failure} if failure else {})


def _words(log: Path) -> str:
    return " | ".join(log.read_text(errors="replace").splitlines()[-8:])[-2000:]


def _read(found: Path) -> dict[str, Any]:
    """Empty if the script did not come so far."""
    try:
        document: dict[str, Any] = json.loads(found.read_text())
    except (OSError, ValueError):
        return {}
    return document


def lines(found: dict[str, Any]) -> list[str]:
    """For people: a line per way and number of streams, and what failed."""
    measured = [
        f"{row['token_path']}, {row['streams']} streams: {row['events_per_s']:.0f} tokens/s, us a token "
        f"in the daemon {row['daemon_us_per_token']:.1f} and the engine {row['engine_us_per_token']:.1f}, "
        f"gaps p50 / p99 {row['gap_p50_ms']:.1f} / {row['gap_p99_ms']:.1f} ms"
        f"{_late(row)}, failed {row['failed']}"
        for row in found["rows"]
    ]
    return measured + ([found["failure"]] if "failure" in found else [])


def _late(row: dict[str, Any]) -> str:
    gaps, requests = row.get("late_behind_gap_ratio"), row.get("late_behind_request_ratio")
    if gaps is None or requests is None:
        return ""
    return f", late behind the scheduler {gaps:.3%} of gaps, {requests:.2%} of requests"


def is_met(found: dict[str, Any]) -> bool:
    """Whether both ways were measured, and nothing failed."""
    ways = {row["token_path"] for row in found["rows"]}
    return (
        "failure" not in found
        and ways == {"http", "direct"}
        and not any(row["failed"] for row in found["rows"])
    )


def options_of(argv: list[str] | None = None) -> Options:
    """The command line."""
    parser = new_parser("token-path", __doc__)
    parser.add_argument("--engine", choices=("sglang", "emulator"), default="sglang")
    parser.add_argument("--model", choices=sorted(SHAPES), default="llama-8b")
    parser.add_argument("--python", type=Path, help="SGLang's, if it is not this one")
    parser.add_argument("--streams", type=whole_numbers, default=[64, 256], help="at a time")
    parser.add_argument("--seconds", type=float, default=15.0, help="of each number of streams")
    parser.add_argument("--warm-up-s", type=float, default=6.0)
    parser.add_argument("--script", type=Path, default=SCRIPT)
    return parse_run(parser, argv, Options)


def main(argv: list[str] | None = None) -> int:
    """Measure, keep, print."""
    options = options_of(argv)
    return kept_and_printed(partial(measure, options), options.results, lines=lines, is_met=is_met)
