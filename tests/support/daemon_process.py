"""`pdmuxd serve` as a process on loopback, on free ports."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time

import httpx
import openai
import process_logs
import psutil
import slowed

PATIENCE_S = 60
"""For what must happen, however busy the machine is: a test that waits so long has found a defect."""
START_S = 300
"""For a daemon's start: with SGLang it takes a minute on a machine that does nothing else."""


class Daemon:
    """One `pdmuxd serve --first-run`, from its start to its end."""

    def __init__(self, folder, *, key=None, environ=None, settings=(), descriptors=None, start_s=START_S):
        self.folder = folder
        self._start_s = start_s
        self.log_path = folder / "daemon.log"
        given = ["state_dir=.pdmuxd", "data.port=0", "admin.port=0", *settings]
        flags = [word for setting in given for word in ("--set", setting)]
        self.command = [sys.executable, "-m", "pdmuxd.daemon.cli.main", *flags, "serve", "--first-run"]
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PDMUXD_")}
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                cwd=folder,
                env=kept | (environ or {}),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                preexec_fn=None if descriptors is None else lambda: _allow_descriptors(descriptors),
            )
        for path in (self.log_path, folder / ".pdmuxd" / "engine.log"):
            process_logs.watch(path, lambda: self.is_up)
        slowed.slow("daemon", self.process.pid)
        slowed.slow("engine", self.process.pid)
        slowed.slow("client", os.getpid())
        self.output = self._read_until_ready()
        self.data_url = re.search(r"data plane +(\S+)", self.output)[1]
        self.admin_url = re.search(r"admin plane +(\S+)", self.output)[1]
        self.model = re.search(r"model (\S+)\)", self.output)[1]
        printed = re.search(r"^ +(pdm_\S+)$", self.output, re.MULTILINE)
        self.key = printed[1] if printed else key
        self.curl = re.search(r"^ +(curl .*)$", self.output, re.MULTILINE)[1]

    def _read_until_ready(self):
        lines = []
        too_late = threading.Timer(self._start_s, self.process.kill)
        too_late.start()
        try:
            for line in self.process.stdout:
                lines.append(line)
                if line.lstrip().startswith("curl "):
                    return "".join(lines)
        finally:
            too_late.cancel()
        self.process.kill()
        self.wait()
        raise AssertionError(f"not ready: {''.join(lines)}\n{self.log}")

    @property
    def is_up(self):
        return self.process.poll() is None

    @property
    def log(self):
        return self.log_path.read_text()

    @property
    def token(self):
        return (self.folder / ".pdmuxd" / "admin-token").read_text().strip()

    @property
    def client(self):
        return openai.OpenAI(base_url=f"{self.data_url}/v1", api_key=self.key, max_retries=0)

    def admin(self, method, path, **options):
        headers = {"Authorization": f"Bearer {self.token}"} | options.pop("headers", {})
        return ask(method, self.admin_url + path, headers=headers, **options)

    def probe(self, path):
        """Without a token."""
        return ask("GET", self.admin_url + path)

    def data(self, method, path, **options):
        headers = {"Authorization": f"Bearer {self.key}"}
        return ask(method, self.data_url + path, headers=headers, **options)

    def cpu_s(self):
        """What the daemon has computed so far, without its engine."""
        times = psutil.Process(self.process.pid).cpu_times()
        return times.user + times.system

    def engine(self):
        return self.admin("GET", "/api/v1/engine").json()

    def is_idle(self):
        """Whether the gateway and the engine have nothing in flight."""
        stats = self.engine()["stats"]
        in_flight = self.metric('pdmuxd_requests_in_flight{tenant="default"}')
        return in_flight == 0 and stats is not None and stats["running"] == stats["waiting"] == 0

    def metric(self, line_start):
        for line in self.admin("GET", "/metrics").text.splitlines():
            if line.startswith(line_start):
                return float(line.rpartition(" ")[2])
        return 0.0

    def count_what_ended(self):
        """Until the engine's records of all requests that have ended are counted: they come in order."""
        body = {"model": self.model, "prompt": "the last", "max_tokens": 1}
        rid = self.data("POST", "/v1/completions", json=body).headers["x-request-id"]
        # Its target is known of its record alone.
        record = f"/api/v1/requests/{rid}"
        wait_until(lambda: self.admin("GET", record).json().get("ttft_target_ms") is not None)

    @contextlib.contextmanager
    def stream(self, max_tokens=20_000, **fields):
        """A chat stream that has begun; yields its lines."""
        body = {
            "model": self.model,
            "stream": True,
            "max_tokens": max_tokens,
            "ignore_eos": True,
            "messages": [{"role": "user", "content": "Tell me a long story."}],
            **fields,
        }
        headers = {"Authorization": f"Bearer {self.key}"}
        url = f"{self.data_url}/v1/chat/completions"
        with httpx.stream("POST", url, json=body, headers=headers, timeout=PATIENCE_S) as response:
            assert response.status_code == 200
            lines = response.iter_lines()
            assert next(lines).startswith("data: ")
            yield lines

    def signal(self, number):
        self.process.send_signal(number)

    def wait(self):
        code = self.process.wait(PATIENCE_S)
        self.process.stdout.close()
        return code

    def stop(self):
        if self.is_up:
            self.signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait()
        self.process.kill()
        self.wait()
        raise AssertionError(f"the daemon did not stop\n{self.log}")


class SharedDaemon:
    """One daemon for tests that leave it as it was; where one did not, the next gets another."""

    def __init__(self, begin):
        self._begin = begin
        self._daemon = None

    def get(self):
        if self._daemon is not None and not self._serves():
            with contextlib.suppress(AssertionError):
                self._daemon.stop()
            self._daemon = None
        if self._daemon is None:
            self._daemon = self._begin()
        return self._daemon

    def take(self):
        """The daemon, for a test that ends it."""
        timing, self._daemon = self.get(), None
        return timing

    def close(self):
        if self._daemon is not None:
            assert self._daemon.stop() == 0

    def _serves(self):
        return self._daemon.is_up and self._daemon.probe("/readyz").status_code == 200


def _allow_descriptors(count):
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))


def ask(method, url, **options):
    return httpx.request(method, url, timeout=PATIENCE_S, **options)


def wait_until(condition, *, within_s=PATIENCE_S):
    """Until something that only polling can see has happened; returns the seconds it took."""
    started_s = time.monotonic()
    while not condition():
        assert time.monotonic() - started_s < within_s, "it did not happen"
        time.sleep(0.01)
    return time.monotonic() - started_s


def is_running(pid):
    """Whether a process runs; a zombie does not."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    return False
