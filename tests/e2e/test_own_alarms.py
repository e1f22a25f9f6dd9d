"""Faults of what the daemon stands on: each raises its alarm within 10 s, and it clears by itself."""

from __future__ import annotations

import contextlib
import signal
import sqlite3
import subprocess
import sys
import time

STATE = ".pdmuxd"
RAISED_WITHIN_S = 10.0
BODY = {"prompt": "x", "max_tokens": 3, "ignore_eos": True}


def alarms(daemon):
    return {alarm["kind"] for alarm in daemon.admin("GET", "/api/v1/alarms").json()["active"]}


def status(daemon):
    command = [sys.executable, "-m", "pdmuxd.daemon.cli.main", "--set", f"state_dir={STATE}", "status"]
    return subprocess.run(command, cwd=daemon.folder, capture_output=True, text=True, check=False, timeout=60)


def test_a_database_that_another_holds_is_told_and_what_was_used_is_kept(start, until):
    daemon = start(settings=("state_min_free_bytes=1125899906842624",))
    until(lambda: "disk_low" in alarms(daemon))
    assert daemon.probe("/readyz").status_code == 200
    assert "disk_low" in daemon.probe("/readyz").json()["degraded"]
    with contextlib.closing(
        sqlite3.connect(daemon.folder / STATE / "pdmuxd.db", isolation_level=None)
    ) as other:
        other.execute("BEGIN IMMEDIATE")
        began_s = time.monotonic()
        assert daemon.data("POST", "/v1/completions", json=BODY | {"model": daemon.model}).status_code == 200
        until(lambda: {"database_unwritable", "usage_unsaved"} <= alarms(daemon))
        raised_s = time.monotonic() - began_s
        assert {"database_unwritable", "usage_unsaved"} <= set(daemon.probe("/readyz").json()["degraded"])
        assert daemon.metric('pdmuxd_alarm{kind="database_unwritable",tenant=""}') == 1
        shown = status(daemon)
        assert shown.returncode == 0, shown.stderr
        assert "ALARM database_unwritable (critical)" in shown.stdout
        other.execute("ROLLBACK")
    print(f"raised within {raised_s:.1f} s")
    assert raised_s < RAISED_WITHIN_S
    until(lambda: not {"database_unwritable", "usage_unsaved"} & alarms(daemon))
    with contextlib.closing(sqlite3.connect(daemon.folder / STATE / "pdmuxd.db")) as database:
        assert database.execute("SELECT sum(output_tokens) FROM token_use").fetchone() == (3,)


def test_a_daemon_that_was_stopped_for_seconds_says_that_its_loop_was_late(start, until):
    daemon = start()
    daemon.process.send_signal(signal.SIGSTOP)
    time.sleep(2)
    daemon.process.send_signal(signal.SIGCONT)
    until(lambda: "loop_late" in alarms(daemon))
    assert daemon.metric('pdmuxd_loop_lag_seconds_bucket{le="1.0"}') < daemon.metric(
        "pdmuxd_loop_lag_seconds_count"
    )
