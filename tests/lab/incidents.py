"""Ten incidents made on purpose, and what the daemon says of each: `python tests/lab incidents`.

On a daemon of its own with an emulated GPU and a model of 34B, so that the device is slow and the host, which
the client shares, has little to do; in order of arrival, since else a flood harms itself alone. In each a
tenant of its own is hurt while it asks a few times a second. Told are the cause, whether it is the one that
was made, and how long after the client's last late answer REST says that it is over. REST and /metrics are
sampled each half second: they have to agree. With `--obey` another tenant floods until the command's effect
is predicted; then it is obeyed, and what the client gets is told beside.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
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
PROFILE = "h200-codellama-34b-measured"
LONG, SHORT, FLOOD = 8000, 200, 25
"""A prompt of 8,000 tokens is computed for about a second: the flood is a queue of half a minute."""
# Gaps may be long: the machine that the client shares is late by itself.
SLO = {"ttft_fixed_ms": 500, "ttft_per_1k_new_tokens_ms": 400, "tbt_ms": 1000, "attainment_ratio": 0.95}


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
        self.firsts = []
        """When it asked, when the first token came or None, and within how many seconds it was due."""
        self._threads, self._stop = [], threading.Event()
        self._client = httpx.Client(timeout=60, limits=httpx.Limits(max_connections=None))

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

    def stop(self):
        """Ask no more."""
        self._stop.set()

    def share(self, since_s):
        """Of the first tokens in time, of what was asked since; None of fewer than ten."""
        now_s = time.time()
        judged = [
            one[1] is not None and one[1] - one[0] <= one[2]
            for one in tuple(self.firsts)
            if one[0] >= since_s and (one[1] is not None or now_s - one[0] > one[2])
        ]
        return sum(judged) / len(judged) if len(judged) >= 10 else None

    def close(self):
        for thread in self._threads:
            thread.join(timeout=60)

    def _ask(self, tokens, output):
        self.asked += 1
        allowed_s = (self.slo["ttft_fixed_ms"] + self.slo["ttft_per_1k_new_tokens_ms"] * tokens / 1000) / 1000
        body = self._body | {"prompt": f"{self.asked} " + "word " * (tokens - 1), "max_tokens": output}
        headers = {"Authorization": f"Bearer {self._key['secret']}"}
        begun_s = last_s = time.time()
        first = [begun_s, None, allowed_s]
        self.firsts.append(first)
        is_first = True
        try:
            url = f"{self.daemon.data_url}/v1/completions"
            with self._client.stream("POST", url, json=body, headers=headers) as answer:
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
                    if is_first:
                        first[1] = now_s
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
    "a TBT target that no split meets": (infeasible, {"slo": SLO | {"tbt_ms": 8}}, {"no_split_meets_target"}),
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


FLOODS = {"8,000 tokens": (0.7, 8000), "4,000 tokens": (0.3, 4000), "12,000 tokens": (1.2, 12_000)}
"""Seconds between two prompts of the other tenant, and their length: each more than the device serves."""
OBEYED_AFTER_S, OBEYED_S = 15.0, 20.0
"""Until what was in the engine before the command is served, and for how long is then measured."""


def obey(daemon, number, name):
    """Do what an incident's command says, and hold what was predicted of it against what the client gets."""
    every_s, tokens = FLOODS[name]
    tenant = Tenant(daemon, f"served-{number}", max_in_flight=400)
    other = Tenant(daemon, f"other-{number}", tokens=tokens, output=4, max_in_flight=400, max_wait_ms=600_000)
    tenant.run(CALM_S)
    flood = threading.Thread(target=other.run, args=(300.0, every_s))
    asking = threading.Thread(target=tenant.run, args=(300.0,))
    flood.start(), asking.start()
    deadline_s = time.monotonic() + 90.0
    incident = None
    while time.monotonic() < deadline_s and not (incident and incident["predicted"]):
        time.sleep(1.0)
        incident = told(daemon, tenant.name)
    before = tenant.share(time.time() - 20.0)
    words, limit = (incident or {}).get("predicted"), re.search(r"concurrency=(\d+)", str(incident))
    after = None
    if words and limit:
        body = {"concurrency": {"value": int(limit[1]), "action": "wait"}}
        done = daemon.admin("PATCH", f"/api/v1/tenants/{other.name}/limits", json=body)
        assert done.status_code == 200, done.text
        time.sleep(OBEYED_AFTER_S)
        since_s = time.time()
        time.sleep(OBEYED_S)
        after = tenant.share(since_s)
    for one in (other, tenant):
        one.stop()
    daemon.admin("DELETE", f"/api/v1/tenants/{other.name}")
    flood.join(), asking.join(), tenant.close()
    command = incident and incident["command"]
    why = words or (incident and incident["not_predicted"])
    print(f"| {name} | {command} | {why} | {_percent(before)} | {_percent(after)} |", flush=True)


def _percent(share):
    return "-" if share is None else f"{share:.1%}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", choices=list(CASES))
    parser.add_argument("--obey", action="store_true", help="do what the commands say, in three floods")
    asked = parser.parse_args()
    with contextlib.suppress(PermissionError):  # before all else that the machine does, as in `hostile`
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(2))
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(Path(folder), settings=("engine.policy=auto:fcfs", f"engine.profile={PROFILE}"))
        if asked.obey:
            print("| flood of | command | predicted | before, measured | after it |")
            print("|---|---|---|---|---|", flush=True)
            try:
                for number, name in enumerate(FLOODS):
                    obey(daemon, number, name)
            finally:
                daemon.signal(signal.SIGTERM)
                daemon.wait()
            return
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
