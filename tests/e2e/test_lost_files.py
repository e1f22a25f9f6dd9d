"""What operators do to files: the write-ahead log of the database is removed while the daemon runs."""

from __future__ import annotations

import subprocess
import sys

import httpx

STATE = ".pdmuxd"


def pdmuxd(daemon, *arguments):
    command = [sys.executable, "-m", "pdmuxd.daemon.cli.main", "--set", f"state_dir={STATE}", *arguments]
    return subprocess.run(command, cwd=daemon.folder, capture_output=True, text=True, check=False, timeout=60)


def test_nothing_is_acknowledged_and_status_says_why_when_the_write_ahead_log_is_removed(start, until):
    daemon = start()
    assert daemon.admin("POST", "/api/v1/tenants", json={"name": "before"}).status_code == 201
    for suffix in ("-wal", "-shm"):
        (daemon.folder / STATE / f"pdmuxd.db{suffix}").unlink()
    refused = daemon.admin("POST", "/api/v1/tenants", json={"name": "lost"})
    assert refused.status_code == 503
    assert "-wal was removed while it is in use" in refused.json()["detail"]
    assert daemon.probe("/readyz").status_code == 503
    until(lambda: "database_lost" in daemon.admin("GET", "/api/v1/alarms").text)
    # What support asks for first needs no database.
    assert daemon.admin("GET", "/api/v1/version").status_code == 200
    shown = pdmuxd(daemon, "status")
    assert shown.returncode == 0, shown.stderr
    assert "pdmuxd.db-wal was removed" in " ".join(shown.stdout.split())
    with daemon.stream(max_tokens=5) as lines:
        assert "data: [DONE]" in list(lines), "requests are served on"
    assert daemon.stop() == 0

    daemon = start(key=daemon.key)
    names = [each["name"] for each in daemon.admin("GET", "/api/v1/tenants").json()]
    assert "before" in names
    assert "lost" not in names
    assert httpx.get(f"{daemon.admin_url}/readyz").status_code == 200
