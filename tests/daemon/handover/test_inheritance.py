"""Sockets that are given to the daemon, by systemd or by the daemon before."""

from __future__ import annotations

import os
import socket

import pytest

from pdmuxd.daemon.handover import inheritance
from pdmuxd.daemon.handover.inheritance import VARIABLE, inherited
from pdmuxd.daemon.serving.servers import adopt
from pdmuxd.engine.core.errors import SettingsError


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


def activation(names, *, pid=None, count=None):
    return {
        "LISTEN_PID": str(pid or os.getpid()),
        "LISTEN_FDS": str(len(names) if count is None else count),
        "LISTEN_FDNAMES": ":".join(names),
    }


def test_nothing_is_inherited_when_nobody_gives_anything():
    given = inherited({})
    assert (given.sockets, given.channel, given.lock) == ({}, None, None)


def test_sockets_of_systemd_are_taken_by_their_names_and_the_variables_go(listener, monkeypatch):
    copies = [os.dup(listener.fileno()) for _ in range(2)]
    if copies[1] != copies[0] + 1:
        pytest.skip("the descriptors are not in a row")
    monkeypatch.setattr(inheritance, "_FIRST_LISTEN_FD", copies[0])
    environ = activation(["admin", "data"])
    given = inherited(environ)
    assert environ == {}
    assert {name: taken.fileno() for name, taken in given.sockets.items()} == {
        "admin": copies[0],
        "data": copies[1],
    }
    assert not any(os.get_inheritable(copy) for copy in copies)
    for taken in given.sockets.values():
        taken.close()


def test_sockets_for_another_process_are_left_alone():
    assert inherited(activation(["data"], pid=1)).sockets == {}


@pytest.mark.parametrize("names", [["http"], []])
def test_a_socket_of_another_name_is_refused(names):
    with pytest.raises(SettingsError, match="allowed are one called data and one called admin"):
        inherited(activation(names, count=1))


def test_a_daemon_before_gives_all_by_number(listener):
    ours, theirs = socket.socketpair()
    numbers = {
        "data": os.dup(listener.fileno()),
        "admin": os.dup(listener.fileno()),
        "lock": os.dup(listener.fileno()),
        "channel": theirs.detach(),
    }
    given = inherited({VARIABLE: ",".join(f"{name}={number}" for name, number in numbers.items())})
    assert given.lock == numbers["lock"]
    assert given.channel is not None
    os.close(given.lock)
    for taken in (*given.sockets.values(), given.channel, ours):
        taken.close()


def test_a_socket_that_does_not_listen_is_refused():
    with socket.socket() as deaf, pytest.raises(SettingsError, match=r"data\.port: .* does not listen"):
        adopt(deaf, "127.0.0.1", 0, section="data", giver="systemd")


def test_a_given_socket_is_used_on_whatever_port_it_listens(listener):
    assert adopt(listener, "127.0.0.1", 1, section="data", giver="systemd") is listener
    assert not listener.getblocking()
