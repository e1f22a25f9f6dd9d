from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from pdmuxd.daemon.process.notify import Notifier


class ServiceManager:
    """The receiving end, as systemd has it."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(60)
        self._socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self.address = address

    def next(self) -> list[str]:
        return self._socket.recv(4096).decode().split("\n")

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServiceManager]:
    at_path = request.param == "path"
    manager = ServiceManager(str(tmp_path / "notify") if at_path else f"@pdmuxd-test-{uuid.uuid4().hex}")
    yield manager
    manager.close()


def test_systemd_hears_every_state_when_it_listens(manager: ServiceManager) -> None:
    with Notifier.from_environment({"NOTIFY_SOCKET": manager.address}) as notifier:
        assert notifier.connected
        notifier.ready("serving on 127.0.0.1:8080")
        assert manager.next() == ["READY=1", "STATUS=serving on 127.0.0.1:8080"]
        notifier.ready()
        assert manager.next() == ["READY=1"]
        notifier.watchdog()
        assert manager.next() == ["WATCHDOG=1"]
        notifier.status("3 requests in flight")
        assert manager.next() == ["STATUS=3 requests in flight"]
        notifier.extend_timeout(1.5)
        assert manager.next() == ["EXTEND_TIMEOUT_USEC=1500000"]
        notifier.stopping("draining")
        assert manager.next() == ["STOPPING=1", "STATUS=draining"]
        assert notifier.failed == 0


def test_a_status_cannot_add_an_assignment_when_it_has_several_lines(manager: ServiceManager) -> None:
    with Notifier(manager.address) as notifier:
        notifier.status("a\nMAINPID=1\n")
    assert manager.next() == ["STATUS=a MAINPID=1"]


@pytest.mark.parametrize("environ", [{}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "vsock:2:1234"}])
def test_nothing_happens_when_no_manager_listens(environ: dict[str, str]) -> None:
    with Notifier.from_environment(environ) as notifier:
        assert not notifier.connected
        notifier.ready("x")
        notifier.watchdog()
        notifier.stopping()
        assert (notifier.failed, notifier.watchdog_interval_s) == (0, None)


def test_a_lost_message_is_counted_when_the_socket_is_gone(tmp_path: Path) -> None:
    with Notifier(str(tmp_path / "nobody")) as notifier:
        notifier.ready()
        notifier.watchdog()
        assert notifier.failed == 2


def test_the_loop_is_not_blocked_when_systemd_does_not_read(manager: ServiceManager) -> None:
    with Notifier(manager.address) as notifier:
        for _ in range(100_000):
            notifier.watchdog()
            if notifier.failed:
                break
        assert notifier.failed == 1


def test_nothing_is_sent_when_the_notifier_is_closed(manager: ServiceManager) -> None:
    notifier = Notifier(manager.address)
    notifier.close()
    notifier.close()
    notifier.ready()
    assert not notifier.connected
    assert notifier.failed == 0


@pytest.mark.parametrize(
    ("environ", "interval_s"),
    [
        ({"WATCHDOG_USEC": "30000000"}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_the_watchdog_is_fed_twice_as_often_as_asked_when_it_watches_this_process(
    environ: dict[str, str], interval_s: float | None
) -> None:
    with Notifier.from_environment(environ) as notifier:
        assert notifier.watchdog_interval_s == interval_s
