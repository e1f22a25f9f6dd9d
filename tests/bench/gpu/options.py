"""What the command lines of these scripts share."""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).parents[2] / "support"))

from model_folder import SHAPES
from workload import Cell

MEASURED = Path(__file__).parents[3] / "docs" / "measurements" / "h200"
"""Profiles that are part of the repository."""


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


def cells(text: str) -> list[Cell]:
    """`WORKLOAD:RATE`, with commas between them."""
    return [Cell.parse(word) for word in text.split(",")]


def predictor_file(text: str) -> tuple[str, Path]:
    """`MODEL=FILE`: a profile, or the predictors that measure.py wrote."""
    model, equals, name = text.partition("=")
    if not equals or model not in SHAPES:
        known = ", ".join(sorted(SHAPES))
        raise argparse.ArgumentTypeError(f"{text!r}: MODEL=FILE, where MODEL is one of {known}")
    if not Path(name).is_file():
        raise argparse.ArgumentTypeError(f"{name}: there is no such file")
    return model, Path(name)


def add_common(
    parser: argparse.ArgumentParser,
    argv: list[str] | None,
    *,
    duration_s: float = 30.0,
    drain_s: float = 8.0,
) -> argparse.Namespace:
    """Add what every script that starts servers takes, parse, and make the folders."""
    parser.add_argument("--config", type=json.loads, default={}, help="JSON object over the shape's config")
    parser.add_argument("--duration-s", type=float, default=duration_s, help="of arrivals")
    parser.add_argument(
        "--drain-s", type=float, default=drain_s, help="after the last arrival; then all is cut"
    )
    parser.add_argument("--budget-s", type=float, default=math.inf, help="start nothing that would end later")
    parser.add_argument("--start-s", type=float, default=240.0, help="what a server's start may take")
    parser.add_argument(
        "--predictors",
        type=predictor_file,
        action="append",
        default=[],
        metavar="MODEL=FILE",
        help="a profile for arms with a policy; without one, that of docs/measurements if there is one",
    )
    parser.add_argument("--no-ahead", action="store_true", help="start no server beside another's last run")
    parser.add_argument("--cpu", action="store_true", help="SGLang's CPU path, to try the scripts")
    parser.add_argument("--extra", type=str.split, default=[], help="more flags for every SGLang server")
    parser.add_argument("--traces", type=Path, default=Path(".gpu/traces.json"))
    parser.add_argument("--results", type=Path, default=Path(".gpu/results.jsonl"))
    parser.add_argument("--work", type=Path, default=Path(".gpu/models"))
    parser.add_argument("--records", type=Path, help="a folder for every step's record, a file per run")
    parser.add_argument("--stalls", type=Path, help="a folder for what held tokens up: see stall_trace.py")
    parser.add_argument(
        "--profile",
        type=lambda text: Path(text).absolute(),
        help="a folder for a trace of each run, whose result is not kept: see between_steps.py",
    )
    parser.add_argument("--log-dir", type=Path, default=Path(".gpu/logs"))
    options = parser.parse_args(argv)
    measured = {model: MEASURED / f"{model}.profile.json.gz" for model in SHAPES}
    # They are of one GPU: several as one predict with the roofline, which knows of them.
    none_fits = options.cpu or getattr(options, "tp_size", 1) > 1
    kept = {} if none_fits else {model: path for model, path in measured.items() if path.is_file()}
    options.predictors = kept | dict(options.predictors)
    options.log_dir.mkdir(parents=True, exist_ok=True)
    options.results.parent.mkdir(parents=True, exist_ok=True)
    return options
