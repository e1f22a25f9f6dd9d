"""The event stream of a real daemon: cut and resumed, at a high rate, by two kinds of token."""

import contextlib
import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from daemon_process import PATIENCE_S
from steady_load import steady_load

MANY = 500
ENOUGH = 5
"""Statistics after the last answer: a client that missed events does not wait for those."""


class Stream:
    """One connection to the stream; reads events until it is closed."""

    def __init__(self, daemon, *, after=None, types=None, token=None):
        headers = {"Authorization": f"Bearer {token or daemon.token}"}
        if after is not None:
            headers["Last-Event-ID"] = after
        self._stack = contextlib.ExitStack()
        self.response = self._stack.enter_context(
            httpx.stream(
                "GET",
                f"{daemon.admin_url}/api/v1/events",
                params={} if types is None else {"types": types},
                headers=headers,
                timeout=PATIENCE_S,
            )
        )
        self._lines = self.response.iter_lines()

    def __enter__(self):
        return self

    def __exit__(self, *args):
        self._stack.close()

    def __iter__(self):
        fields = {}
        for line in self._lines:
            if not line:
                if "data" in fields:
                    yield fields["event"], fields.get("id"), json.loads(fields["data"])
                fields = {}
            elif not line.startswith(":"):
                name, _, value = line.partition(": ")
                fields[name] = value


def load(daemon):
    return steady_load(daemon.data_url, daemon.key, daemon.model, users=4, prompt_words=20, tokens=60)


def number(event_id):
    return int(event_id.rpartition("-")[2])


def assert_complete(ids, gaps):
    """Everything came once and in order, but for what the client was told that it misses.

    A machine that is busy enough makes any client slow, and slow clients miss frames.
    """
    assert ids == sorted(set(ids))
    told = {n for gap in gaps for n in range(number(gap["from"]), number(gap["to"]) + 1)}
    assert set(range(ids[0], ids[-1])) - set(ids) <= told


def test_nothing_is_lost_or_told_twice_when_the_connection_is_cut_again_and_again(daemon):
    seen, gaps = [], []
    last = None
    with load(daemon):
        for cut in range(6):
            with Stream(daemon, after=last) as stream:
                for name, id_, data in stream:
                    assert name != "bye"
                    if name == "gap":
                        assert data["reason"] == "slow"
                        gaps.append(data)
                    elif id_ is not None:
                        last = id_
                        seen.append(number(id_))
                    if len(seen) >= 40 * (cut + 1):
                        break
    assert_complete(seen, gaps)


def test_what_an_engine_does_is_told_when_it_works(daemon):
    names, requests, splits = set(), [], []
    with load(daemon), Stream(daemon) as stream:
        for name, _, data in stream:
            names.add(name)
            if name == "request" and data["outcome"] == "finished":
                requests.append(data)
            if name == "stats":
                splits.append(data)
            if {"stats", "tenants", "decision", "request"} <= names and len(requests) >= 3:
                break
    assert next(iter(splits))["state"] == "serving"
    life = daemon.admin("GET", f"/api/v1/requests/{requests[0]['request_id']}").json()
    assert life["tenant"] == "default"
    assert [point["what"] for point in life["timeline"]] == [
        "arrived",
        "prefill_started",
        "first_token",
        "ended",
    ]
    assert life["decisions"]["count"] > 0
    tenants = daemon.admin("GET", "/api/v1/attainment").json()["tenants"]
    assert tenants[0]["requests"] >= 3


def test_every_request_is_told_when_as_many_end_as_the_machine_can_serve(daemon):
    """Each is an event of its own; how many there are is up to the machine: 262 a second on two cores."""
    body = {"model": daemon.model, "prompt": [1, 2, 3], "max_tokens": 1}
    headers = {"Authorization": f"Bearer {daemon.key}"}
    stop = threading.Event()
    answered = []

    def work():
        with httpx.Client(headers=headers, timeout=PATIENCE_S) as client:
            while not stop.is_set():
                answer = client.post(f"{daemon.data_url}/v1/completions", json=body)
                answered.append((answer.headers["x-request-id"], answer.status_code))

    ids, gaps, told, after = [], [], set(), 0
    with Stream(daemon) as stream:
        events = iter(stream)
        assert next(events)[0] == "hello"
        with ThreadPoolExecutor(8) as pool:
            working = [pool.submit(work) for _ in range(8)]
            for name, id_, data in events:
                if name == "gap":
                    gaps.append(data)
                if id_ is not None:
                    ids.append(number(id_))
                if name == "request":
                    told.add(data["request_id"])
                    if len(told) == MANY:
                        stop.set()
                if all(each.done() for each in working):
                    after += name == "stats"
                    if told >= {rid for rid, _ in answered} or (gaps and after > ENOUGH):
                        break
        for each in working:
            each.result()
    assert_complete(ids, gaps)
    assert {status for _, status in answered} == {200}


def test_the_readers_token_follows_but_changes_nothing_when_it_is_issued_meanwhile(daemon):
    command = [sys.executable, "-m", "pdmuxd.daemon.cli.main", "--set", "state_dir=.pdmuxd", "token"]

    def run(*words):
        done = subprocess.run(
            [*command, *words], cwd=daemon.folder, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    token = run("issue")
    with Stream(daemon, token=token, types="engine") as stream:
        name, _, data = next(iter(stream))
    assert (name, data["role"]) == ("hello", "reader")
    headers = {"Authorization": f"Bearer {token}"}
    answer = daemon.admin("POST", "/api/v1/engine/restart", headers=headers)
    assert (answer.status_code, answer.json()["type"]) == (403, "urn:pdmuxd:problem:read-only")
    what_if = daemon.admin("POST", "/api/v1/what-if", headers=headers, json={"tbt_ms": 30})
    assert what_if.status_code == 200
    run("revoke")
    assert daemon.admin("GET", "/api/v1/whoami", headers=headers).status_code == 401


@pytest.mark.parametrize("at_once", [False, True])
def test_a_restart_is_told_step_by_step_and_the_next_engine_serves(daemon, until, at_once):
    pid = daemon.engine()["pid"]
    with Stream(daemon, types="engine") as stream:
        events = iter(stream)
        assert next(events)[0] == "hello"
        answer = daemon.admin("POST", "/api/v1/engine/restart", json={"at_once": at_once})
        assert answer.status_code == 202
        states = []
        for _, _, data in events:
            if data["state"] not in states[-1:]:
                states.append(data["state"])
            if states == ["serving"]:  # of before
                states = []
            if states[-1:] == ["serving"]:
                break
    assert states == [*([] if at_once else ["draining"]), "down", "starting", "serving"]
    assert daemon.engine()["pid"] != pid
    until(lambda: daemon.admin("GET", "/readyz").status_code == 200)


def test_a_drained_engine_refuses_until_it_is_resumed(daemon, until):
    until(daemon.is_idle)
    with daemon.stream() as lines:
        assert (
            daemon.admin("POST", "/api/v1/engine/drain")
            .json()["text"]
            .startswith("new requests are refused; 1")
        )
        assert daemon.engine()["held"]
        refused = daemon.data("GET", "/v1/models")
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")
        assert next(line for line in lines if line.startswith("data: "))
        assert daemon.admin("POST", "/api/v1/engine/resume").json()["changed"]
        assert next(line for line in lines if line.startswith("data: "))
    assert daemon.client.models.list()


def test_the_stream_says_goodbye_when_the_daemon_stops(start):
    daemon = start()
    with Stream(daemon) as stream:
        events = iter(stream)
        assert next(events)[0] == "hello"
        daemon.signal(15)
        last = [name for name, _, _ in events][-1]
    assert last == "bye"
    assert daemon.wait() == 0
