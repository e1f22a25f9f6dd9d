"""An engine goes from one supervisor to another, with real processes."""

from __future__ import annotations

import os
import signal

import pytest

from pdmuxd.engine.core.errors import ConflictError


async def test_another_supervisor_goes_on_with_an_engine_that_is_given_away(make_world):
    old = await make_world()
    await old.listener.next("serving")
    pid = old.supervisor.status().pid
    handle = await old.supervisor.give_away()
    new = await make_world(version=2, start=False)
    await new.supervisor.start(handle)

    address = await new.listener.next("serving")
    old.supervisor.confirm_given()

    status = new.supervisor.status()
    assert (status.pid, status.state, status.acked_version, status.restarts) == (pid, "serving", 2, 0)
    assert address.base_url == handle.base_url
    assert "serving" not in old.listener.states[1:], "the old one says nothing new"
    await old.supervisor.stop()
    os.kill(pid, 0)


async def test_an_engine_is_taken_back_when_nobody_takes_it(make_world):
    world = await make_world()
    await world.listener.next("serving")
    pid = world.supervisor.status().pid

    await world.supervisor.give_away()
    world.supervisor.take_back()
    await world.listener.next("serving")

    assert (world.supervisor.status().pid, world.supervisor.status().state) == (pid, "serving")
    os.kill(pid, signal.SIGKILL)
    assert "SIGKILL" in await world.listener.next("down")
    await world.listener.next("serving")
    assert world.supervisor.status().restarts >= 1


async def test_the_one_who_took_it_starts_the_next_when_an_engine_dies_that_was_taken_over(make_world):
    old = await make_world()
    await old.listener.next("serving")
    new = await make_world(start=False)
    await new.supervisor.start(await old.supervisor.give_away())
    await new.listener.next("serving")
    old.supervisor.confirm_given()

    os.kill(new.supervisor.status().pid, signal.SIGKILL)

    await new.listener.next("down")
    await new.listener.next("serving")
    assert "taken it over" in await old.listener.next("down")


async def test_nothing_is_started_when_an_engine_cannot_be_taken_over(make_world):
    old = await make_world()
    await old.listener.next("serving")
    handle = await old.supervisor.give_away()
    os.kill(handle.pid, signal.SIGKILL)
    new = await make_world(start=False, adopt_timeout_s=0.5)

    await new.supervisor.start(handle)
    await new.supervisor.ended()

    assert new.supervisor.fatal is not None
    old.supervisor.take_back()
    await old.listener.next("down")
    await old.listener.next("serving")


@pytest.mark.parametrize("profile", ["mute", "crash"])
async def test_only_an_engine_that_serves_is_given_away(make_world, profile):
    world = await make_world(profile)
    with pytest.raises(ConflictError, match="only one that serves"):
        await world.supervisor.give_away()
