"""The wall clock is set while the daemon runs: by hand, by a time service, by a machine that slept."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import pytest

from pdmuxd.daemon.process import clock as module
from pdmuxd.daemon.process.background import by_calendar, periodically
from pdmuxd.daemon.process.clock import TRUSTED_WITHIN_S, ClockWatch


class Clocks:
    def __init__(self) -> None:
        self.wall_s, self.monotonic_s = 1_000_000.0, 50.0

    def passes(self, seconds: float, *, set_by_s: float = 0.0) -> None:
        self.monotonic_s += seconds
        self.wall_s += seconds + set_by_s


@pytest.mark.parametrize("set_by_s", [3600.0, -3600.0])
def test_it_is_said_once_when_the_clock_is_set(monkeypatch: pytest.MonkeyPatch, set_by_s: float) -> None:
    clocks, told = Clocks(), []
    monkeypatch.setattr(module.log, "warning", lambda event, **more: told.append((event, more)))
    watch = ClockWatch(wall=lambda: clocks.wall_s, monotonic=lambda: clocks.monotonic_s)
    clocks.passes(10.0, set_by_s=0.005)  # slewed
    watch.look()
    assert told == []
    clocks.passes(10.0, set_by_s=set_by_s)
    watch.look()
    clocks.passes(10.0)
    watch.look()
    assert told == [("the wall clock was set", {"by_s": pytest.approx(set_by_s, abs=0.1)})]
    assert watch.is_trusted


def test_what_is_old_is_trusted_again_when_the_clock_is_put_right() -> None:
    clocks = Clocks()
    watch = ClockWatch(wall=lambda: clocks.wall_s, monotonic=lambda: clocks.monotonic_s)
    clocks.passes(1.0, set_by_s=-TRUSTED_WITHIN_S)
    assert not watch.is_trusted
    clocks.passes(1.0, set_by_s=TRUSTED_WITHIN_S)
    assert watch.is_trusted


@pytest.mark.parametrize(("repeat", "period_s"), [(periodically, 0.001), (by_calendar, 0.01)])
async def test_work_goes_on_when_it_has_failed_and_ends_with_its_owner(
    repeat: Callable[..., None], period_s: float
) -> None:
    calls = 0
    often = asyncio.Event()

    async def work() -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ZeroDivisionError
        if calls == 3:
            often.set()

    async with contextlib.AsyncExitStack() as stack:
        repeat(stack, work, period_s=period_s, name="work")
        async with asyncio.timeout(60):
            await often.wait()
    done = calls
    await asyncio.sleep(0.05)
    assert calls == done
