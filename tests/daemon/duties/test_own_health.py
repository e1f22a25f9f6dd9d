"""What the daemon finds wrong with itself, and that it finds nothing once that is over."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry
from stores import new_database, opened

from pdmuxd.controlplane.database import sqlite
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.tenants.token_use import WHOLE_TENANT, Tokens, UseOf
from pdmuxd.daemon.duties import store_watch
from pdmuxd.daemon.duties.host_load import HostLoad, HostReading, read_host
from pdmuxd.daemon.duties.loop_lag import LATE_S, WINDOW_S, LoopLag
from pdmuxd.daemon.duties.own_health import DEGRADED, UNSAVED_AFTER_S, OwnHealth
from pdmuxd.daemon.duties.store_watch import SILENT_AFTER_S, StoreWatch
from pdmuxd.daemon.duties.token_use import UseKeeper
from pdmuxd.daemon.duties.unsaved import Unsaved
from pdmuxd.daemon.gateway.limits.limiter import Limiter
from pdmuxd.daemon.metrics.definitions import histogram
from pdmuxd.daemon.process.clock import JUMP_TOLD_S, TRUSTED_WITHIN_S, ClockWatch
from pdmuxd.daemon.process.cpu_quota import quota_cores
from pdmuxd.daemon.tokens.pacing import MOST_STEPS, Pace
from pdmuxd.engine.core.errors import StoreError


class Rig:
    """All that is asked, each part with a clock that the test moves."""

    def __init__(self, control_plane: ControlPlane, state_dir: Path) -> None:
        self.now_s, self.wall_s = 1000.0, 1_000_000.0
        self.lost: str | None = None
        self.limiter = Limiter()
        self.limiter.use_tenants(control_plane.directory.tenants)
        self.lag = LoopLag(histogram("pdmuxd_loop_lag_seconds", CollectorRegistry()), self.clock)
        self.pace = Pace()
        self.readings = [HostReading()]
        self.host = HostLoad(self.pace, read=lambda: self.readings[-1], clock=self.clock)
        self.store = StoreWatch(control_plane.store.beat, state_dir, self.clock)
        self.use = UseKeeper(self.limiter, control_plane)
        self.jumps = ClockWatch(wall=lambda: self.wall_s, monotonic=self.clock)
        self.health = OwnHealth(
            lost_because=lambda: self.lost,
            store=self.store,
            lag=self.lag,
            host=self.host,
            clock=self.jumps,
            use=self.use.unsaved,
            history=Unsaved(),
            min_free_bytes=1000,
        )

    def clock(self) -> float:
        return self.now_s

    def passes(self, seconds: float, *, set_by_s: float = 0.0) -> None:
        self.now_s += seconds
        self.wall_s += seconds + set_by_s

    @property
    def kinds(self) -> list[str]:
        return [condition.kind for condition in self.health.conditions()]

    @property
    def text(self) -> str:
        (condition,) = self.health.conditions()
        return condition.text


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_S", 0.05)
    new_database(tmp_path)
    (path,) = tmp_path.glob("*.db")
    return path


@pytest.fixture
def store_with_chat(database: Path) -> Iterator[ControlPlane]:
    with opened(sqlite.sqlite_url(database)) as control_plane:
        control_plane.create_tenant("chat")
        yield control_plane


@pytest.fixture
def rig(store_with_chat: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    rig = Rig(store_with_chat, tmp_path)
    monkeypatch.setattr("time.monotonic", rig.clock)
    yield rig
    rig.store.close()


def test_nothing_is_wrong_when_all_is_well(rig: Rig) -> None:
    asyncio.run(rig.store.look())
    assert rig.kinds == []
    assert rig.store.free_bytes


def test_the_database_is_unwritable_while_another_holds_its_lock(rig: Rig, database: Path) -> None:
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        asyncio.run(rig.store.look())
        assert rig.kinds == ["database_unwritable"]
        assert "locked" in rig.text
        other.execute("ROLLBACK")
    asyncio.run(rig.store.look())
    assert rig.kinds == []


def test_the_database_is_unwritable_when_a_write_has_no_answer(tmp_path: Path) -> None:
    """What a stopped server looks like: the thread that asks does not come back."""
    now_s, hangs = [0.0], threading.Event()

    async def main() -> None:
        watch = StoreWatch(lambda: hangs.wait() and None, tmp_path, lambda: now_s[0])
        asked = asyncio.create_task(watch.look())
        await asyncio.sleep(0)
        assert watch.unwritable_because() is None
        now_s[0] = SILENT_AFTER_S + 1
        assert "has not answered a write for 5 s" in str(watch.unwritable_because())
        hangs.set()
        await asked
        assert watch.unwritable_because() is None
        watch.close()

    asyncio.run(main())


def test_a_lost_database_is_told_as_lost_alone(rig: Rig) -> None:
    rig.store._failed_because = "it is gone"  # what a write says then
    rig.lost = "pdmuxd.db was removed"
    assert rig.kinds == ["database_lost"]


def test_the_disk_is_low_while_less_is_free_than_is_set(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_watch.shutil, "disk_usage", lambda _: SimpleNamespace(free=999))
    asyncio.run(rig.store.look())
    assert rig.kinds == ["disk_low"]
    monkeypatch.setattr(store_watch.shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    asyncio.run(rig.store.look())
    assert rig.kinds == []


def test_usage_is_unsaved_from_the_first_attempt_that_fails_until_one_succeeds(
    rig: Rig, store_with_chat: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise StoreError("database or disk is full")

    used = {UseOf("chat", WHOLE_TENANT, store_with_chat.store.clock().date()): Tokens(output_tokens=3)}
    add_use = store_with_chat.limits.add_use
    monkeypatch.setattr(store_with_chat.limits, "add_use", full)
    rig.limiter.give_back(used)
    asyncio.run(rig.use.store())
    assert rig.kinds == []
    rig.passes(UNSAVED_AFTER_S + 1)
    asyncio.run(rig.use.store())
    assert rig.kinds == ["usage_unsaved"]
    monkeypatch.setattr(store_with_chat.limits, "add_use", add_use)
    asyncio.run(rig.use.store())
    assert rig.kinds == []
    assert store_with_chat.limits.use_since(store_with_chat.store.clock().date()) == used


def test_a_jump_of_the_clock_is_told_for_a_minute(rig: Rig) -> None:
    rig.passes(5.0, set_by_s=-7200.0)
    rig.jumps.look()
    assert rig.kinds == ["clock_jumped"]
    assert "set by -7200.0 s" in rig.text
    rig.passes(JUMP_TOLD_S + 1)
    assert rig.kinds == []


def test_a_jump_of_days_is_told_until_the_clock_is_right_again(rig: Rig) -> None:
    rig.passes(5.0, set_by_s=2 * TRUSTED_WITHIN_S)
    rig.jumps.look()
    rig.passes(10 * JUMP_TOLD_S)
    assert "nothing old is deleted" in rig.text
    rig.passes(5.0, set_by_s=-2 * TRUSTED_WITHIN_S)
    rig.jumps.look()
    rig.passes(JUMP_TOLD_S + 1)
    assert rig.kinds == []


@pytest.mark.parametrize(
    ("lags", "is_late"),
    [([2.0], True), ([0.15] * 7, True), ([0.15] * 6, False), ([LATE_S - 0.01] * 90, False)],
)
def test_the_loop_is_late_when_late_turns_make_up_a_second_of_ten(
    rig: Rig, lags: list[float], is_late: bool
) -> None:
    for lag_s in lags:
        rig.lag.add(lag_s)
    assert rig.kinds == (["loop_late"] if is_late else [])
    rig.passes(WINDOW_S + 0.1)
    assert rig.kinds == []


def test_a_host_that_is_short_of_processors_is_told_in_words_and_written_to_less_often(rig: Rig) -> None:
    asyncio.run(rig.host.look())
    rig.passes(1.0)
    rig.pace.writing_s += 0.6
    rig.readings.append(HostReading(worked_s=0.7, waited_s=0.2, pressed_s=0.5, stolen_s=0.25, all_s=1.0))
    asyncio.run(rig.host.look())
    assert rig.pace.steps == 2, "0.6 of writing in the 0.4 that all else leaves of 0.7"
    assert rig.kinds == ["loop_late"]
    assert "worked for 70% of the last second and waited for a processor for 20%" in rig.text
    assert "kept by the hypervisor: 25%" in rig.text
    assert "tokens of up to 2 steps are written at once" in rig.text
    for _ in range(10):
        rig.passes(1.0)
        asyncio.run(rig.host.look())
    assert rig.pace.steps == 1
    assert rig.kinds == []
    assert rig.pace.has_paced(rig.now_s)
    rig.passes(61.0)
    assert not rig.pace.has_paced(rig.now_s)


def test_writing_is_never_put_off_for_more_steps_than_it_helps() -> None:
    pace = Pace()
    for _ in range(9):
        pace.plan(needed=3.0, writing=0.9 / pace.steps, now_s=0.0)
    assert pace.steps == MOST_STEPS
    pace.plan(needed=0.6, writing=0.1, now_s=1.0)
    assert pace.steps == MOST_STEPS, "one calm second is not enough"


def test_the_kernel_is_asked_and_what_it_does_not_tell_is_nothing(tmp_path: Path) -> None:
    now = read_host()
    assert now.worked_s > 0
    assert now.all_s > now.stolen_s
    silent = read_host(tmp_path)
    assert (silent.waited_s, silent.pressed_s, silent.stolen_s, silent.all_s) == (0, 0, 0, 0)


@pytest.mark.parametrize(
    ("group", "folder"),
    [
        ("0::/pods/7", "pods/7"),
        ("0::/", ""),
        ("0::/as/the/host/knows/it", ""),
        ("5:memory:/a\n2:cpu,cpuacct:/docker/1", "cpu/docker/1"),
        ("2:cpu:/docker/1", "cpu"),
    ],
)
def test_a_quota_is_read_where_the_processs_own_group_counts(tmp_path: Path, group: str, folder: str) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text(f"{group}\n")
    counts = tmp_path / "groups" / folder
    counts.mkdir(parents=True)
    (counts / "cpu.stat").write_text("usage_usec 5\nnr_periods 100\nnr_throttled 7\nthrottled_usec 9\n")
    now = read_host(tmp_path, tmp_path / "groups")
    assert (now.periods, now.throttled) == (100, 7)


@pytest.mark.parametrize(
    ("group", "files", "cores"),
    [
        ("0::/", {"cpu.max": "250000 100000"}, 2.5),
        ("0::/", {"cpu.max": "max 100000"}, None),
        ("2:cpu:/", {"cpu/cpu.cfs_quota_us": "400000", "cpu/cpu.cfs_period_us": "100000"}, 4.0),
        ("2:cpu:/", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ("9:pids:/", {}, None),
    ],
)
def test_a_quota_is_told_in_processors(
    tmp_path: Path, group: str, files: dict[str, str], cores: float | None
) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text(f"{group}\n")
    (tmp_path / "cpu").mkdir()
    for name in ("cpu.stat", "cpu/cpu.stat"):
        (tmp_path / name).touch()
    for name, text in files.items():
        (tmp_path / name).write_text(f"{text}\n")
    assert quota_cores(tmp_path, tmp_path) == cores


def test_a_group_without_a_quota_has_no_periods(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text("0::/\n")
    (tmp_path / "cpu.stat").write_text("usage_usec 5\nuser_usec 3\n")
    assert read_host(tmp_path, tmp_path).periods == 0


def test_a_quota_that_stops_the_daemon_is_told_until_it_has_not_for_ten_seconds(rig: Rig) -> None:
    def second(throttled: int) -> None:
        before = rig.readings[-1]
        rig.readings.append(HostReading(periods=before.periods + 10, throttled=before.throttled + throttled))
        rig.passes(1.0)
        asyncio.run(rig.host.look())

    for throttled in (0, 0, 1, 0):
        second(throttled)
    assert rig.kinds == [], "one in ten seconds is nothing to wake anybody for"
    second(3)
    assert rig.host.shares.throttled == pytest.approx(0.3)
    assert rig.kinds == ["loop_late"]
    assert "a CPU quota stopped the daemon and its engine in 4 of its last 40 periods" in rig.text
    for _ in range(11):
        second(0)
    assert rig.kinds == []


def test_a_loop_that_is_blocked_is_seen_when_it_turns_again() -> None:
    import time

    lag = LoopLag(histogram("pdmuxd_loop_lag_seconds", CollectorRegistry()))

    async def main() -> None:
        watching = asyncio.create_task(lag.watch())
        await asyncio.sleep(0)
        time.sleep(0.25)  # noqa: ASYNC251 - what is measured
        while not lag.late_s()[0]:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
        watching.cancel()

    asyncio.run(main())
    assert lag.late_s()[1] >= 0.15


def test_each_of_them_can_be_told_as_degraded() -> None:
    assert "database_lost" not in DEGRADED, "then the daemon is not ready"
