"""`pdmuxd support-bundle`: what is in it, and that no secret is."""

from __future__ import annotations

import json
import socket
import stat
import tarfile
from pathlib import Path

import pytest

from pdmuxd.daemon.doctor.support_bundle import LOG_BYTES, REST, tail

SECRETS = {
    "api key": "pdm_ZXhhbXBsZS1rZXktdGhhdC1pcy1sb25nLWVub3VnaA",
    "admin token": "my-own-admin-token-of-32-letters",
    "password": "hunter2-of-the-database",
    "engine key": "engine-key-2f6c9a0b1d3e4f58",
    "of the environment": "hf_abcdefghijklmnop",
    "hash": "ab" * 32,
}


def contents(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        return {
            member.name.partition("/")[2]: archive.extractfile(member).read().decode()  # type: ignore[union-attr]
            for member in archive
        }


@pytest.fixture
def leaky(pdmuxd, monkeypatch):
    """A state directory in whose logs every secret was printed, in several ways."""
    (pdmuxd.state / "admin-token").write_text(SECRETS["admin token"] + "\n")
    monkeypatch.setenv("PDMUXD_DATABASE_URL", f"postgresql://me:{SECRETS['password']}@nowhere.invalid/db")
    monkeypatch.setenv("HF_TOKEN", SECRETS["of the environment"])
    log = [
        f"Authorization: Bearer {SECRETS['api key']}",
        f"ServerArgs(model='x', api_key='{SECRETS['engine key']}', port=1)",
        json.dumps({"admin_token": "something-else-secret", "api_key": SECRETS["engine key"]}),
        *SECRETS.values(),
        "the line that helps",
    ]
    (pdmuxd.state / "engine.log").write_text("\n".join(log).replace(SECRETS["engine key"] + "\n", ""))
    (pdmuxd.state / "engine-hang-1-2.txt").write_text(f"stack with {SECRETS['admin token']}")
    return pdmuxd


def test_no_secret_is_inside(leaky, tmp_path):
    leaky("support-bundle", str(tmp_path / "out.tar.gz"))
    found = contents(tmp_path / "out.tar.gz")
    assert "the line that helps" in found["logs/engine.log"]
    for what, secret in SECRETS.items():
        for name, text in found.items():
            assert secret not in text, f"{what} in {name}"
    assert "something-else-secret" not in found["logs/engine.log"]
    assert "stack with ***" in found["logs/engine-hang-1-2.txt"]


def test_it_holds_versions_settings_and_what_is_missing_when_no_daemon_runs(pdmuxd, tmp_path):
    result = pdmuxd("support-bundle", str(tmp_path / "out.tar.gz"), "--json").json
    found = contents(tmp_path / "out.tar.gz")
    assert json.loads(found["versions.json"])["packages"]["pdmuxd"]
    assert json.loads(found["settings.json"])["state_dir"]["value"] == str(pdmuxd.state)
    assert json.loads(found["doctor.json"])
    assert "no daemon runs" in found["missing.txt"]
    assert "logs/engine.log" in result["missing"]
    assert result["files"] == len(found)


def test_it_holds_what_the_daemon_says(pdmuxd, daemon, tmp_path):
    pdmuxd("support-bundle", str(tmp_path / "out.tar.gz"))
    found = contents(tmp_path / "out.tar.gz")
    missing = found["missing.txt"]
    assert all(f"daemon/{name}.json" in found or f"daemon/{name}.json" in missing for name in REST)
    assert json.loads(found["daemon/engine.json"])["state"] == "serving"


def test_it_is_made_while_the_daemon_hangs(pdmuxd, tmp_path, monkeypatch):
    monkeypatch.setattr("pdmuxd.daemon.cli.admin_client.TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        pdmuxd.port = silent.getsockname()[1]
        pdmuxd("support-bundle", str(tmp_path / "out.tar.gz"))
    assert "does not answer" in contents(tmp_path / "out.tar.gz")["missing.txt"]


def test_only_its_owner_can_read_it_and_nothing_is_overwritten(pdmuxd, tmp_path):
    path = tmp_path / "out.tar.gz"
    pdmuxd("support-bundle", str(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.read_bytes()
    assert "exists" in pdmuxd("support-bundle", str(path), code=2).err
    assert path.read_bytes() == before


def test_the_end_of_a_long_log_begins_with_a_whole_line(tmp_path):
    path = tmp_path / "engine.log"
    path.write_text("".join(f"line {number:09}\n" for number in range(LOG_BYTES // 10)))
    text = tail(path)
    assert len(text) <= LOG_BYTES
    assert text.startswith("line ")
    assert text.endswith(f"line {LOG_BYTES // 10 - 1:09}\n")
