"""A hostile network on loopback: what attacks on both ports do to the daemon and to its other clients.

`python tests/lab hostile` starts a daemon of its own on free ports, measures well-behaved clients by
turns alone and beside each attack, and prints the table of docs/measurements/reliability.md. As root it
gives the daemon, its engine and the clients the CPUs before all others (SCHED_RR), and the attackers what
these leave: an attacker elsewhere has none of this machine's. Seeded, bounded in connections, bytes and
time, and nothing leaves loopback: attackers come from 127.0.0.2, clients from 127.0.0.1.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from daemon_process import Daemon
from hostile_network.attackers import ATTACKS, READ, RIVAL, run_attack
from hostile_network.clients import measure
from hostile_network.malformed import send_malformed

HEADS = (
    "attack",
    "requests",
    "failed",
    "TTFT p50 alone",
    "beside it",
    "p99 alone",
    "beside it",
    "more",
    "/healthz p99 ms",
    "failed",
    "peak RSS MiB",
    "sockets",
    "left of the attack",
)
PART_HEADS = (
    *("of first tokens, ms", "in the engine p50", "p99", "at the gateway p50", "p99"),
    *("after the attack's first second: requests", "in the engine p99", "at the gateway p99", "both p99"),
)
BEGINNING = timedelta(seconds=1)
PAUSE_S = 1.0


@dataclass
class Seen:
    """What clients saw of one arm in all rounds, seconds; None for what failed."""

    ttfts: list = field(default_factory=list)
    probes: list = field(default_factory=list)
    peak_mib: float = 0.0
    sockets: int = 0
    left: list = field(default_factory=list)
    parts: list = field(default_factory=list)
    """Of requests, ms: from the arrival at the engine to the first token; what the gateway added between the
    body's arrival and the write to the client; whether it came after the attack's beginning."""

    def cells(self):
        """Requests, failed, TTFT p50, p99, health p99 (ms), failed probes."""
        ttfts, probes = ([each for each in some if each is not None] for some in (self.ttfts, self.probes))
        return (
            len(self.ttfts),
            len(self.ttfts) - len(ttfts),
            statistics.median(ttfts or [float("nan")]) * 1e3,
            _p99(ttfts) * 1e3,
            _p99(probes) * 1e3,
            len(self.probes) - len(probes),
        )


def main():
    """Run what was asked for; 1 if the daemon did not survive it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--connections", type=int, default=3000)
    parser.add_argument("--measured-s", type=float, default=8.0, help="of each phase, alone and beside")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--malformed", type=int, default=10_000, help="on each of the two ports")
    parser.add_argument("--only", choices=(*ATTACKS, "malformed"), action="append")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], help="a setting of the daemon")
    arguments = parser.parse_args()
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(2))
    is_apart = os.sched_getscheduler(0) == os.SCHED_RR
    print(f"daemon, engine and clients have the CPUs before the attackers: {is_apart}")
    gc.disable()
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(Path(folder), settings=("log.level=warning", *arguments.set))
        try:
            _attack_and_measure(daemon, arguments)
        finally:
            begun_s = time.monotonic()
            code = daemon.stop() if daemon.is_up else "dead"
            took_s = time.monotonic() - begun_s
            sys.stderr.write(daemon.log[:4000])
            print(f"\nstopped in {took_s:.1f} s, exit code {code}; {len(daemon.log)} bytes of log")
            print(f"load {os.getloadavg()[0]:.1f}")
    return 0 if code == 0 else 1


def _attack_and_measure(daemon, arguments):
    wanted = arguments.only or (*ATTACKS, "malformed")
    assert daemon.admin("POST", "/api/v1/tenants", json={"name": "mallory", "max_in_flight": 8}).is_success
    key = daemon.admin("POST", "/api/v1/tenants/mallory/keys", json={}).json()["secret"]
    asyncio.run(measure(daemon, 3.0, arguments.seed))
    names = [name for name in ATTACKS if name in wanted]
    # By turns, so that what changes on the machine comes to both.
    alone, beside = {name: Seen() for name in names}, {name: Seen() for name in (*names, READ)}
    for turn in range(arguments.rounds):
        for name in names:
            print(f"round {turn + 1} of {arguments.rounds}: {name}", file=sys.stderr, flush=True)
            seed = arguments.seed * 1000 + turn
            _measure(daemon, arguments, seed, alone[name])
            for arm in (name, READ) if name == RIVAL else (name,):
                _measure(daemon, arguments, seed, beside[arm], (arm, key))
    if names:
        print(f"| {' | '.join(HEADS)} |\n{'|---' * len(HEADS)}|")
    for name in names:
        _tell(name, alone[name], beside[name])
        if name == RIVAL:
            _tell(READ, alone[name], beside[READ])
    _tell_parts({f"{name}, alone": alone[name] for name in names} | beside)
    if "malformed" in wanted:
        _malformed(daemon, arguments)


def _measure(daemon, arguments, seed, seen, attack=None):
    """Add to `seen` what the clients see, alone or while (name, key) of `attack` goes on."""
    _forget_peak(daemon.process.pid)
    attacker = None
    if attack is not None:
        stop, result = multiprocessing.Event(), multiprocessing.Queue()
        port = urlsplit(daemon.data_url).port
        work = (attack[0], port, attack[1], daemon.model, arguments.connections, stop, result)
        attacker = multiprocessing.Process(target=run_attack, args=work)
        attacker.start()
    begun = datetime.now(UTC)
    ttfts, probes = asyncio.run(measure(daemon, arguments.measured_s, seed))
    _add_parts(daemon, seen, begun)
    seen.ttfts += ttfts
    seen.probes += probes
    seen.sockets = max(seen.sockets, _sockets(daemon.process.pid))
    if attacker is not None:
        stop.set()
        seen.left.append(result.get(timeout=120))
        attacker.join()
    seen.peak_mib = max(seen.peak_mib, _memory_mib(daemon.process.pid, "VmHWM"))
    time.sleep(PAUSE_S)


def _add_parts(daemon, seen, begun):
    """Read off the daemon's own records where the time of its clients' first tokens went."""
    found = daemon.admin("GET", "/api/v1/requests?tenant=default&limit=1000").json()["requests"]
    for one in found:
        if one["ttft_ms"] is None or one["delivered_ttft_ms"] is None:
            continue
        if (arrived := datetime.fromisoformat(one["arrived_at"])) >= begun:
            made, whole = one["ttft_ms"], one["delivered_ttft_ms"]
            seen.parts.append((made, whole - made, arrived >= begun + BEGINNING))


def _tell_parts(arms):
    print(f"\n| {' | '.join(PART_HEADS)} |\n{'|---' * len(PART_HEADS)}|")
    for name, seen in arms.items():
        later = [(made, added) for made, added, is_later in seen.parts if is_later]
        if len(later) < 2:
            continue
        by_part = list(zip(*seen.parts, strict=True))[:2]
        shown = [f"{f(of):.1f}" for of in by_part for f in (statistics.median, _p99)]
        p99s = [f"{_p99(of):.1f}" for of in (*zip(*later, strict=True), [sum(each) for each in later])]
        print(f"| {' | '.join((name, *shown, str(len(later)), *p99s))} |", flush=True)


def _malformed(daemon, arguments):
    for plane, url in (("data", daemon.data_url), ("admin", daemon.admin_url)):
        _forget_peak(daemon.process.pid)
        statuses = asyncio.run(
            send_malformed(urlsplit(url).port, arguments.seed, arguments.malformed, daemon.key.encode())
        )
        print(f"malformed, {plane}: {statuses}; peak RSS {_memory_mib(daemon.process.pid, 'VmHWM'):.0f} MiB")
    after = Seen(*asyncio.run(measure(daemon, 5.0, arguments.seed)))
    print(f"after: TTFT p99 {after.cells()[3]:.1f} ms of {len(after.ttfts)} requests")
    secrets = sum(daemon.log.count(secret) for secret in (daemon.token, daemon.key))
    print(f"secrets in the log: {secrets}; RSS {_memory_mib(daemon.process.pid, 'VmRSS'):.0f} MiB")


def _tell(name, alone, beside):
    _, _, p50, p99, _, _ = alone.cells()
    requests, failed, beside_p50, beside_p99, health, failed_probes = beside.cells()
    cells = (
        *(name, requests, failed),
        *(f"{each:.1f}" for each in (p50, beside_p50, p99, beside_p99)),
        f"{(beside_p99 / p99 - 1) * 100:+.0f}%",
        *(f"{health:.1f}", failed_probes),
        *(f"{beside.peak_mib:.0f}", beside.sockets, ", ".join(map(str, beside.left))),
    )
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def _p99(values):
    if len(values) < 2:
        return float("nan")
    return min(max(values), statistics.quantiles(values, n=100)[98])


def _forget_peak(pid):
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def _memory_mib(pid, line):
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition(f"{line}:")[2].split()[0]) / 1024


def _sockets(pid):
    return sum(str(_target(link)).startswith("socket:") for link in Path(f"/proc/{pid}/fd").iterdir())


def _target(link):
    try:
        return link.readlink()
    except FileNotFoundError:
        return ""


if __name__ == "__main__":
    sys.exit(main())
