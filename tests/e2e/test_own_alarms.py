"""Faults of what the daemon stands on: each raises its alarm within 10 s, is told, and clears by itself."""

from __future__ import annotations

import contextlib
import signal
import sqlite3
import subprocess
import sys
import time

import pytest
from daemon_process import Daemon, wait_until
from postgres_server import PostgresServer, find_programs

STATE = ".pdmuxd"
RAISED_WITHIN_S = 10.0
BODY = {"prompt": "x", "max_tokens": 3, "ignore_eos": True}
PROGRAMS = find_programs()


def alarms(daemon):
    return {alarm["kind"] for alarm in daemon.admin("GET", "/api/v1/alarms").json()["active"]}


def status(daemon):
    command = [sys.executable, "-m", "pdmuxd.daemon.cli.main", "--set", f"state_dir={STATE}", "status"]
    return subprocess.run(command, cwd=daemon.folder, capture_output=True, text=True, check=False, timeout=60)


def ask(daemon):
    answer = daemon.data("POST", "/v1/completions", json=BODY | {"model": daemon.model})
    assert answer.status_code == 200, "requests are served on"


@contextlib.contextmanager
def held_by_another(daemon):
    database = sqlite3.connect(daemon.folder / STATE / "pdmuxd.db", isolation_level=None)
    with contextlib.closing(database) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


@contextlib.contextmanager
def moved_away(daemon):
    path = daemon.folder / STATE / "pdmuxd.db"
    path.rename(path.with_name("elsewhere.db"))
    try:
        yield
    finally:
        path.with_name("elsewhere.db").rename(path)


@contextlib.contextmanager
def stopped_for_2_s(daemon):
    daemon.process.send_signal(signal.SIGSTOP)
    time.sleep(2)
    daemon.process.send_signal(signal.SIGCONT)
    yield


@contextlib.contextmanager
def server_down(server):
    server.crash()
    try:
        yield
    finally:
        server.start()


@contextlib.contextmanager
def server_hangs(server):
    server.freeze()
    try:
        yield
    finally:
        server.thaw()


def raises_and_clears(daemon, what, fault, *kinds, ready=200):
    """One line of the table."""
    began_s = time.monotonic()
    with fault:
        if ready == 200:
            ask(daemon)
        wait_until(lambda: set(kinds) <= alarms(daemon))
        raised_s = time.monotonic() - began_s
        shown = status(daemon)
        assert shown.returncode == 0, shown.stderr
        assert all(f"ALARM {kind}" in shown.stdout for kind in kinds)
        probe = daemon.probe("/readyz")
        assert probe.status_code == ready
        assert ready == 503 or set(kinds) <= set(probe.json()["degraded"])
        assert all(daemon.metric(f'pdmuxd_alarm{{kind="{kind}",tenant=""}}') == 1 for kind in kinds)
    ended_s = time.monotonic()
    wait_until(lambda: not set(kinds) & alarms(daemon))
    cleared_s = time.monotonic() - ended_s
    print(f"| {what} | `{'`, `'.join(kinds)}` | {raised_s:.1f} | {cleared_s:.1f} | {ready} |")
    assert raised_s < RAISED_WITHIN_S
    assert daemon.probe("/readyz").status_code == 200


def test_faults_of_the_machine_and_of_sqlite_are_told_and_over_when_they_are(start, until):
    daemon = start()
    faults = (
        (
            "another program holds the database",
            held_by_another,
            ("database_unwritable", "usage_unsaved"),
            200,
        ),
        ("`pdmuxd.db` is moved away, and put back", moved_away, ("database_lost",), 503),
        ("the daemon is stopped for 2 s", stopped_for_2_s, ("loop_late",), 200),
    )
    for what, fault, kinds, ready in faults:
        raises_and_clears(daemon, what, fault(daemon), *kinds, ready=ready)
    asked = sum(ready == 200 for *_, ready in faults)

    def stored():
        with contextlib.closing(sqlite3.connect(daemon.folder / STATE / "pdmuxd.db")) as database:
            return database.execute("SELECT sum(output_tokens) FROM token_use").fetchone()[0]

    until(lambda: stored() == 3 * asked)  # what was used while nothing could be written, too
    assert daemon.metric('pdmuxd_loop_lag_seconds_bucket{le="1.0"}') < daemon.metric(
        "pdmuxd_loop_lag_seconds_count"
    )


def test_a_disk_that_fills_is_told(start, until):
    daemon = start(settings=("state_min_free_bytes=1125899906842624",))
    until(lambda: "disk_low" in alarms(daemon))
    assert daemon.probe("/readyz").status_code == 200
    assert "disk_low" in daemon.probe("/readyz").json()["degraded"]
    assert "ALARM disk_low" in status(daemon).stdout


@pytest.mark.skipif(PROGRAMS is None, reason="needs PostgreSQL: apt-get install postgresql")
def test_faults_of_postgresql_are_told_and_over_when_they_are(folder):
    with contextlib.closing(PostgresServer(PROGRAMS)) as server:
        daemon = Daemon(folder, environ={"PDMUXD_DATABASE_URL": server.new_database()})
        try:
            kinds = ("database_unwritable", "usage_unsaved")
            raises_and_clears(daemon, "PostgreSQL is killed, and started again", server_down(server), *kinds)
            raises_and_clears(daemon, "PostgreSQL hangs (SIGSTOP), and goes on", server_hangs(server), *kinds)
        finally:
            daemon.stop()
