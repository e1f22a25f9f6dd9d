"""The wall clock is set while a whole daemon serves: libfaketime sets that of its processes."""

import contextlib
import sqlite3
from pathlib import Path

import pytest
from daemon_process import ask

LIBRARY = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
pytestmark = pytest.mark.skipif(LIBRARY is None, reason="needs libfaketime: apt-get install libfaketime")

HOUR_S = 3600


class WallClock:
    """What the daemon and its engine take for the time of day; clocks that measure durations go on."""

    def __init__(self, path):
        self._path = path
        self.environ = {
            "LD_PRELOAD": str(LIBRARY),
            "FAKETIME_TIMESTAMP_FILE": str(path),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        self.set(0)

    def set(self, offset_s):
        whole = self._path.with_suffix(".new")
        whole.write_text(f"{offset_s:+d}\n")
        whole.replace(self._path)


def stored(daemon, query):
    with contextlib.closing(sqlite3.connect(daemon.folder / ".pdmuxd" / "pdmuxd.db")) as database:
        return database.execute(query).fetchone()[0] or 0


def test_it_serves_and_counts_when_the_clock_is_set_by_hours(start, until, folder):
    clock = WallClock(folder / "clock")
    daemon = start(environ=clock.environ)
    engine = daemon.engine()["pid"]
    key = daemon.admin("POST", "/api/v1/tenants/default/keys", json={"lifetime_s": HOUR_S}).json()["secret"]
    body = {"model": daemon.model, "prompt": "x", "max_tokens": 3, "ignore_eos": True}
    for served, offset_s in enumerate((0, 2 * HOUR_S, -HOUR_S, 0), start=1):
        clock.set(offset_s)
        assert daemon.data("POST", "/v1/completions", json=body).status_code == 200
        # A key ends by the wall clock: too early or too late for as long as that is wrong.
        headers = {"Authorization": f"Bearer {key}"}
        models = ask("GET", f"{daemon.data_url}/v1/models", headers=headers)
        assert models.status_code == (401 if offset_s > HOUR_S else 200)
        # What is done from time to time goes on.
        until(lambda so_far=3 * served: stored(daemon, "SELECT sum(output_tokens) FROM token_use") == so_far)
        if offset_s > 0:
            until(lambda: "the wall clock was set" in daemon.log)
    assert daemon.probe("/readyz").status_code == 200
    assert (daemon.engine()["pid"], daemon.engine()["restarts"]) == (engine, 0)
    active = daemon.admin("GET", "/api/v1/alarms").json()["active"]
    assert {alarm["kind"] for alarm in active} <= {"clock_jumped", "loop_late"}  # where the machine is busy
    assert daemon.stop() == 0
    counted = "SELECT sum(arrivals) FROM history JOIN history_series ON id = series_id WHERE step_s = {}"
    of_default = counted + " AND tenant = 'default'"
    assert [stored(daemon, of_default.format(step_s)) for step_s in (60, 3600, 86_400)] == [4, 4, 4]
