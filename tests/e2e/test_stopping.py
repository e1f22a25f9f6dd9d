"""SIGTERM, once and twice, what systemd hears of it, and a start that is refused."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading

import pytest
from daemon_process import PATIENCE_S


def post(daemon):
    return daemon.data("POST", "/v1/completions")


class ServiceManager:
    """The receiving end of NOTIFY_SOCKET."""

    def __init__(self, address):
        self.environ = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "400000"}
        self.heard = []
        self.watched = threading.Event()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address)
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self):
        while (message := self._socket.recv(4096)) != b"end":
            self.heard += message.decode().splitlines()
            if message == b"WATCHDOG=1" and "READY=1" in self.heard:
                self.watched.set()

    def close(self):
        """Hear what was said until now; no more after that."""
        if self._thread.is_alive():
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
                last.sendto(b"end", self.environ["NOTIFY_SOCKET"])
            self._thread.join()
        self._socket.close()


@pytest.fixture
def manager(tmp_path):
    with contextlib.closing(ServiceManager(str(tmp_path / "notify"))) as made:
        yield made


def test_requests_in_flight_finish_when_the_daemon_drains(start, running, until, manager):
    daemon = start(environ=manager.environ, settings=["drain_timeout_s=600"])
    engine = daemon.engine()["pid"]
    assert manager.watched.wait(PATIENCE_S)
    with daemon.stream(max_tokens=600) as lines:
        os.kill(engine, signal.SIGSTOP)  # or the stream might end before anybody has looked
        daemon.signal(signal.SIGTERM)
        until(lambda: post(daemon).json()["error"]["code"] == "draining")
        until(lambda: daemon.probe("/readyz").json().get("reason") == "the engine is draining")
        os.kill(engine, signal.SIGCONT)
        events = [line for line in lines if line]
    assert events[-1] == "data: [DONE]"
    assert daemon.wait() == 0
    assert not running(engine)

    manager.close()
    assert manager.heard.index("READY=1") < manager.heard.index("STOPPING=1")
    assert f"STATUS=Serving {daemon.model}" in manager.heard
    assert not [line for line in manager.heard if "pdm_" in line]


def test_clients_are_told_when_the_drain_limit_is_over(start, running):
    daemon = start(settings=["drain_timeout_s=0.3"])
    engine = daemon.engine()["pid"]
    with daemon.stream() as lines:
        daemon.signal(signal.SIGTERM)
        events = [line for line in lines if line]
    assert json.loads(events[-1].removeprefix("data: "))["error"]["code"] == "shutting_down"
    assert daemon.wait() == 0
    assert not running(engine)


def test_a_second_signal_stops_at_once(start, running, until):
    daemon = start()
    engine = daemon.engine()["pid"]
    with daemon.stream() as lines:
        daemon.signal(signal.SIGTERM)
        until(lambda: post(daemon).json()["error"]["code"] == "draining")
        daemon.signal(signal.SIGTERM)
        events = [line for line in lines if line]
    assert json.loads(events[-1].removeprefix("data: "))["error"]["code"] == "shutting_down"
    assert daemon.wait() == 1
    assert not running(engine)


def test_nothing_is_started_when_a_port_is_in_use(folder):
    command = [sys.executable, "-m", "pdmuxd.daemon.cli.main", "--set", "state_dir=.pdmuxd", "serve"]
    with socket.create_server(("127.0.0.1", 0)) as timing:
        port = str(timing.getsockname()[1])
        flags = ["--first-run", "--port", "0", "--admin-port", port]
        ended = subprocess.run([*command, *flags], cwd=folder, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert line.startswith(f"error: admin.port: {port} is in use")
    assert ended.stdout == ""
    assert list(folder.iterdir()) == []
