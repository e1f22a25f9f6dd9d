"""A disk without room for the database and the logs: it is told, requests are served, and nothing is lost."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time

import pytest

RAISED_WITHIN_S = 10.0
SIZE = "24m"
BODY = {"prompt": "x", "max_tokens": 3, "ignore_eos": True}


@pytest.fixture
def state_dir(folder):
    """A file system of its own, that is in memory and small."""
    made = folder / ".pdmuxd"
    made.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(made)]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("needs root, and the right to mount")
    yield made
    subprocess.run(["umount", "-l", str(made)], check=True)


def fill(state_dir):
    """Take all room that is left."""
    with (state_dir / "filler").open("ab", buffering=0) as filler:
        for size in (2**20, 4096):
            with contextlib.suppress(OSError):
                while True:
                    filler.write(b"x" * size)
    assert shutil.disk_usage(state_dir).free == 0


def set_prices(daemon, turn):
    """A change that takes some hundred kilobytes; whether it was acknowledged."""
    line = {"tenant": None, "input": str(turn), "cached": "0", "output": "0"}
    lines = [line | {"model": f"{turn}-{number:060}"} for number in range(1000)]
    answer = daemon.admin("PUT", "/api/v1/prices", json={"currency": "EUR", "prices": lines})
    assert answer.status_code in (200, 503), answer.text
    return answer.status_code == 200


def alarms(daemon):
    return {alarm["kind"] for alarm in daemon.admin("GET", "/api/v1/alarms").json()["active"]}


def test_a_full_disk_is_told_and_no_acknowledged_change_is_lost(state_dir, start, until):
    daemon = start(settings=("state_min_free_bytes=2097152",))
    body = BODY | {"model": daemon.model}
    assert set_prices(daemon, 1)
    fill(state_dir)
    began_s = time.monotonic()
    until(lambda: "disk_low" in alarms(daemon))
    low_s = time.monotonic() - began_s
    # What SQLite's log has taken before it may be written again; then there is no room.
    turns = 2
    while set_prices(daemon, turns):
        turns += 1
        assert turns < 500, "the disk was never full"
    refused_s = time.monotonic()
    until(lambda: "database_unwritable" in alarms(daemon))
    raised_s = time.monotonic() - refused_s
    assert daemon.data("POST", "/v1/completions", json=body).status_code == 200
    ready = daemon.probe("/readyz")
    assert ready.status_code == 200
    assert {"database_unwritable", "disk_low"} <= set(ready.json()["degraded"])
    with contextlib.suppress(FileNotFoundError):
        (state_dir / "filler").unlink()
    freed_s = time.monotonic()
    until(lambda: not {"database_unwritable", "disk_low", "usage_unsaved"} & alarms(daemon))
    cleared_s = time.monotonic() - freed_s
    print(
        f"disk_low after {low_s:.1f} s, database_unwritable {raised_s:.1f} s after the first refusal "
        f"({turns - 2} changes were taken), cleared {cleared_s:.1f} s after there was room"
    )
    assert max(low_s, raised_s) < RAISED_WITHIN_S

    def in_ledger():
        return daemon.admin("GET", "/api/v1/ledger").json()["entries"]

    until(lambda: len(in_ledger()) == 1)  # served while nothing could be written
    daemon.process.kill()
    daemon.wait()
    daemon = start(key=daemon.key)
    (name,) = {price["model"].partition("-")[0] for price in prices_of(daemon)}
    assert int(name) == turns - 1, "the last that was acknowledged, and none that was refused"
    assert len(in_ledger()) == 1


def prices_of(daemon):
    return daemon.admin("GET", "/api/v1/prices").json()["prices"]
