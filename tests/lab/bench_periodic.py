"""What holds the daemon's event loop, and Python's lock, beside tokens: `bench_periodic.py`.

`pdmuxd serve` with its emulated engine serves `--streams` answers at a time, which make `--tokens-per-s`.
Each step of a task, each function of a worker thread and the callback that writes tokens is timed in the
daemon (`front_end/in_each_process/held_by.py`). Each second its decisions are asked for as a console and a
measurement do, and the metrics are scraped each five. Nothing else should run on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

sys.path.insert(1, str(Path(__file__).parent / "front_end"))

from bench_front_end import run_client
from bench_gateway import POLICY, slow_profile
from processes import Served, cpu_s, served
from stream_client import StreamLoad


def ask(one: Served, is_over: threading.Event) -> None:
    """As a console and Prometheus do."""
    seq, turn = 0, 0
    while not is_over.wait(1.0):
        turn += 1
        seen = one.daemon.admin("GET", f"/api/v1/decisions?after_seq={seq}&limit=100").json()
        rows = seen.get("decisions", [])
        seq = max([seq, *(row["seq"] for row in rows)])
        one.daemon.admin("GET", "/api/v1/attainment")
        if turn % 5 == 0:
            one.daemon.admin("GET", "/metrics")


def measure(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """One load; rows by name."""
    here = Path(__file__).parent / "front_end" / "in_each_process"
    os.environ["PYTHONPATH"] = f"{here}:{os.environ.get('PYTHONPATH', '')}"
    os.environ["HELD_BY_FOLDER"] = str(folder)
    profile = slow_profile(folder, args.streams / args.tokens_per_s)
    with served([f"engine.profile={profile}", f"engine.policy={POLICY}", *args.settings]) as one:
        load = StreamLoad(
            streams=args.streams,
            mean_tokens=args.mean_tokens,
            warm_up_s=10.0,
            measured_s=args.seconds,
            path="/v1/chat/completions" if args.chat else "/v1/completions",
        )
        is_over = threading.Event()
        watcher = threading.Thread(target=ask, args=(one, is_over))
        spent: list[float] = []

        def mark() -> None:
            spent.append(cpu_s(one.daemon_pid))
            (folder / ("begin" if len(spent) == 1 else "end")).touch()

        if not args.unwatched:
            watcher.start()
        seen = run_client(one.target, load, mark)
        is_over.set()
    lines = (folder / "held").read_text().splitlines()
    seconds = min(len(lines), int(args.seconds))
    return {
        "seen": {k: v for k, v in seen.items() if isinstance(v, (int, float))},
        "daemon_cpu_ratio": (spent[1] - spent[0]) / args.seconds,
        "load_average": os.getloadavg(),
        "seconds": seconds,
        "held": json.loads(lines[seconds - 1])[1],
    }


def show(found: dict[str, Any]) -> None:
    """A line for each thing that holds, the longest first."""
    table = Table(title=f"{found['seen'].get('events_per_s', 0):.0f} events/s")
    for heading in ("what", "times/s", "ms of CPU/s", "longest CPU, ms", "longest, ms", "over 5 ms of CPU"):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    rows = sorted(found["held"].items(), key=lambda row: -row[1][2])
    for name, (steps, cpu, longest_cpu, longest, over) in rows:
        if longest_cpu < 0.001 and cpu / found["seconds"] < 0.002:
            continue
        per_s = cpu / found["seconds"]
        table.add_row(
            name,
            f"{steps / found['seconds']:.1f}",
            f"{1e3 * per_s:.1f}",
            f"{1e3 * longest_cpu:.1f}",
            f"{1e3 * longest:.1f}",
            str(over),
        )
    Console(width=170).print(table)


def main() -> int:
    """Read the flags, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", type=int, default=150, help="(default: %(default)s)")
    parser.add_argument("--tokens-per-s", type=float, default=5000.0, help="(default: %(default)s)")
    parser.add_argument("--mean-tokens", type=int, default=46, help="of an answer (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=65.0, help="(default: %(default)s)")
    parser.add_argument("--chat", action="store_true", help="/v1/chat/completions")
    parser.add_argument("--unwatched", action="store_true", help="nobody asks the admin plane")
    parser.add_argument("--set", dest="settings", action="append", default=[], help="more settings")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the result there")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pdmuxd-periodic-") as name:
        found = measure(args, Path(name))
    show(found)
    print(json.dumps({k: found[k] for k in ("seen", "daemon_cpu_ratio", "load_average")}))
    if args.json is not None:
        args.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
