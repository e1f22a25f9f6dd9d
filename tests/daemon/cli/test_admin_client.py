"""How the command line finds the daemon, and what it says when that goes wrong."""

from __future__ import annotations

import fcntl
import http.server
import os
import socket
import threading
from pathlib import Path

import pytest
from admin_daemon import AdminDaemon

from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.daemon.cli import admin_client
from pdmuxd.daemon.process import lock
from pdmuxd.daemon.process.lock import exclusive, holder_of
from pdmuxd.daemon.settings import AdminSection

UNUSED_PORT = 1
"""Nothing listens on it: only root may, and it is nobody's."""


def test_the_token_file_is_named_when_the_daemon_refuses_it(pdmuxd, daemon: AdminDaemon) -> None:
    (pdmuxd.state / "admin-token").write_text("wrong")
    err = pdmuxd("tenant", "list", code=1).err
    assert "refuses the token in admin.token_file: this is not the admin token" in err


@pytest.mark.parametrize(
    ("content", "said"), [(None, "No such file"), (b"\xff\xfe", "not ASCII"), (b"a\nb", "not one line")]
)
def test_the_token_file_is_named_when_it_holds_no_token(
    pdmuxd, daemon: AdminDaemon, content: bytes | None, said: str
) -> None:
    path = pdmuxd.state / "admin-token"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    err = pdmuxd("tenant", "list", code=1).err
    assert str(path) in err
    assert said in err


def test_the_setting_is_named_when_something_else_listens(pdmuxd) -> None:
    (pdmuxd.state / "admin-token").write_text("token")
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        pdmuxd.port = server.server_port
        err = pdmuxd("tenant", "list", code=2).err
        server.shutdown()
        thread.join()
    assert "is not pdmuxd's admin address (HTTP 501): see admin.port" in err


def test_the_database_is_left_alone_when_the_daemon_does_not_answer(
    pdmuxd, control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon that hangs is a daemon still: its database is not changed behind its back."""
    monkeypatch.setattr(admin_client, "TIMEOUT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        pdmuxd.port = listener.getsockname()[1]
        err = pdmuxd("tenant", "create", "chat", code=1).err
    assert "accepts but does not answer" in err
    assert control_plane.list_tenants() == []


def test_a_proxy_is_not_asked_when_the_environment_names_one(
    pdmuxd, daemon: AdminDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    assert pdmuxd("tenant", "list").err == ""


def test_the_daemon_is_found_by_its_state_directory_when_it_listens_elsewhere(
    pdmuxd, daemon: AdminDaemon, control_plane: ControlPlane
) -> None:
    pdmuxd.port = UNUSED_PORT
    with exclusive(pdmuxd.state, admin_url=f"http://127.0.0.1:{daemon.port}"):
        assert pdmuxd("tenant", "create", "chat").err == ""
        assert pdmuxd("status", "--json").json["admin"].endswith(f":{daemon.port}")
    assert [entry.who_kind for entry in control_plane.audit()] == ["file-token"]


def test_the_other_state_directory_is_named_when_a_daemon_of_another_one_listens(
    pdmuxd, daemon: AdminDaemon, tmp_path: Path
) -> None:
    other = tmp_path / "another state"
    other.mkdir()
    (pdmuxd.state / "admin-token").unlink()
    with exclusive(other, admin_url=f"http://127.0.0.1:{daemon.port}"):
        for words in (["status"], ["tenant", "list"]):
            err = pdmuxd(*words, code=1).err
            assert f"a pdmuxd answers on http://127.0.0.1:{daemon.port} with another state directory" in err
            assert f"export PDMUXD_STATE_DIR='{other}'" in err
            assert len(err.splitlines()) == 1


@pytest.mark.parametrize("admin_url", [None, f"http://127.0.0.1:{UNUSED_PORT}"])
def test_the_database_is_left_alone_when_a_daemon_holds_it_and_cannot_be_reached(
    pdmuxd, control_plane: ControlPlane, admin_url: str | None
) -> None:
    with exclusive(pdmuxd.state, admin_url=admin_url):
        for words in (["tenant", "create", "chat"], ["status"], ["engine", "drain"]):
            err = pdmuxd(*words, code=1).err
            assert f"process {os.getpid()} holds the state directory {pdmuxd.state}" in err
            assert len(err.splitlines()) == 1
    assert control_plane.list_tenants() == []


def test_what_a_killed_daemon_wrote_is_not_believed_when_nobody_holds_the_lock(
    pdmuxd, control_plane: ControlPlane
) -> None:
    (pdmuxd.state / "lock").write_text("41\nhttp://127.0.0.1:1\nhttp://127.0.0.1:1\n")
    assert "working on the database directly" in pdmuxd("tenant", "create", "chat").err
    assert [tenant.name for tenant in control_plane.list_tenants()] == ["chat"]


def test_a_start_goes_on_when_a_command_looks_at_the_lock_at_that_instant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "lock").open("w") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        monkeypatch.setattr(lock.time, "sleep", lambda _: looking.close())
        with exclusive(tmp_path):
            found = holder_of(tmp_path)
    assert found is not None
    assert found.pid == str(os.getpid())
    assert holder_of(tmp_path) is None


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("127.0.0.1", "http://127.0.0.1:81"),
        ("0.0.0.0", "http://127.0.0.1:81"),
        ("::", "http://[::1]:81"),
        ("::1", "http://[::1]:81"),
        ("localhost", "http://localhost:81"),
    ],
)
def test_an_address_of_this_machine_is_called_when_the_daemon_listens_on_all(host: str, origin: str) -> None:
    assert admin_client.origin_of(AdminSection(host=host, port=81)) == origin
