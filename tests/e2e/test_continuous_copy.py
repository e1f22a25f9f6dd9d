"""The node is lost with all its files in the middle of writes: what the last copy holds comes back."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time

from daemon_process import Daemon

EVERY_S = 2.0
COPY_S = 8.0
"""A copy with the start of a connection, on a machine that does much else: 0.2 s on a quiet one."""


def test_only_what_was_written_since_the_last_copy_is_lost_with_the_node(start, until, folder, tmp_path):
    daemon = start()
    copy = tmp_path / "copy.db"
    base = [sys.executable, "-m", "pdmuxd.daemon.cli.main", "--set", "state_dir=.pdmuxd", "db"]
    copier = subprocess.Popen([*base, "backup", str(copy), "--every", str(EVERY_S)], cwd=folder)
    try:
        until(copy.exists)
        written = {}
        for number in range(40):
            name = f"tenant-{number}"
            assert daemon.admin("POST", "/api/v1/tenants", json={"name": name}).status_code == 201
            written[name] = time.monotonic()
            time.sleep(0.2)
        daemon.process.send_signal(signal.SIGKILL)
        daemon.wait()
        lost_s = time.monotonic()
        shutil.rmtree(folder / ".pdmuxd")
    finally:
        copier.kill()
        copier.wait()
    done = subprocess.run(
        [*base, "restore", str(copy)], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    again = Daemon(folder, key=daemon.key)
    try:
        found = {tenant["name"] for tenant in again.admin("GET", "/api/v1/tenants?limit=100").json()}
        assert again.data("GET", "/v1/models").status_code == 200, "its key is there"
    finally:
        again.stop()
    lost = [name for name in written if name not in found]
    oldest_s = max((lost_s - written[name] for name in lost), default=0.0)
    print(f"{len(lost)} of {len(written)} lost, the oldest {oldest_s:.1f} s before the end")
    assert len(lost) < len(written), "nothing was copied meanwhile"
    assert oldest_s < EVERY_S + COPY_S
