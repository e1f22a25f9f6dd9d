"""`pdmuxd serve` with both ways of a token, at the client: `bench_token_path.py [--model FOLDER]`.

With a model's folder it is SGLang, on a GPU; without, the emulated engine. Streams that never pause ask
through the gateway, once with `engine.token_path = http` and once with `direct`. The table has what each
process spends on a token, the gaps that the client saw, and the gaps that were late behind the scheduler:
longer than the TBT target at the client, although the engine's own record of that request has them in time.
Nothing else should run on the machine. A way that fails is told, and the other one is measured all the same.

With `--one-daemon` both ways are measured on the same daemon and engine, within seconds of each other, so
that what else the machine does falls on both: with a field that nobody knows a request goes as with `http`.
`--busy N` has N processes beside them that compute all the time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.table import Table

sys.path.insert(1, str(Path(__file__).parent / "front_end"))

from bench_front_end import run_client
from daemon_process import wait_until
from processes import Served, cpu_s, family_cpu_s, served
from stream_client import StreamLoad

READY = "tokens come from the engine's scheduler"
START_S = 1800.0
MOST_REQUESTS = 1000
"""That the daemon lists at once: of more, the newest count."""
WAYS = ("http", "direct")
UNKNOWN_FIELD = {"pdmuxd_no_such_field": None}
"""Sends a request through the engine's front end."""


def measure_pairs(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Both ways with all loads in `--rounds` turns, on one daemon."""
    with served(["engine.token_path=direct", *args.settings], start_s=START_S) as one:
        tbt_ms = ready(one, "direct", args)
        for streams in args.streams:
            for turn in range(args.rounds):
                for token_path in WAYS if turn % 2 == 0 else WAYS[::-1]:
                    extra = UNKNOWN_FIELD if token_path == "http" else {}
                    before = one.daemon.metric("pdmuxd_direct_tokens_total")
                    with busy(args.busy):
                        seen = run(args, one, streams, tbt_ms / 1000.0, extra=extra)
                    came = one.daemon.metric("pdmuxd_direct_tokens_total") - before
                    assert bool(came) == (token_path == "direct"), f"{token_path}: {came} came directly"
                    yield {"token_path": token_path, "streams": streams, "tbt_target_ms": tbt_ms} | seen


@contextlib.contextmanager
def busy(processes: int) -> Iterator[None]:
    """So many processes that want a core each."""
    command = [sys.executable, "-c", "while True: sum(range(10_000))"]
    running = [subprocess.Popen(command) for _ in range(processes)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def ready(one: Served, token_path: str, args: argparse.Namespace) -> float:
    """Wait until tokens come, if they are to; the TBT target, ms."""
    if token_path == "direct":
        wait_until(lambda: READY in one.daemon.log, within_s=args.ready_s)
    return float(one.daemon.admin("GET", "/api/v1/tenants/default/slo").json()["tbt_ms"])


def measure(args: argparse.Namespace, errors: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Both ways with all loads, in `--rounds` turns; what failed is added to `errors`."""
    for turn in range(args.rounds):
        for token_path in WAYS if turn % 2 == 0 else WAYS[::-1]:
            try:
                yield from measure_way(args, token_path)
            except (AssertionError, OSError, ValueError, LookupError, httpx.HTTPError) as error:
                said = f"{type(error).__name__}: {error}"
                errors.append({"token_path": token_path, "turn": turn, "error": said[-5000:]})
                Console(stderr=True, markup=False).print(f"{token_path} failed: {said[-5000:]}")


def measure_way(args: argparse.Namespace, token_path: str) -> Iterator[dict[str, Any]]:
    """All loads, on one daemon."""
    settings = [f"engine.token_path={token_path}", *args.settings]
    with served(settings, start_s=START_S) as one:
        tbt_ms = ready(one, token_path, args)
        for streams in args.streams:
            row = {"token_path": token_path, "streams": streams, "tbt_target_ms": tbt_ms}
            yield row | run(args, one, streams, tbt_ms / 1000.0)


def run(
    args: argparse.Namespace,
    one: Served,
    streams: int,
    tbt_target_s: float,
    *,
    extra: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """One load, with `extra` fields in its requests."""
    load = StreamLoad(
        streams=streams,
        mean_tokens=args.mean_tokens,
        warm_up_s=args.warm_up_s,
        measured_s=args.seconds,
        path=args.path,
        tbt_target_s=tbt_target_s,
    )
    spent: list[tuple[float, float]] = []
    target = one.target | {"extra": dict(extra or {})}
    seen = run_client(
        target, load, lambda: spent.append((cpu_s(one.daemon_pid), family_cpu_s(one.engine_pid)))
    )
    tokens = seen["events_per_s"] * load.measured_s
    for number, role in enumerate(("daemon", "engine")):
        seen[f"{role}_us_per_token"] = 1e6 * (spent[1][number] - spent[0][number]) / max(1.0, tokens)
    wait_until(one.daemon.is_idle)  # the engine has told of all that the client left
    path = f"/api/v1/requests?outcome=finished&limit={MOST_REQUESTS}"
    records = one.daemon.admin("GET", path).json()["requests"]
    seen |= late_behind(seen.pop("by_request"), records)
    for cause in ("unread", "lost", "disconnected", "mismatch"):
        name = f'pdmuxd_direct_fallbacks_total{{cause="{cause}"}}'
        seen[f"fallbacks_{cause}"] = one.daemon.metric(name)
    return seen


def late_behind(
    by_request: Sequence[Sequence[Any]], records: Sequence[Mapping[str, Any]]
) -> dict[str, float | int | None]:
    """Shares of gaps and of requests that were in time at the step and late at the client.

    `by_request`: id, gaps and late gaps at the client; `records`: the daemon's requests, with the engine's
    gaps. Only requests that both know count. None: there is none.
    """
    known = {record["request_id"]: record for record in records if record["tbt_gaps"]}
    gaps = late = late_at_step = requests = late_requests = 0
    for request_id, seen, seen_late in by_request:
        record = known.get(request_id)
        if record is None:
            continue
        missed = record["tbt_gaps"] - record["tbt_gaps_met"]
        behind = max(0, seen_late - missed)
        requests += 1
        gaps += seen
        late += behind
        late_at_step += missed
        late_requests += behind > 0
    return {
        "compared_requests": requests,
        "compared_gaps": gaps,
        "late_at_step_gap_ratio": late_at_step / gaps if gaps else None,
        "late_behind_gap_ratio": late / gaps if gaps else None,
        "late_behind_request_ratio": late_requests / requests if requests else None,
    }


def show(found: list[dict[str, Any]]) -> None:
    """One line for each load and way."""
    columns = ("events_per_s", "daemon_us_per_token", "engine_us_per_token")
    gaps = ("ttft_p50_ms", "gap_p50_ms", "gap_p99_ms", "gap_p999_ms")
    ratios = ("late_behind_gap_ratio", "late_behind_request_ratio")
    table = Table(title="The way of a token, at the client")
    for heading in ("token_path", "streams", *columns, *gaps, *ratios, "failed"):
        name = heading.replace("_ratio", ", %").replace("_", " ")
        table.add_column(name, justify="left" if heading == "token_path" else "right")
    for row in found:
        figures = (f"{row[name]:.1f}" for name in (*columns, *gaps))
        shares = ("" if row[name] is None else f"{100 * row[name]:.2f}" for name in ratios)
        table.add_row(row["token_path"], str(row["streams"]), *figures, *shares, str(row["failed"]))
    Console(width=160).print(table)


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
    parser.add_argument(
        "--ready-s", type=float, default=120.0, help="until tokens come (default: %(default)s)"
    )
    parser.add_argument("--one-daemon", action="store_true", help="both ways by turns on the same daemon")
    parser.add_argument("--busy", type=int, default=0, help="with --one-daemon: processes beside it")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the result there")
    args = parser.parse_args()
    kind = ["engine.kind=emulator"]
    if args.model is not None:
        kind = ["engine.kind=sglang", f"engine.sglang.model={args.model}"]
    args.settings = [*kind, *args.settings]
    found: list[dict[str, Any]] = []
    errors: list[dict[str, Any]] = []
    for row in measure_pairs(args) if args.one_daemon else measure(args, errors):
        Console(stderr=True).print(str(row))
        found.append(row)
        keep(args.json, found, errors)
    keep(args.json, found, errors)
    show(found)
    return 1 if errors else 0


def keep(path: Path | None, found: list[dict[str, Any]], errors: list[dict[str, Any]]) -> None:
    """After each load, so that whatever ends this early loses one at most."""
    if path is not None:
        path.write_text(
            json.dumps({"cpus": os.cpu_count(), "rows": found, "errors": errors}, indent=1) + "\n"
        )


if __name__ == "__main__":
    sys.exit(main())
