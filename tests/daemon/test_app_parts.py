"""What a start consists of, each part alone."""

import asyncio
import os
import shlex
import signal
import socket

import pytest

from pdmuxd.controlplane.database.opening import open_database, upgrade
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.daemon.process.lock import exclusive
from pdmuxd.daemon.process.signals import stop_requests
from pdmuxd.daemon.serving import first_run
from pdmuxd.daemon.serving.servers import bind, url_of
from pdmuxd.daemon.settings import load_settings
from pdmuxd.engine.core.errors import SettingsError


@pytest.fixture
def loaded(tmp_path):
    return load_settings(None, {"state_dir": str(tmp_path)}, environ={}, search=())


@pytest.fixture
def control_plane(loaded):
    upgrade(loaded.settings.resolved_database_url)
    engine = open_database(loaded.settings.resolved_database_url)
    yield ControlPlane(engine)
    engine.dispose()


def test_the_key_is_printed_once_when_there_is_no_tenant(control_plane, loaded, capsys):
    key = first_run.ensure_tenant(control_plane, loaded)
    assert key in capsys.readouterr().out
    assert control_plane.snapshot().authenticate(key).name == "default"
    assert first_run.ensure_tenant(control_plane, loaded) is None
    out = capsys.readouterr().out
    assert key not in out
    command = shlex.split(out.splitlines()[-1].partition(": ")[2])
    assert command[1:3] == ["--set", f"state_dir={loaded.settings.state_dir}"]
    assert command[3:] == ["tenant", "key", "issue", "default"]


def test_a_key_is_issued_when_an_earlier_first_run_was_killed_before(control_plane, loaded):
    control_plane.create_tenant("default")
    assert first_run.ensure_tenant(control_plane, loaded) is not None


def test_no_tenant_is_made_when_there_are_others(control_plane, loaded, capsys):
    control_plane.create_tenant("chat")
    assert first_run.ensure_tenant(control_plane, loaded) is None
    assert capsys.readouterr().out.rstrip().endswith("tenant key issue chat")
    assert [tenant.name for tenant in control_plane.list_tenants()] == ["chat"]


def test_the_admin_token_is_made_once_and_is_private(tmp_path):
    path = tmp_path / "admin-token"
    token = first_run.ensure_admin_token(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert first_run.ensure_admin_token(path) == token
    assert len(token) >= 43


@pytest.mark.parametrize(
    ("content", "mode", "message"),
    [
        (b"t\n", 0o640, "chmod 600"),
        (b"\n", 0o600, "is empty"),
        (b"\xff\xfe\x00secret", 0o600, "is not ASCII text"),
        (b"\x00\x01" * 20, 0o600, "is not one word"),
        (b"two words of a sentence\n", 0o600, "is not one word"),
        (b"a\n", 0o600, "holds 1 characters.* at least 16"),
    ],
)
def test_a_start_is_refused_when_the_token_file_is_unsafe(tmp_path, content, mode, message):
    path = tmp_path / "admin-token"
    path.write_bytes(content)
    path.chmod(mode)
    with pytest.raises(SettingsError, match=rf"^admin\.token_file: .*{message}") as caught:
        first_run.ensure_admin_token(path)
    assert "secret" not in str(caught.value)


def test_a_start_is_refused_when_the_token_file_cannot_be_made(tmp_path):
    with pytest.raises(SettingsError, match=r"admin\.token_file: cannot create"):
        first_run.ensure_admin_token(tmp_path / "missing" / "admin-token")


def test_a_token_of_the_operators_own_is_taken_when_it_is_long_enough(tmp_path):
    path = tmp_path / "admin-token"
    path.write_text("0123456789abcdef\n")
    path.chmod(0o600)
    assert first_run.ensure_admin_token(path) == "0123456789abcdef"


def test_a_second_daemon_is_refused_when_the_state_is_in_use(tmp_path):
    refused = pytest.raises(SettingsError, match=rf"process {os.getpid()}\)")
    with exclusive(tmp_path), refused, exclusive(tmp_path):
        pass
    with exclusive(tmp_path):
        pass


@pytest.mark.parametrize("section", ["data", "admin"])
def test_the_key_is_named_when_a_port_is_in_use(section):
    with socket.create_server(("127.0.0.1", 0)) as timing:
        port = timing.getsockname()[1]
        said = rf"^{section}\.port: {port} is in use on 127\.0\.0\.1; .* PDMUXD_{section.upper()}__PORT=PORT"
        with pytest.raises(SettingsError, match=said):
            bind("127.0.0.1", port, section=section)


def test_the_key_is_named_when_a_host_is_not_this_machine():
    with pytest.raises(SettingsError, match=r"^data\.host: 192\.0\.2\.1 is no address of this machine"):
        bind("192.0.2.1", 0, section="data")


def test_a_wildcard_address_is_shown_as_one_that_can_be_opened():
    with bind("0.0.0.0", 0, section="data") as listener:
        assert url_of(listener) == f"http://127.0.0.1:{listener.getsockname()[1]}"


async def test_a_second_signal_means_at_once():
    with stop_requests() as requests:
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(60):
            await requests.stop.wait()
        assert not requests.at_once.is_set()
        os.kill(os.getpid(), signal.SIGINT)
        async with asyncio.timeout(60):
            await requests.at_once.wait()
