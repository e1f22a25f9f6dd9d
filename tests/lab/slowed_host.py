"""What a client has of its tokens on a slow host: with writes of several steps at once, and without.

    python tests/lab slowed-host [--loops 2] [--loads 100:2500 200:5000 200:10000] [--tbt-ms 50 100]

An engine that computes nothing (`front_end/fake_engine.py`) makes a token for each stream at each step, in
time; the gateway's tokens come straight from it. Busy loops take the cores meanwhile. Arms by turns: `each`
step written by itself, or several at once, by how much of the target an event may wait. Good is an answer of
which at most 1% of gaps are over the target at the client; by its steps each answer is good. Client and
engine share the slowed cores, and what they lose is in the figures too.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(1, str(Path(__file__).parent / "front_end"))

from bench_front_end import GATEWAY_KEY, MODEL, gateway, model_folder, run_client
from bench_stream_rate import fake_engine
from processes import cpu_s
from stream_client import StreamLoad

from pdmuxd.daemon.tokens.pacing import PATIENCE_RATIO

EACH = "each"
LATE_RATIO = 0.01
"""Of an answer's gaps, that may be late: the rule of the promise."""


@contextlib.contextmanager
def busy_loops(count: int, nice: int) -> Iterator[None]:
    """Processes that want a core each, all the time, at this much less priority."""
    loop = ["nice", "-n", str(nice), sys.executable, "-c", "while True: pass"]
    loops = [subprocess.Popen(loop) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def run_arm(
    arm: str, streams: int, tokens_per_s: float, tbt_s: float, folder: Path, args: argparse.Namespace
) -> dict[str, Any]:
    """One load through the gateway, beside the loops."""
    tokenizer = folder / "model" / "tokenizer.json"
    tokens = tokenizer.with_name("tokens")
    with contextlib.ExitStack() as stack:
        port, _ = stack.enter_context(fake_engine(streams / tokens_per_s, tokenizer, tokens))
        words = (str(tokens), str(tbt_s), *([] if arm == EACH else [arm]))
        port, pid = stack.enter_context(gateway(port, *words))
        stack.enter_context(busy_loops(args.loops, args.nice))
        target = {"host": "127.0.0.1", "port": port, "key": GATEWAY_KEY, "model": MODEL, "extra": {}}
        load = StreamLoad(
            streams=streams,
            mean_tokens=args.mean_tokens,
            warm_up_s=args.warm_up_s,
            measured_s=args.seconds,
            tbt_target_s=tbt_s,
        )
        spent: list[float] = []
        seen = run_client(target, load, lambda: spent.append(cpu_s(pid)))
    answers = [(gaps, late) for _, gaps, late in seen.pop("by_request") if gaps]
    good = sum(late <= LATE_RATIO * gaps for gaps, late in answers)
    known = {"arm": arm, "streams": streams, "wanted_per_s": tokens_per_s, "tbt_ms": 1e3 * tbt_s}
    return known | {
        "load_1min": round(os.getloadavg()[0], 1),
        "good": round(100.0 * good / max(1, len(answers)), 1),
        "events_per_s": round(seen["events_per_s"]),
        "gap_p50_ms": round(seen["gap_p50_ms"], 1),
        "gap_p99_ms": round(seen["gap_p99_ms"], 1),
        "us_per_token": round(1e6 * (spent[1] - spent[0]) / max(1.0, seen["events_per_s"] * args.seconds), 1),
        "failed": seen["failed"],
    }


def main() -> None:
    """Read the flags, measure, print a line for each arm."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--loads", nargs="+", default=["100:2500", "200:5000", "200:10000"], metavar="N:RATE")
    parser.add_argument(
        "--tbt-ms", nargs="+", type=float, default=[50.0, 100.0], help="(default: %(default)s)"
    )
    parser.add_argument(
        "--arms",
        nargs="+",
        default=[EACH, str(PATIENCE_RATIO)],
        help="each, or the share of the target that an event may wait (default: %(default)s)",
    )
    parser.add_argument("--loops", type=int, default=2, help="that are busy meanwhile (default: %(default)s)")
    parser.add_argument("--nice", type=int, default=0, help="of the loops (default: %(default)s)")
    parser.add_argument("--mean-tokens", type=int, default=200, help="of an answer (default: %(default)s)")
    parser.add_argument("--warm-up-s", type=float, default=6.0, help="(default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each arm (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the rows there, a line each")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pdmuxd-slowed-") as name:
        folder = Path(name)
        model_folder(folder / "model")
        for load in args.loads:
            streams, rate = load.split(":")
            for tbt_ms in args.tbt_ms:
                for arm in args.arms:
                    row = run_arm(arm, int(streams), float(rate), tbt_ms / 1e3, folder, args)
                    print(json.dumps(row), flush=True)
                    if args.json is not None:
                        with args.json.open("a") as file:
                            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
