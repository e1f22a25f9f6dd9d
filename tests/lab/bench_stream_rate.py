"""How many streams one gateway carries, and what a token costs it; the second part of `make bench-gateway`.

An engine that computes nothing (`front_end/fake_engine.py`) gives each stream a token per step. Arms: the
engine by itself, and the gateway in front of it, whose tokens come through the engine's HTTP server (`http`)
or straight from its scheduler (`direct`). Targets of `direct`: 0.98 of the events that the engine by itself
brings to the client, at most 15 microseconds of CPU a token in the gateway, a p50 TTFT no worse than `http`.
Client, gateway and engine share this machine's cores, so that nothing else should run meanwhile. What the
kernel takes on this machine for a bare write to one of so many connections is told beside it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console
from rich.table import Table

sys.path.insert(1, str(Path(__file__).parent / "front_end"))

from bench_front_end import FOLDER, GATEWAY_KEY, MODEL, gateway, model_folder, run_client
from processes import cpu_s
from stream_client import StreamLoad

ARMS = ("engine", "http", "direct")
LOADS = ((100, 2000), (500, 5000), (500, 10_000), (1000, 8000), (1000, 20_000))
"""Streams at a time, and tokens per second of all."""
TARGET_RATIO = 0.98
TARGET_US_PER_TOKEN = 15.0
TTFT_TOLERANCE_MS = 2.0
START_S = 60.0
EVENT_BYTES = 250
"""About one token's event of a chat, with its frame."""
ROUND_S = 0.05


@contextlib.contextmanager
def fake_engine(step_s: float, tokenizer: Path, tokens: Path | None) -> Iterator[tuple[int, int]]:
    """Its port and its process."""
    command = [sys.executable, str(FOLDER / "fake_engine.py"), str(step_s), str(tokenizer)]
    if tokens is not None:
        command.append(str(tokens))
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline()), process.pid
    finally:
        process.terminate()
        process.communicate()


def run_arm(
    arm: str, streams: int, tokens_per_s: float, folder: Path, args: argparse.Namespace
) -> dict[str, Any]:
    """One load through one arm."""
    tokenizer = folder / "model" / "tokenizer.json"
    tokens = tokenizer.with_name("tokens") if arm == "direct" else None
    with contextlib.ExitStack() as stack:
        port, engine_pid = stack.enter_context(fake_engine(streams / tokens_per_s, tokenizer, tokens))
        target = {"host": "127.0.0.1", "port": port, "key": "none", "model": MODEL, "extra": {}}
        pids = {"engine": engine_pid}
        if arm != "engine":
            words = () if tokens is None else (str(tokens),)
            target["port"], pids["gateway"] = stack.enter_context(gateway(port, *words))
            target["key"] = GATEWAY_KEY
        load = StreamLoad(
            streams=streams, mean_tokens=args.mean_tokens, warm_up_s=args.warm_up_s, measured_s=args.seconds
        )
        spent: list[dict[str, float]] = []
        seen = run_client(
            target, load, lambda: spent.append({role: cpu_s(pid) for role, pid in pids.items()})
        )
    # Every token is an event of its own on all ways.
    tokens_seen = max(1.0, seen["events_per_s"] * args.seconds)
    seen["us_per_token"] = {role: 1e6 * (spent[1][role] - spent[0][role]) / tokens_seen for role in pids}
    seen["us_per_token"]["client"] = 1e6 * seen.pop("client_cpu_s") / tokens_seen
    known: dict[str, Any] = {"bare_write_us": bare_write_us(streams)}
    known |= {"arm": arm, "streams": streams, "wanted_per_s": tokens_per_s, "load_1min": os.getloadavg()[0]}
    return known | seen


def bare_write_us(connections: int, *, rounds: int = 20) -> float:
    """CPU of a write of one event to each of so many connections, which a process of its own reads."""
    with socket.create_server(("127.0.0.1", 0), backlog=4096) as listener:
        address = listener.getsockname()
        reader = os.fork()
        if not reader:
            _read_all(address, connections, rounds * connections * EVENT_BYTES)
        ends = [listener.accept()[0] for _ in range(connections)]
        spent_s = 0.0
        for _ in range(rounds):
            begin_s = time.thread_time()
            for end in ends:
                end.send(b"x" * EVENT_BYTES)
            spent_s += time.thread_time() - begin_s
            time.sleep(ROUND_S)
        os.waitpid(reader, 0)
    for end in ends:
        end.close()
    return 1e6 * spent_s / (rounds * connections)


def _read_all(address: tuple[str, int], connections: int, left: int) -> NoReturn:
    selector = selectors.DefaultSelector()
    for _ in range(connections):
        selector.register(socket.create_connection(address), selectors.EVENT_READ)
    while left > 0:
        for key, _ in selector.select():
            left -= len(os.read(key.fd, 2**16))
    os._exit(0)


def judge(rows: Sequence[dict[str, Any]]) -> None:
    """Write into each row what it is of the engine's own, and whether `direct` meets its targets."""
    by_arm = {row["arm"]: row for row in rows}
    for row in rows:
        if "engine" in by_arm:
            row["ratio"] = row["events_per_s"] / max(1.0, by_arm["engine"]["events_per_s"])
    direct, http = by_arm.get("direct"), by_arm.get("http")
    if direct is not None and http is not None and "ratio" in direct:
        direct["met"] = (
            direct["ratio"] >= TARGET_RATIO
            and direct["us_per_token"]["gateway"] <= TARGET_US_PER_TOKEN
            and direct["ttft_p50_ms"] <= http["ttft_p50_ms"] + TTFT_TOLERANCE_MS
            and not direct["failed"]
        )


def show(found: Sequence[Mapping[str, Any]]) -> None:
    """One line for each arm and load."""
    table = Table(title="Streams through one gateway")
    columns = (
        "streams",
        "wanted/s",
        "events/s",
        "ratio",
        "us/token",
        "TTFT p50",
        "gap p50 / p99, ms",
        "failed",
    )
    for heading in ("arm", *columns, "load", "bare write, us", "met"):
        table.add_column(heading, justify="left" if heading == "arm" else "right")
    for row in found:
        ratio, cost = row.get("ratio"), row["us_per_token"].get("gateway")
        table.add_row(
            row["arm"],
            str(row["streams"]),
            f"{row['wanted_per_s']:.0f}",
            f"{row['events_per_s']:.0f}",
            "" if ratio is None else f"{ratio:.3f}",
            "" if cost is None else f"{cost:.1f}",
            f"{row['ttft_p50_ms']:.1f}",
            f"{row['gap_p50_ms']:.1f} / {row['gap_p99_ms']:.1f}",
            str(row["failed"]),
            f"{row['load_1min']:.1f}",
            f"{row['bare_write_us']:.1f}",
            "" if "met" not in row else "yes" if row["met"] else "no",
        )
    Console(width=130).print(table)


def main() -> int:
    """Read the flags, measure, print; exit code 1 only if `--enforce` and a target is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = [f"{streams}:{rate}" for streams, rate in LOADS]
    parser.add_argument(
        "--loads", nargs="+", default=default, help="STREAMS:TOKENS_PER_S (default: %(default)s)"
    )
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=ARMS, help="(default: all)")
    parser.add_argument("--mean-tokens", type=int, default=200, help="of an answer (default: %(default)s)")
    parser.add_argument("--warm-up-s", type=float, default=4.0, help="(default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=6.0, help="of each arm (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the result there")
    parser.add_argument("--enforce", action="store_true", help="exit with 1 if a target is missed")
    args = parser.parse_args()
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="pdmuxd-bench-") as name:
        folder = Path(name)
        model_folder(folder / "model")
        for load in args.loads:
            streams, _, rate = load.partition(":")
            rows = []
            for arm in args.arms:
                Console(stderr=True).print(f"{streams} streams, {rate} tokens/s: {arm} ...")
                rows.append(run_arm(arm, int(streams), float(rate), folder, args))
                time.sleep(0.5)
            judge(rows)
            found += rows
    show(found)
    if args.json is not None:
        args.json.write_text(json.dumps({"cpus": os.cpu_count(), "rows": found}, indent=1) + "\n")
    return 1 if args.enforce and not all(row.get("met", True) for row in found) else 0


if __name__ == "__main__":
    sys.exit(main())
