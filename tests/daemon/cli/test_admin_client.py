"""How the command line finds the daemon, and what it says when that goes wrong."""

from __future__ import annotations

import http.server
import socket
import threading

import pytest
from admin_daemon import AdminDaemon

from pdmuxd.controlplane.services import ControlPlane
from pdmuxd.daemon.cli import admin_client
from pdmuxd.daemon.settings import AdminSection


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
