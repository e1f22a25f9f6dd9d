"""Ten incidents made on purpose, and what the daemon says of each: `python tests/lab incidents`.

On a daemon of its own with the emulated engine, on loopback; in order of arrival, since else a flood harms
itself alone. In each a tenant of its own is hurt while it
asks a few times a second. Told are the cause, whether it is the one that was made, and how long after the
client's last late answer REST says that it is over. REST and /metrics are sampled each half second: they
have to agree.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import httpx
from daemon_process import Daemon

ASK_EVERY_S, CALM_S, HURT_S, PATIENCE_S = 0.25, 3.0, 10.0, 90.0
LONG, SHORT, FLOOD = 20_000, 200, 100
# Gaps may be long: the machine that the client shares is late by itself.
SLO = {"ttft_fixed_ms": 500, "ttft_per_1k_new_tokens_ms": 100, "tbt_ms": 1000, "attainment_ratio": 0.95}


class Tenant:
    """Asks on time until it is closed; keeps when an answer was late, cut or refused."""

    def __init__(self, daemon, name, *, slo=SLO, tokens=SHORT, output=20, **fields):
        self.daemon, self.name, self.slo = daemon, name, slo
        made = daemon.admin("PUT", f"/api/v1/tenants/{name}", json={"max_in_flight": 200} | fields)
        assert made.status_code in (200, 201), made.text
        made = daemon.admin("PUT", f"/api/v1/tenants/{name}/slo?force=true", json=slo)
        assert made.status_code == 200, made.text
        self._key = daemon.admin("POST", f"/api/v1/tenants/{name}/keys", json={"label": "lab"}).json()
        self._body = {"model": daemon.model, "stream": True, "ignore_eos": True}
        self._tokens, self._output = tokens, output
        self.last_bad_s, self.bad, self.asked = None, 0, 0
        self._threads, self._stop = [], threading.Event()

    def ask(self, tokens=None, output=None):
        """One answer, in a thread."""
        thread = threading.Thread(target=self._ask, args=(tokens or self._tokens, output or self._output))
        thread.start()
        self._threads.append(thread)

    def run(self, seconds, every_s=ASK_EVERY_S):
        """Ask for so long."""
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s and not self._stop.wait(every_s):
            self.ask()

    def close(self):
        for thread in self._threads:
            thread.join(timeout=60)

    def _ask(self, tokens, output):
        self.asked += 1
        allowed_s = (self.slo["ttft_fixed_ms"] + self.slo["ttft_per_1k_new_tokens_ms"] * tokens / 1000) / 1000
        body = self._body | {"prompt": f"{self.asked} " + "word " * (tokens - 1), "max_tokens": output}
        headers = {"Authorization": f"Bearer {self._key['secret']}"}
        begun_s = last_s = time.time()
        is_first = True
        try:
            url = f"{self.daemon.data_url}/v1/completions"
            with httpx.stream("POST", url, json=body, headers=headers, timeout=60) as answer:
                if answer.status_code != 200:
                    self._is_bad()
                    return
                for line in answer.iter_lines():
                    now_s = time.time()
                    if not line.startswith("data: "):
                        continue
                    late = allowed_s if is_first else self.slo["tbt_ms"] / 1000
                    if now_s - (begun_s if is_first else last_s) > late or '"error"' in line:
                        self._is_bad()
                    is_first, last_s = False, now_s
        except httpx.HTTPError:
            self._is_bad()

    def _is_bad(self):
        self.bad += 1
        self.last_bad_s = time.time()


def behind_another(daemon, tenant):
    other = Tenant(daemon, f"flood-{tenant.name}")
    for _ in range(FLOOD):
        other.ask(LONG, 4)
    tenant.run(HURT_S)
    other.close()


def behind_itself(daemon, tenant):
    for _ in range(FLOOD):
        tenant.ask(LONG, 4)
    tenant.run(HURT_S)


def limited(daemon, tenant):
    daemon.admin("PATCH", f"/api/v1/tenants/{tenant.name}/limits", json={"requests_per_min": {"value": 5}})
    tenant.run(HURT_S)


def killed(daemon, tenant):
    for _ in range(6):
        tenant.ask(SHORT, 2000)
    tenant.run(2)
    os.kill(daemon.engine()["pid"], signal.SIGKILL)
    tenant.run(4)


def stopped(daemon, tenant):
    pid = daemon.engine()["pid"]
    for _ in range(6):
        tenant.ask(SHORT, 600)
    tenant.run(1.5)
    os.kill(pid, signal.SIGSTOP)
    tenant.run(1.5)
    time.sleep(4.5)
    os.kill(pid, signal.SIGCONT)
    tenant.run(2)


def infeasible(daemon, tenant):
    tenant.run(HURT_S)


def expired(daemon, tenant):
    behind_another(daemon, tenant)


def slow_prefill(daemon, tenant):
    tenant.run(HURT_S, every_s=2.5)


def drained(daemon, tenant):
    daemon.admin("POST", "/api/v1/engine/drain")
    tenant.run(6)
    daemon.admin("POST", "/api/v1/engine/resume")
    tenant.run(2)


def late_host(daemon, tenant):
    for _ in range(6):
        tenant.ask(SHORT, 600)
    tenant.run(1.5)
    for _ in range(4):
        daemon.signal(signal.SIGSTOP)
        time.sleep(0.7)
        daemon.signal(signal.SIGCONT)
        time.sleep(1.0)


TIGHT = SLO | {"ttft_fixed_ms": 30, "ttft_per_1k_new_tokens_ms": 1}
CASES = {
    "another tenant floods": (behind_another, {}, {"queued"}),
    "it floods itself": (behind_itself, {}, {"queued"}),
    "over its own limit": (limited, {}, {"limited"}),
    "the engine is killed": (killed, {}, {"engine_lost"}),
    "the engine stands still": (stopped, {}, {"engine_silent"}),
    "a TBT target that no split meets": (infeasible, {"slo": SLO | {"tbt_ms": 2}}, {"no_split_meets_target"}),
    "it may wait 1.5 s behind a flood": (expired, {"max_wait_ms": 1500}, {"queued", "expired"}),
    "a TTFT target under its prefill": (slow_prefill, {"slo": TIGHT, "tokens": LONG}, {"prefill_slow"}),
    "the engine is drained": (drained, {}, {"refused"}),
    "the daemon is stopped for moments": (
        late_host,
        {"slo": SLO | {"tbt_ms": 300}},
        {"host_late", "loop_late"},
    ),
}


def watch(daemon, tenant, done):
    """Sample REST and metrics until the incident of the tenant is over; (incident, seen over at, samples,
    disagreements)."""
    samples = wrong = 0
    found = over_s = None
    deadline_s = time.monotonic() + PATIENCE_S + HURT_S + 30
    while time.monotonic() < deadline_s and over_s is None:
        try:
            before = told(daemon, tenant.name)
            metrics = daemon.admin("GET", "/metrics").text
            after = told(daemon, tenant.name)
        except (httpx.HTTPError, json.JSONDecodeError):
            continue  # it was stopped on purpose
        lines = [line for line in metrics.splitlines() if line.startswith("pdmuxd_incident{")]
        is_open = any(f'tenant="{tenant.name}"' in line for line in lines)
        samples += 1
        states = {one["state"] if one is not None else None for one in (before, after)}
        wrong += (states == {"open"} and not is_open) or ("open" not in states and is_open)
        found = after or found
        if done.is_set() and after is not None and after["state"] == "over":
            over_s = time.time()
        time.sleep(0.5)
    return found, over_s, samples, wrong


def told(daemon, name):
    found = daemon.admin("GET", f"/api/v1/incidents?tenant={name}").json()["incidents"]
    return found[0] if found else None


def one(daemon, number, name):
    act, fields, expected = CASES[name]
    tenant = Tenant(daemon, f"hurt-{number}", **fields)
    done, seen = threading.Event(), []
    if "slo" not in fields:
        tenant.run(CALM_S)
    watcher = threading.Thread(target=lambda: seen.append(watch(daemon, tenant, done)))
    watcher.start()
    act(daemon, tenant)
    tenant.close()
    done.set()
    watcher.join()
    incident, over_s, samples, wrong = seen[0]
    cause = None if incident is None else incident["cause"]
    last_s = tenant.last_bad_s
    lag = None if over_s is None or last_s is None else round(over_s - last_s, 1)
    verdict = "right" if cause in expected else "not explained" if cause == "unknown" else "wrong"
    if (
        name == "another tenant floods"
        and incident is not None
        and incident["behind"] != f"flood-{tenant.name}"
    ):
        verdict = f"behind {incident['behind']}"
    text = "" if incident is None else incident["text"]
    told_of = (
        name,
        f"{tenant.bad} of {tenant.asked}",
        cause,
        verdict,
        f"{lag} s",
        f"{wrong} of {samples}",
        text,
    )
    print("|", " | ".join(map(str, told_of)), "|", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", choices=list(CASES))
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(Path(folder), settings=("engine.policy=auto:fcfs",))
        print(
            "| incident | late or lost | cause told | which is | over after the last | disagree | in words |"
        )
        print("|---|---|---|---|---|---|---|", flush=True)
        try:
            for number, name in enumerate(CASES):
                if asked.only in (None, name):
                    one(daemon, number, name)
        finally:
            daemon.signal(signal.SIGTERM)
            daemon.wait()


if __name__ == "__main__":
    main()
