"""Applies configurations until it is killed, again and again: each leaves all of its changes or none.

    python killed_apply.py PATH|URL KILLS

A child applies a configuration of many tenants and says so on a pipe once it was acknowledged; it is killed
meanwhile. Then the database must be whole, with every tenant of one configuration, as the audit has it. It
prints how often that was after the commit; ends with an AssertionError otherwise.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time

from pdmuxd.controlplane.database.opening import open_database
from pdmuxd.controlplane.database.sqlite import sqlite_url
from pdmuxd.controlplane.node.scheduling import Scheduling
from pdmuxd.controlplane.services.config_plan import Config
from pdmuxd.controlplane.services.consistency import require_targets_as_audited
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.tenants.limit_values import Limit
from pdmuxd.controlplane.tenants.records import TenantRecord
from pdmuxd.engine.core.slo import Slo

TENANTS = 200
"""Half of them are of this turn alone, so that each apply creates, changes and deletes."""


MOST_OF_IT = 3.0
"""A kill comes within so many times of what the first apply took: later ones also delete, and are slower."""


def wanted(turn: int) -> Config:
    slo = Slo(ttft_fixed_s=1.0, ttft_per_1k_new_tokens_s=1.0, tbt_s=(turn + 1) / 1000, attainment_ratio=0.99)
    limits = (Limit(name="requests_per_min", value=turn + 1),)
    names = [f"t{n}" for n in range(TENANTS // 2)] + [f"turn{turn}-{n}" for n in range(TENANTS // 2)]
    return Config(
        tenants={
            name: TenantRecord(
                name=name, enabled=True, slo=slo, slo_version=0, max_in_flight=turn + 1, limits=limits
            )
            for name in names
        },
        scheduling=Scheduling(policy="auto" if turn % 2 else "muxwise"),
    )


def kill_one(url: str, turn: int, wait_s: float) -> bool:
    """Start an apply, kill it, and look; whether it had been committed."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            control_plane = ControlPlane(open_database(url))
            os.write(writing, b"begun\n")
            control_plane.configs.apply(wanted(turn), prune=True)
            os.write(writing, b"done\n")
            signal.pause()
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        assert pipe.readline() == b"begun\n"
        time.sleep(wait_s)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        was_acknowledged = pipe.read() == b"done\n"
    engine = open_database(url)
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":  # a server's pages are its own matter, and it was not killed
            assert connection.exec_driver_sql("PRAGMA integrity_check").all() == [("ok",)]
        require_targets_as_audited(connection)
    control_plane = ControlPlane(engine)
    _, found = control_plane.configs.current()
    (entry,) = control_plane.audit(limit=1)
    settings_version = control_plane.snapshot().version
    engine.dispose()
    assert entry.settings_version == settings_version
    limits = {(one.max_in_flight, one.limits, one.slo) for one in found.tenants.values()}
    assert len(limits) == 1, limits
    assert len(found.tenants) == TENANTS
    (in_flight, _, _) = limits.pop()
    now = wanted(in_flight - 1)
    assert found.tenants.keys() == now.tenants.keys()
    assert found.scheduling == now.scheduling
    is_committed = in_flight == turn + 1
    assert is_committed or not was_acknowledged, "an acknowledged configuration is lost"
    return is_committed


def main() -> None:
    """See the top."""
    given, kills = sys.argv[1], int(sys.argv[2])
    seed = int(os.environ.get("SEED", str(time.time_ns() % 10**6)))
    chance = random.Random(seed)
    url = given if "://" in given else sqlite_url(given)
    control_plane = ControlPlane(open_database(url))
    begun_s = time.monotonic()
    control_plane.configs.apply(wanted(0), prune=True)
    takes_s = time.monotonic() - begun_s
    committed = sum(
        kill_one(url, turn, chance.uniform(0, MOST_OF_IT * takes_s)) for turn in range(1, kills + 1)
    )
    print(f"{kills} kills, {committed} after the commit, each all or nothing (seed {seed}, {takes_s:.3f} s)")


if __name__ == "__main__":
    main()
