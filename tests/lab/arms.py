"""`auto` against fixed chunks in the same order, on the device as it is served and on loads not tuned on.

    python tests/lab arms [--load held-chat:186 --tbt-ms 50,75 --policy auto --noise 8,6,0.3
        --seeds 3 --duration-s 180 --device served --out FILE]

Emulated engine, virtual time. A cell is the share of good requests, in brackets of those that arrive in the
second half, and how late first tokens are, p99. `--out` keeps what is done, and a run that is there is not
made again. Target: `auto` at least the best of the others less half a point. Loads are those of
`pdmuxd generate` and `held-chat`, `held-summaries`, `held-documents`, `held-tools`, `held-reasoning`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import mean

import msgspec
from device_noise import noise_of
from rich.console import Console
from rich.table import Table
from served import HELD_OUT, SERVED, Cell, arrivals, cell, device

from pdmuxd.daemon.replay.generate import KINDS
from pdmuxd.engine.core.errors import PdmuxdError

POLICIES = ("auto", *(f"slack/chunked:{tokens}" for tokens in (256, 512, 1024, 2048)))
LOADS = ("held-chat:186", "held-summaries:11", "held-documents:3.4", "held-tools:1.9", "held-reasoning:7")
TBT_MS = (20.0, 50.0, 75.0, 100.0, 200.0)


def shown(cells: Sequence[Cell]) -> str:
    """The mean of the seeds."""
    good, half = mean(c.good for c in cells), mean(c.second_half for c in cells)
    return f"{good:.1f} ({half:.1f}) {mean(c.late_p99_s for c in cells):.1f}s"


def load_of(text: str) -> tuple[str, float]:
    """KIND:RATE."""
    kind, _, rate = text.partition(":")
    known = (*KINDS, *HELD_OUT)
    try:
        if kind in known and 0.0 < float(rate) <= 10_000.0:
            return kind, float(rate)
    except ValueError:
        pass
    message = (
        f"{text!r} is no load; it is KIND:RATE, KIND one of {', '.join(known)}, RATE over 0, at most 10,000"
    )
    raise argparse.ArgumentTypeError(message)


def targets_of(text: str) -> tuple[float, ...]:
    """Milliseconds with commas between them."""
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or not all(1.0 <= target <= 10_000.0 for target in found):
        message = f"{text!r}: TBT targets are from 1 to 10,000 ms, with commas between them"
        raise argparse.ArgumentTypeError(message)
    return found


def main() -> None:
    """Print a row for each load, target and noise; a column for each policy."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--policy", action="append", default=[], help="may be repeated")
    parser.add_argument("--load", type=load_of, action="append", help="KIND:RATE; may be repeated")
    parser.add_argument("--noise", action="append", help="BIAS,SCATTER,STALLS in percent; may be repeated")
    parser.add_argument("--tbt-ms", type=targets_of, default=TBT_MS)
    parser.add_argument("--duration-s", type=float, default=180.0)
    parser.add_argument("--seeds", type=int, choices=range(1, 21), default=1, metavar="1..20")
    parser.add_argument("--device", default=SERVED, help=f"{SERVED}, or a profile of the emulator")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    try:
        profile = device(options.device)
    except PdmuxdError as error:
        parser.error(str(error))
    kept: dict[str, Cell] = {}
    if options.out and options.out.exists():
        kept = msgspec.json.decode(options.out.read_bytes(), type=dict[str, Cell])
    policies = options.policy or list(POLICIES)
    console, table = Console(width=180), Table(title=f"good requests on {profile.name}")
    for column in ("load", "TBT target", "noise", *policies):
        table.add_column(column)
    for kind, rate in options.load or [load_of(text) for text in LOADS]:
        for tbt_ms, name in product(options.tbt_ms, options.noise or ["0,0,0"]):
            row = []
            for policy in policies:
                found = []
                for seed in range(1, options.seeds + 1):
                    title = f"{profile.name} {kind}:{rate:g} {tbt_ms:g} ms {options.duration_s:g} s"
                    key = f"{title} {name} {policy} {seed}"
                    if key not in kept:
                        noise = replace(noise_of(name), seed=seed)
                        load = arrivals(kind, rate, options.duration_s, seed)
                        with console.status(key):
                            kept[key] = cell(policy, load, profile, noise, tbt_ms / 1000.0)
                        if options.out:
                            options.out.write_bytes(msgspec.json.format(msgspec.json.encode(kept)))
                    found.append(kept[key])
                row.append(shown(found))
            table.add_row(f"{kind} {rate:g}/s", f"{tbt_ms:g} ms", name, *row)
    console.print(table)


if __name__ == "__main__":
    main()
