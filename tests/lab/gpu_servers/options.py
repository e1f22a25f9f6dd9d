"""What the command lines of the measurements share: their options, as values with types."""

from __future__ import annotations

import argparse
import json
import math
import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from gpu_servers.model_folder import SHAPES
from pdmuxd.daemon.bench import options
from pdmuxd.daemon.bench.arms import Arm, split_names
from pdmuxd.daemon.bench.load.workload import Cell
from pdmuxd.engine.core.errors import InvalidValueError

LAB = Path(__file__).parents[1]
_PROJECT = LAB.parents[1]
PROFILES = _PROJECT / "docs/measurements/h200"
SHIPPED = _PROJECT / "engine/profiling/shipped"
CPU_STUB = LAB / "in_sglang" / "cpu"
"""What SGLang's CPU path needs of vLLM."""

STATICS = ("ours:static:112,20", "ours:static:96,36", "ours:static:80,52")
RIVALS = ("stock", "chunk-256", "chunk-512", "chunk-1024", "chunk-2048", "pdmux", *STATICS)
ALL = (*RIVALS, "ours:auto", "ours:muxwise")

Parsed = TypeVar("Parsed")


@dataclass(frozen=True, kw_only=True)
class ServerOptions(options.ServerOptions):
    """How servers of made-up models are started."""

    work: Path = Path(".gpu/models")
    log_dir: Path = Path(".gpu/logs")
    config: dict[str, object] = field(default_factory=dict)
    """Over the shape's own."""


@dataclass(frozen=True, kw_only=True)
class RunOptions(ServerOptions, options.RunOptions):
    """How runs are made, and where everything is."""

    results: Path = Path(".gpu/results.jsonl")
    no_ahead: bool = False
    traces: Path = Path(".gpu/traces.json")
    records: Path | None = None
    stalls: Path | None = None
    profile: Path | None = None
    leave_ratio: float = 0.0
    """Of clients that leave early."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonRunOptions(RunOptions):
    """Of runs against one daemon, by `add_daemon_options`."""

    engine: str
    model: str
    policy: str


def numbers(text: str) -> list[float]:
    """Numbers above 0, with commas between them."""
    try:
        found = [float(word) for word in text.split(",")]
    except ValueError:
        found = [0.0]
    if not all(math.isfinite(number) and number > 0 for number in found):
        raise argparse.ArgumentTypeError(f"{text!r}: numbers above 0, with commas between them")
    return found


def whole_numbers(text: str) -> list[int]:
    """Whole numbers from 0 on, with commas between them."""
    if not all(word.isdecimal() for word in text.split(",")):
        raise argparse.ArgumentTypeError(f"{text!r}: whole numbers, with commas between them")
    return [int(word) for word in text.split(",")]


def one_cell(text: str) -> Cell:
    """`WORKLOAD:RATE`."""
    try:
        return Cell.parse(text)
    except InvalidValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def cells(text: str) -> list[Cell]:
    """`WORKLOAD:RATE`, with commas between them."""
    return [one_cell(word) for word in text.split(",")]


def arms(text: str) -> list[Arm]:
    """Names of arms, or of groups of them, with commas between them."""
    try:
        return parse_arms(text)
    except InvalidValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def parse_arms(names: str) -> list[Arm]:
    """Read a comma-separated list of arms, or `rivals`, `statics`, `all`."""
    groups = {"all": ALL, "rivals": RIVALS, "statics": STATICS}
    return [Arm(name=name) for word in split_names(names) for name in groups.get(word, (word,))]


def words(text: str) -> tuple[str, ...]:
    """As a shell would split them."""
    return tuple(shlex.split(text))


def predictor_file(text: str) -> tuple[str, Path]:
    """`MODEL=FILE`: a profile, or the predictors that `measure` wrote."""
    model, equals, name = text.partition("=")
    if not equals or model not in SHAPES:
        known = ", ".join(sorted(SHAPES))
        raise argparse.ArgumentTypeError(f"{text!r}: MODEL=FILE, where MODEL is one of {known}")
    if not Path(name).is_file():
        raise argparse.ArgumentTypeError(f"{name}: there is no such file")
    return model, Path(name)


def new_parser(name: str, description: str | None) -> argparse.ArgumentParser:
    """Of one command."""
    return argparse.ArgumentParser(
        prog=f"python tests/lab {name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def parse(parser: argparse.ArgumentParser, argv: Sequence[str] | None, into: Callable[..., Parsed]) -> Parsed:
    """The command line as a value: its fields are the parser's options."""
    return into(**vars(parsed(parser, argv)))


def parsed(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line; with --cpu, all that is started finds what SGLang needs there."""
    found = parser.parse_args(argv)
    if getattr(found, "cpu", False):
        others = [
            path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path != str(CPU_STUB)
        ]
        os.environ["PYTHONPATH"] = os.pathsep.join((str(CPU_STUB), *others))
    return found


def add_server_options(parser: argparse.ArgumentParser) -> None:
    """What every command that starts a server takes."""
    parser.add_argument("--start-s", type=float, default=240.0, help="what a server's start may take")
    parser.add_argument("--cpu", action="store_true", help="SGLang's CPU path, to try it")
    parser.add_argument("--extra", type=words, default=(), help="more flags for every SGLang server")
    parser.add_argument("--work", type=Path, default=Path(".gpu/models"), help="for model folders")


def add_daemon_options(parser: argparse.ArgumentParser) -> None:
    """What the commands that measure one daemon take: its engine, model and policy."""
    parser.add_argument("--engine", choices=("sglang", "emulator"), default="sglang")
    parser.add_argument("--model", choices=sorted(SHAPES), default="llama-8b")
    parser.add_argument("--policy", default="auto")
    parser.add_argument("--python", type=Path, help="SGLang's, if it is not this one")


def _measured(model: str) -> Path | None:
    """A model's profile of an H200, if there is one, wherever the command is given: of the splits that are
    made by default since 2026-11-23, which the package brings along, else of those before."""
    return next((path for path in (SHIPPED / f"h200-{model}.json.gz", _older(model)) if path.is_file()), None)


def _older(model: str) -> Path:
    return PROFILES / f"{model}.profile.json.gz"


def parse_run(
    parser: argparse.ArgumentParser,
    argv: Sequence[str] | None,
    into: Callable[..., Parsed],
    *,
    duration_s: float = 30.0,
    drain_s: float = 8.0,
) -> Parsed:
    """Add the fields of RunOptions, parse, and make the folders."""
    add_server_options(parser)
    parser.add_argument("--config", type=json.loads, default={}, help="JSON object over the shape's config")
    parser.add_argument("--duration-s", type=float, default=duration_s, help="of arrivals")
    parser.add_argument(
        "--drain-s", type=float, default=drain_s, help="after the last arrival; then all is cut"
    )
    parser.add_argument("--budget-s", type=float, default=math.inf, help="start nothing that would end later")
    parser.add_argument(
        "--predictors",
        type=predictor_file,
        action="append",
        default=[],
        metavar="MODEL=FILE",
        help="a profile for arms with a policy; without one, that of an H200 which the project has",
    )
    parser.add_argument("--no-ahead", action="store_true", help="start no server beside another's last run")
    parser.add_argument("--traces", type=Path, default=Path(".gpu/traces.json"))
    parser.add_argument("--results", type=Path, default=Path(".gpu/results.jsonl"))
    parser.add_argument("--records", type=Path, help="a folder for every step's record, a file per run")
    parser.add_argument("--stalls", type=Path, help="a folder for what held tokens up: see stall-trace")
    parser.add_argument(
        "--profile",
        type=lambda text: Path(text).absolute(),
        help="a folder for a trace of each run, whose result is not kept: see between-steps",
    )
    parser.add_argument("--log-dir", type=Path, default=Path(".gpu/logs"))
    found = parsed(parser, argv)
    measured = {model: path for model in SHAPES if (path := _measured(model)) is not None}
    # They are of one GPU: several as one predict with the roofline, which knows of them.
    none_fits = found.cpu or getattr(found, "tp_size", 1) > 1
    kept = {} if none_fits else measured
    found.predictors = kept | dict(found.predictors)
    found.log_dir.mkdir(parents=True, exist_ok=True)
    found.results.parent.mkdir(parents=True, exist_ok=True)
    return into(**vars(found))
