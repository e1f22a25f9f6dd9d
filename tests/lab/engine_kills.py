"""How long an engine's end is felt: SIGKILL to the emulated one, again and again, and what takes how long.

    python tests/lab engine-kills [--kills 10] [--every 11]

On a daemon of its own, on loopback. A client asks for one token every 20 ms; the other times come from the
daemon's log, and from the kernel's of when a process began.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import signal
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import httpx
from daemon_process import Daemon

STAGES = ("noticed", "begun", "serves", "first answer")


class Client:
    """Asks without end; `answered_s` are the times of answers, `refused` counts those without one."""

    def __init__(self, daemon):
        self.answered_s, self.refused = [], 0
        self._daemon, self._stop = daemon, threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        body = {"model": self._daemon.model, "prompt": "x", "max_tokens": 1}
        headers = {"Authorization": f"Bearer {self._daemon.key}"}
        with httpx.Client(timeout=60, headers=headers, trust_env=False) as http:
            while not self._stop.wait(0.02):
                answer = http.post(f"{self._daemon.data_url}/v1/completions", json=body)
                if answer.status_code == 200:
                    self.answered_s.append(time.time())
                else:
                    self.refused += 1

    def close(self):
        self._stop.set()
        self._thread.join()


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--every", type=float, default=11.0, help="seconds")
    wanted = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(Path(folder), settings=("log.format=json",))
        client = Client(daemon)
        try:
            for _ in range(wanted.kills):
                time.sleep(wanted.every)
                rows.append(_kill(daemon, client))
                print("  ".join(f"{name} {at_s:.2f} s" for name, at_s in zip(STAGES, rows[-1], strict=True)))
        finally:
            client.close()
            daemon.stop()
    print(f"\n| from SIGKILL until | median s | most s |\n{'|---' * 3}|")
    for name, column in zip(STAGES, zip(*rows, strict=True), strict=True):
        print(f"| {name} | {statistics.median(column):.2f} | {max(column):.2f} |")
    print(f"{client.refused} requests refused; load {os.getloadavg()[0]:.1f}")


def _kill(daemon, client):
    """Seconds from the kill to each stage."""
    old = daemon.engine()["pid"]
    killed_s = time.time()
    os.kill(old, signal.SIGKILL)
    while not (client.answered_s and client.answered_s[-1] > killed_s + 0.05 and _engine(daemon, old)):
        time.sleep(0.02)
    answered_s = next(at_s for at_s in client.answered_s if at_s > killed_s + 0.05)
    logged = [json.loads(line) for line in daemon.log.splitlines() if line.startswith("{")]
    noticed_s = _logged_s(logged, "engine is down")
    serves_s = _logged_s(logged, "engine serves")
    begun_s = _began_s(_engine(daemon, old))
    return [at_s - killed_s for at_s in (noticed_s, begun_s, serves_s, answered_s)]


def _engine(daemon, old):
    """The process that serves now, if it is another one than `old`."""
    engine = daemon.engine()
    return engine["pid"] if engine["state"] == "serving" and engine["pid"] != old else None


def _logged_s(logged, event):
    last = [line for line in logged if line["event"] == event][-1]
    return datetime.datetime.fromisoformat(last["timestamp"]).timestamp()


def _began_s(pid):
    ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    boot_s = int(re.search(r"^btime (\d+)", Path("/proc/stat").read_text(), re.MULTILINE)[1])
    uptime_s = float(Path("/proc/uptime").read_text().split()[0])
    exact_boot_s = time.time() - uptime_s
    assert abs(exact_boot_s - boot_s) < 2
    return exact_boot_s + ticks / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
