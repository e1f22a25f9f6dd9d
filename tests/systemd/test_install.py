"""What `pdmuxd install-service` writes, and what it leaves alone."""

from __future__ import annotations

import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from pdmuxd.daemon.cli.main import main
from pdmuxd.daemon.serving.first_run import ensure_admin_token
from pdmuxd.daemon.settings import places
from pdmuxd.engine.core.errors import EngineError, SettingsError
from pdmuxd.systemd.install import Wanted, commands_for, files_for, run, write

PROGRAM = "/bin/sh"
"""Something that can be executed: where these tests lie there may be a space in the path."""


def wanted(**changes):
    given = {
        "program": Path(PROGRAM),
        "example": "# all keys\n",
        "data": "0.0.0.0:80",
        "admin": "[::1]:81",
    }
    return Wanted(**given | changes)


def test_a_dry_run_prints_all_files_and_commands_and_writes_none(capsys, tmp_path):
    program = f"--program={PROGRAM}"
    command = ["install-service", "--dry-run", "--sockets", "--credential", program, f"--root={tmp_path}"]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert f"ExecStart={PROGRAM} serve" in shown
    assert "# /etc/systemd/system/pdmuxd-data.socket (mode 0644)" in shown
    assert "LoadCredential=admin-token:/etc/pdmuxd/admin-token" in shown
    assert "(a new token)" in shown
    assert "# systemctl enable pdmuxd-data.socket pdmuxd-admin.socket pdmuxd.service" in shown
    assert list(tmp_path.iterdir()) == []


def test_what_an_administrator_has_changed_is_kept_when_it_is_installed_again(tmp_path):
    made = files_for(wanted(credential=True))
    write(made, tmp_path)
    token = tmp_path / "etc/pdmuxd/admin-token"
    settings = tmp_path / "etc/pdmuxd/pdmuxd.toml"
    unit = tmp_path / "etc/systemd/system/pdmuxd.service"
    first = token.read_text()
    settings.write_text("[data]\nport = 9\n")
    unit.write_text("broken")

    done = write(files_for(wanted(credential=True)), tmp_path)

    assert f"kept     {settings}" in done
    assert (token.read_text(), settings.read_text()) == (first, "[data]\nport = 9\n")
    assert "ExecStart=" in unit.read_text()
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    assert len(first.strip()) >= 32


def test_sockets_have_the_addresses_of_the_settings(tmp_path):
    write(files_for(wanted(sockets=True)), tmp_path)
    units = tmp_path / "etc/systemd/system"
    assert (
        "\nListenStream=0.0.0.0:80\nFileDescriptorName=data\n" in (units / "pdmuxd-data.socket").read_text()
    )
    assert (
        "\nListenStream=[::1]:81\nFileDescriptorName=admin\n" in (units / "pdmuxd-admin.socket").read_text()
    )
    assert "Requires=pdmuxd-data.socket" in (units / "pdmuxd.service.d/sockets.conf").read_text()
    assert not (units / "pdmuxd.service.d/credential.conf").exists()


def test_systemd_says_nothing_about_what_is_installed(tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed")
    write(files_for(wanted(sockets=True, credential=True)), tmp_path)
    units = tmp_path / "etc/systemd/system"
    names = ["pdmuxd.service", "pdmuxd-data.socket", "pdmuxd-admin.socket"]
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *names],
        cwd=units,
        env={"SYSTEMD_UNIT_PATH": f"{units}:", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


@pytest.mark.parametrize("name", ["missing/pdmuxd", "it's/pdmuxd", "back\\slash/pdmuxd", "two\nlines/pdmuxd"])
def test_a_program_that_a_unit_cannot_start_is_refused(tmp_path, name):
    program = tmp_path / name
    if "missing" not in name:
        program.parent.mkdir()
        program.touch(mode=0o700)
    with pytest.raises(SettingsError, match="--program"):
        files_for(wanted(program=program))


def test_a_unit_starts_a_program_whose_path_has_a_space_and_a_percent_sign(tmp_path):
    program = tmp_path / "a folder" / "50%" / "pdmuxd"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o700)
    write(files_for(wanted(program=program)), tmp_path)
    unit = tmp_path / "etc/systemd/system/pdmuxd.service"
    assert f'ExecStart="{tmp_path}/a folder/50%%/pdmuxd" serve' in unit.read_text()
    if shutil.which("systemd-analyze") is not None:
        command = ["systemd-analyze", "verify", "--man=no", "pdmuxd.service"]
        path = {"SYSTEMD_UNIT_PATH": f"{unit.parent}:", "PATH": "/usr/bin:/bin"}
        done = subprocess.run(command, cwd=unit.parent, env=path, capture_output=True, text=True, timeout=60)
        assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "etc").touch()
    with pytest.raises(SettingsError, match=r"cannot write .*pdmuxd\.service: .*is this root"):
        write(files_for(wanted()), tmp_path)


def test_it_is_started_only_when_that_is_asked_for():
    assert commands_for(wanted())[-1] == ("systemctl", "enable", "pdmuxd.service")
    assert "--now" in commands_for(wanted(now=True))[-1]


def test_a_command_that_fails_ends_with_its_last_words():
    with pytest.raises(EngineError, match="ended with 3: no such user"):
        run([sys.executable, "-c", "import sys; sys.stderr.write('no such user'); sys.exit(3)"])


def test_the_token_is_the_services_credential_when_systemd_gives_one(tmp_path, monkeypatch):
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    own = tmp_path / "state" / "admin-token"
    environ = {"CREDENTIALS_DIRECTORY": str(credentials)}
    assert places.default_token_file(own.parent, environ) == own
    shown = credentials / "admin-token"
    shown.write_text("a-credential-of-systemd\n")
    shown.chmod(0o440)
    assert places.default_token_file(own.parent, environ) == shown
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(credentials))
    assert ensure_admin_token(shown) == "a-credential-of-systemd"
    monkeypatch.delenv("CREDENTIALS_DIRECTORY")
    with pytest.raises(SettingsError, match="others may read"):
        ensure_admin_token(shown)
