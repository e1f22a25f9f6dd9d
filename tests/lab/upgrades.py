"""Upgrades of the daemon in mid-load: what clients see. Loopback only.

    python tests/lab upgrades [--upgrades 5] [--clients 16]

Closed-loop clients with kept-alive connections, half of them streaming. Prints a table of requests, failures
and times to the first byte, apart from and during upgrades.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import httpx
from daemon_process import Daemon

TOKENS = 64
_REST_S = 8.0


class Clients:
    """Send until `stop`; `answers` holds (began, first byte, ended, what went wrong or None)."""

    def __init__(self, daemon, count):
        self.answers = []
        self.stop = threading.Event()
        self._daemon = daemon
        self.threads = [threading.Thread(target=self._run, args=(number,)) for number in range(count)]

    def _run(self, number):
        url = f"{self._daemon.data_url}/v1/completions"
        headers = {"Authorization": f"Bearer {self._daemon.key}"}
        body = {
            "model": self._daemon.model,
            "prompt": f"{number} " * 200,
            "max_tokens": TOKENS,
            "ignore_eos": True,
        }
        body["stream"] = bool(number % 2)
        with httpx.Client(timeout=120) as http:
            while not self.stop.is_set():
                self.answers.append(self._ask(http, url, headers, body))

    def _ask(self, http, url, headers, body):
        began_s, first_s, wrong = time.monotonic(), None, None
        try:
            with http.stream("POST", url, headers=headers, json=body) as answer:
                text = ""
                for part in answer.iter_text():
                    first_s = first_s or time.monotonic()
                    text += part
            whole = (
                "[DONE]" in text
                if body["stream"]
                else f'"completion_tokens":{TOKENS}' in text.replace(" ", "")
            )
            if answer.status_code != 200 or not whole:
                wrong = f"{answer.status_code} {text[-200:]}"
        except httpx.HTTPError as error:
            wrong = repr(error)
        return began_s, first_s, time.monotonic(), wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--upgrades", type=int, default=5)
    parser.add_argument("--clients", type=int, default=16)
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(Path(folder))
        engine = daemon.engine()["pid"]
        clients = Clients(daemon, wanted.clients)
        for thread in clients.threads:
            thread.start()
        spans = []
        for _ in range(wanted.upgrades):
            time.sleep(_REST_S)
            began_s = time.monotonic()
            done = subprocess.run(
                [*daemon.command[:-2], "upgrade"], cwd=folder, capture_output=True, text=True
            )
            assert done.returncode == 0, done.stderr
            spans.append((began_s, time.monotonic()))
        time.sleep(_REST_S)
        clients.stop.set()
        for thread in clients.threads:
            thread.join()
        assert daemon.engine()["pid"] == engine
        daemon.stop()
    print_table(clients.answers, spans)


def print_table(answers, spans):
    """One row of what began or ended during an upgrade, one of the others."""
    during = [
        each for each in answers if any(each[0] < end_s and each[2] > begin_s for begin_s, end_s in spans)
    ]
    apart = [each for each in answers if each not in during]
    print("| | requests | failed | first byte of streams p50 ms | p99 ms |\n|---|---|---|---|---|")
    for name, group in (("apart from upgrades", apart), ("in flight during one", during)):
        waits_ms = sorted((first_s - began_s) * 1e3 for began_s, first_s, _, wrong in group if not wrong)
        p99 = statistics.quantiles(waits_ms, n=100)[-1] if len(waits_ms) > 1 else float("nan")
        failed = sum(1 for each in group if each[3])
        print(f"| {name} | {len(group)} | {failed} | {statistics.median(waits_ms):.0f} | {p99:.0f} |")
    print(f"upgrades took {', '.join(f'{end_s - begin_s:.1f}' for begin_s, end_s in spans)} s")
    for each in answers:
        if each[3]:
            print("FAILED:", each[3])


if __name__ == "__main__":
    main()
