"""A hostile network on loopback: what attacks on both ports do to the daemon and to its other clients.

`python tests/bench/hostile.py` starts a daemon of its own on free ports, measures well-behaved clients alone
and beside each attack, and prints the table of docs/reliability.md. Seeded, bounded in connections, bytes and
time, and nothing leaves loopback: attackers come from 127.0.0.2, clients from 127.0.0.1.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import statistics
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from daemon_process import Daemon
from hostile_network.attackers import ATTACKS, run_attack
from hostile_network.clients import measure
from hostile_network.malformed import send_malformed

HEADS = ("attack", "requests", "failed", "TTFT p50 ms", "TTFT p99 ms", "/healthz p99 ms", "failed")
MEMORY_HEADS = ("peak RSS MiB", "sockets", "left of the attack")


def main():
    """Run what was asked for; 1 if the daemon did not survive it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--connections", type=int, default=3000)
    parser.add_argument("--measured-s", type=float, default=15.0)
    parser.add_argument("--malformed", type=int, default=10_000, help="on each of the two ports")
    parser.add_argument("--only", choices=(*ATTACKS, "malformed"), action="append")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], help="a setting of the daemon")
    arguments = parser.parse_args()
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
    return 0 if code == 0 else 1


def _attack_and_measure(daemon, arguments):
    wanted = arguments.only or (*ATTACKS, "malformed")
    assert daemon.admin("POST", "/api/v1/tenants", json={"name": "mallory", "max_in_flight": 8}).is_success
    key = daemon.admin("POST", "/api/v1/tenants/mallory/keys", json={}).json()["secret"]
    print(f"| {' | '.join(HEADS + MEMORY_HEADS)} |\n{'|---' * len(HEADS + MEMORY_HEADS)}|")
    asyncio.run(measure(daemon, 3.0, arguments.seed))
    _forget_peak(daemon.process.pid)
    _tell("none", asyncio.run(measure(daemon, arguments.measured_s, arguments.seed)), daemon, 0)
    for name in ATTACKS:
        if name in wanted:
            _colocated(name, daemon, key, arguments)
    if "malformed" in wanted:
        _malformed(daemon, arguments)


def _colocated(name, daemon, key, arguments):
    """Measure the clients while `name` goes on."""
    stop, result = multiprocessing.Event(), multiprocessing.Queue()
    port = urlsplit(daemon.data_url).port
    attacker = multiprocessing.Process(
        target=run_attack, args=(name, port, key, daemon.model, arguments.connections, stop, result)
    )
    _forget_peak(daemon.process.pid)
    attacker.start()
    time.sleep(1.0)
    seen = asyncio.run(measure(daemon, arguments.measured_s, arguments.seed))
    sockets = _sockets(daemon.process.pid)
    stop.set()
    left = result.get(timeout=120)
    attacker.join()
    _tell(name, seen, daemon, sockets, left)
    time.sleep(1.0)


def _malformed(daemon, arguments):
    for plane, url in (("data", daemon.data_url), ("admin", daemon.admin_url)):
        _forget_peak(daemon.process.pid)
        statuses = asyncio.run(
            send_malformed(urlsplit(url).port, arguments.seed, arguments.malformed, daemon.key.encode())
        )
        print(f"malformed, {plane}: {statuses}; peak RSS {_memory_mib(daemon.process.pid, 'VmHWM'):.0f} MiB")
    _tell("none, after", asyncio.run(measure(daemon, 5.0, arguments.seed)), daemon, 0)
    secrets = sum(daemon.log.count(secret) for secret in (daemon.token, daemon.key))
    print(f"secrets in the log: {secrets}; RSS {_memory_mib(daemon.process.pid, 'VmRSS'):.0f} MiB")


def _tell(name, seen, daemon, sockets, left=""):
    ttfts, probes = ([value for value in values if value is not None] for values in seen)
    failed, failed_probes = (sum(value is None for value in values) for values in seen)
    cells = (
        name,
        len(seen[0]),
        failed,
        f"{statistics.median(ttfts or [float('nan')]) * 1e3:.0f}",
        f"{_p99(ttfts) * 1e3:.0f}",
        f"{_p99(probes) * 1e3:.0f}",
        failed_probes,
        f"{_memory_mib(daemon.process.pid, 'VmHWM'):.0f}",
        sockets,
        left,
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
