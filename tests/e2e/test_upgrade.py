"""A new daemon takes the place of the running one, in mid-load."""

import json
import os
import signal
import subprocess
import threading

import httpx
from daemon_process import wait_until

CLIENTS = 6
TOKENS = 40


class Load:
    """Closed-loop clients with kept-alive connections, half of them streaming; every answer is looked at."""

    def __init__(self, daemon):
        self._daemon = daemon
        self.done = 0
        self.failures = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(CLIENTS)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def wait_for(self, more, until):
        wanted = self.done + more
        until(lambda: self.done >= wanted or self.failures)

    def _run(self, number):
        url = f"{self._daemon.data_url}/v1/completions"
        headers = {"Authorization": f"Bearer {self._daemon.key}"}
        body = {
            "model": self._daemon.model,
            "prompt": f"client {number}",
            "max_tokens": TOKENS,
            "ignore_eos": True,
        }
        with httpx.Client(timeout=60) as http:
            while not self._stop.is_set():
                try:
                    if number % 2:
                        self._stream(http, url, headers, body | {"stream": True})
                    else:
                        answer = http.post(url, headers=headers, json=body)
                        assert answer.status_code == 200, answer.text
                        assert answer.json()["usage"]["completion_tokens"] == TOKENS
                    self.done += 1
                except (httpx.HTTPError, AssertionError) as error:
                    self.failures.append(repr(error))

    def _stream(self, http, url, headers, body):
        with http.stream("POST", url, headers=headers, json=body) as answer:
            text = "".join(answer.iter_text())
        assert answer.status_code == 200, text
        assert text.rstrip().endswith("data: [DONE]"), text[-200:]


def upgrade(daemon, *words):
    command = [*daemon.command[:-2], "upgrade", *words]
    return subprocess.run(command, cwd=daemon.folder, capture_output=True, text=True, timeout=120)


def holder(daemon):
    return int((daemon.folder / ".pdmuxd" / "lock").read_text().split()[0])


def test_no_request_fails_when_the_daemon_is_upgraded_twice_in_mid_load(start, until, running):
    daemon = start()
    engine = daemon.engine()["pid"]
    with Load(daemon) as load:
        load.wait_for(20, until)
        for _ in range(2):
            before = holder(daemon)
            answer = upgrade(daemon)
            assert answer.returncode == 0, answer.stderr + daemon.log
            assert holder(daemon) != before
            load.wait_for(40, until)
    assert load.failures == []
    until(lambda: (now := daemon.engine())["acked_version"] == now["wanted_version"])
    now = daemon.engine()
    assert (now["pid"], now["state"], now["restarts"]) == (engine, "serving", 0)
    assert daemon.stop() == 0
    until(lambda: not running(engine))


def test_a_stream_goes_on_in_the_old_daemon_and_its_engine_outlives_it(start, until, running):
    daemon = start()
    engine = daemon.engine()["pid"]
    with daemon.stream(max_tokens=400, stream_options={"include_usage": True}) as lines:
        assert upgrade(daemon).returncode == 0
        assert daemon.client.completions.create(model=daemon.model, prompt="x", max_tokens=2)
        rest = [line for line in lines if line]
    assert rest[-1] == "data: [DONE]"
    assert json.loads(rest[-2].removeprefix("data: "))["usage"]["completion_tokens"] == 400
    assert running(engine)
    os.kill(holder(daemon), signal.SIGKILL)  # its engine ends with the new owner
    until(lambda: not running(engine))
    assert daemon.wait() == 128 + signal.SIGKILL


def test_nothing_changes_when_the_new_daemon_refuses(start, folder):
    daemon = start()
    (folder / "pdmuxd.toml").write_text("[data]\nmax_in_flight = -1\n")
    before = holder(daemon)
    answer = upgrade(daemon)
    assert answer.returncode != 0
    assert "data.max_in_flight" in answer.stderr + daemon.log
    assert holder(daemon) == before
    assert daemon.probe("/readyz").status_code == 200
    assert daemon.client.completions.create(model=daemon.model, prompt="x", max_tokens=2)


def test_a_reload_names_what_has_changed_and_keeps_the_engine(start, folder):
    daemon = start()
    (folder / "pdmuxd.toml").write_text("[data]\nmax_in_flight = 1\n[engine]\npolicy = 'muxwise'\n")
    command = [*daemon.command[:-2], "reload"]
    shown = subprocess.run(command, cwd=daemon.folder, capture_output=True, text=True, timeout=60).stdout
    assert "data.max_in_flight: in force now" in shown
    assert "engine.policy: in force with the next engine" in shown
    with daemon.stream():
        assert (
            daemon.data("POST", "/v1/completions", json={"model": daemon.model, "prompt": "x"}).status_code
            == 429
        )
    assert daemon.engine()["policy"] == "auto"
    assert daemon.admin("POST", "/api/v1/engine/restart", json={"at_once": True}).is_success
    wait_until(lambda: daemon.engine()["policy"] == "muxwise")
