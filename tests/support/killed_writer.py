"""Writes to a database until it is killed, again and again, and looks each time what is left.

    python killed_writer.py PATH|URL KILLS

A child makes changes as fast as it can and names each on a pipe once it was acknowledged; it is killed after
a random time. Then the database must open, be whole, and hold every change that was named. Prints how many
changes were acknowledged; ends with an AssertionError if one of them is lost.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time

from pdmuxd.controlplane.database.opening import open_database
from pdmuxd.controlplane.database.sqlite import sqlite_url
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.services.store import utc_now
from pdmuxd.controlplane.tenants.limit_values import Limit
from pdmuxd.controlplane.tenants.token_use import WHOLE_TENANT, Tokens, UseOf
from pdmuxd.engine.core.slo import Slo

MOST_S = 0.08
"""After the first acknowledgement: some ten changes."""


def write(url: str, pipe: int, turn: int) -> None:
    """Make changes for ever; a line per change: the turn's tenant, its SLO version and concurrency limit."""
    control_plane = ControlPlane(open_database(url))
    name = f"t{turn}"
    today = utc_now().date()
    control_plane.create_tenant(name)
    number = 1
    os.write(pipe, b"1 0 0\n")
    while True:
        number += 1
        slo = Slo(ttft_fixed_s=1.0, ttft_per_1k_new_tokens_s=1.0, tbt_s=number / 1000, attainment_ratio=0.99)
        control_plane.set_slo(name, slo)
        os.write(pipe, b"%d %d %d\n" % (number, number - 2, number - 2))
        control_plane.limits.change_tenant(name, {"concurrency": Limit(name="concurrency", value=number)})
        os.write(pipe, b"%d %d %d\n" % (number, number, number - 2))
        control_plane.limits.add_use({UseOf(name, WHOLE_TENANT, today): Tokens(output_tokens=1)})
        os.write(pipe, b"%d %d %d\n" % (number, number, number - 1))


def kill_one(url: str, turn: int, wait_s: float) -> int:
    """Start a writer, kill it, and look; how many changes it had acknowledged."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            write(url, writing, turn)
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.readline()
        time.sleep(wait_s)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        lines = [said, *pipe.read().splitlines()]
    slo_version, limit, uses = map(int, lines[-1].split())
    engine = open_database(url)
    if engine.dialect.name == "sqlite":  # a server's pages are its own matter, and it was not killed
        with engine.connect() as connection:
            assert connection.exec_driver_sql("PRAGMA integrity_check").all() == [("ok",)]
    control_plane = ControlPlane(engine)
    tenant = control_plane.get_tenant(f"t{turn}")
    assert tenant.slo_version >= slo_version, (tenant, lines[-1])
    assert [one.value for one in tenant.limits] >= [limit][: 1 if limit > 1 else 0], (tenant, lines[-1])
    used = control_plane.limits.use_since(utc_now().date().replace(day=1))
    assert sum(tokens.output_tokens for use, tokens in used.items() if use.tenant == tenant.name) >= uses
    # Each change has its entry in the audit and its own settings version.
    entries = control_plane.audit(tenant=tenant.name, limit=1000)
    assert len(entries) == tenant.slo_version + sum(entry.action == "limits.set" for entry in entries)
    assert control_plane.snapshot() == control_plane.directory
    engine.dispose()
    return len(lines)


def main() -> None:
    """See the top."""
    given, kills = sys.argv[1], int(sys.argv[2])
    seed = int(os.environ.get("SEED", str(time.time_ns() % 10**6)))
    chance = random.Random(seed)
    url = given if "://" in given else sqlite_url(given)
    acknowledged = sum(
        kill_one(url, turn, chance.uniform(0, MOST_S) * chance.random()) for turn in range(kills)
    )
    print(f"{kills} kills, {acknowledged} acknowledged changes, none lost (seed {seed})")


if __name__ == "__main__":
    main()
