"""`pdmuxd serve` with both ways of a token, at the client: `bench_token_path.py [--model FOLDER]`.

With a model's folder it is SGLang, on a GPU; without, the emulated engine. Streams that never pause ask
through the gateway, once with `engine.token_path = http` and once with `direct`. The table has what each
process spends on a token and the gaps that the client saw. Nothing else should run on the machine.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rich.console import Console
from rich.table import Table

sys.path.insert(1, str(Path(__file__).parent / "front_end"))

from bench_front_end import cpu_s, run_client
from stream_client import StreamLoad

READY = "tokens come from the engine's scheduler"
START_S = 1800.0


@contextlib.contextmanager
def daemon(folder: Path, token_path: str, settings: list[str]) -> Iterator[tuple[dict[str, Any], int, int]]:
    """Where requests go, the daemon's process and the engine's."""
    given = [
        f"state_dir={folder / 'state'}",
        "data.port=0",
        "admin.port=0",
        f"engine.token_path={token_path}",
    ]
    flags = [word for each in (*given, *settings) for word in ("--set", each)]
    command = [sys.executable, "-m", "pdmuxd.daemon.cli.main", *flags, "serve", "--first-run"]
    log_path = folder / "daemon.log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout is not None
        output = ""
        for line in process.stdout:
            output += line
            if line.lstrip().startswith("curl "):
                break
        else:
            sys.exit(f"the daemon did not start:\n{log_path.read_text()}")
        end_s = time.monotonic() + START_S
        while token_path == "direct" and READY not in log_path.read_text():
            if time.monotonic() > end_s:
                sys.exit(f"no tokens come from the scheduler:\n{log_path.read_text()[-3000:]}")
            time.sleep(0.2)
        found = re.search(r"data plane +(\S+) .*model (\S+)\)", output)
        key = re.search(r"^ +(pdm_\S+)$", output, re.MULTILINE)
        assert found is not None
        assert key is not None
        url = urlsplit(found[1])
        engine = json.loads((folder / "state" / "engine.json").read_text())["pid"]
        target = {"host": url.hostname, "port": url.port, "key": key[1], "model": found[2], "extra": {}}
        yield target, process.pid, engine
    finally:
        process.terminate()
        process.communicate()


def family_cpu_s(pid: int) -> float:
    """Processor time of a process and of all that came of it."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(folder.name))
    total_s, waiting = 0.0, [pid]
    while waiting:
        member = waiting.pop()
        waiting += children.get(member, ())
        with contextlib.suppress(OSError):
            total_s += cpu_s(member)
    return total_s


def measure(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Both ways with all loads, in `--rounds` turns."""
    for turn in range(args.rounds):
        for token_path in ("http", "direct") if turn % 2 == 0 else ("direct", "http"):
            with (
                tempfile.TemporaryDirectory(prefix="pdmuxd-bench-") as name,
                daemon(Path(name), token_path, args.settings) as (target, daemon_pid, engine_pid),
            ):
                for streams in args.streams:
                    row = {"token_path": token_path, "streams": streams}
                    yield row | run(args, target, streams, daemon_pid, engine_pid)


def run(
    args: argparse.Namespace, target: Mapping[str, Any], streams: int, daemon: int, engine: int
) -> dict[str, Any]:
    """One load."""
    load = StreamLoad(
        streams=streams,
        mean_tokens=args.mean_tokens,
        warm_up_s=args.warm_up_s,
        measured_s=args.seconds,
        path=args.path,
    )
    spent: list[tuple[float, float]] = []
    seen = run_client(target, load, lambda: spent.append((cpu_s(daemon), family_cpu_s(engine))))
    tokens = seen["events_per_s"] * load.measured_s
    for number, role in enumerate(("daemon", "engine")):
        seen[f"{role}_us_per_token"] = 1e6 * (spent[1][number] - spent[0][number]) / max(1.0, tokens)
    return seen


def show(found: list[dict[str, Any]]) -> None:
    """One line for each load and way."""
    columns = ("events_per_s", "daemon_us_per_token", "engine_us_per_token")
    gaps = ("ttft_p50_ms", "gap_p50_ms", "gap_p99_ms", "gap_p999_ms")
    table = Table(title="The way of a token, at the client")
    for heading in ("token_path", "streams", *columns, *gaps, "failed"):
        table.add_column(heading.replace("_", " "), justify="left" if heading == "token_path" else "right")
    for row in found:
        figures = (f"{row[name]:.1f}" for name in (*columns, *gaps))
        table.add_row(row["token_path"], str(row["streams"]), *figures, str(row["failed"]))
    Console(width=140).print(table)


def main() -> int:
    """Read the flags, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, help="of SGLang; without, the emulated engine")
    parser.add_argument("--set", dest="settings", action="append", default=[], help="more settings")
    parser.add_argument("--streams", type=int, nargs="+", default=(64, 128, 256), help="at a time")
    parser.add_argument("--mean-tokens", type=int, default=300, help="of an answer (default: %(default)s)")
    parser.add_argument("--warm-up-s", type=float, default=10.0, help="(default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each load (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=1, help="of both ways (default: %(default)s)")
    parser.add_argument("--path", default="/v1/completions", help="(default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the result there")
    args = parser.parse_args()
    kind = ["engine.kind=emulator"]
    if args.model is not None:
        kind = ["engine.kind=sglang", f"engine.sglang.model={args.model}"]
    args.settings = [*kind, *args.settings]
    found = []
    for row in measure(args):
        Console(stderr=True).print(str(row))
        found.append(row)
    show(found)
    if args.json is not None:
        args.json.write_text(json.dumps({"cpus": os.cpu_count(), "rows": found}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
